"""All aggregations of the chunk scores that the trials of a `serving` sweep kept, as systems of
their own, and the one to serve: chosen on dev, tested on test.

Nothing is trained: a window and a stride are scored once, and every system is computed from these
scores, also interpolated with the first stage.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from rank_core.errors import BadInput
from rank_core.evaluate import per_query, query_values
from rank_core.export.serving import FILE, serving_setting
from rank_core.models.passage_scores import KMaxAvgP
from rank_core.ranking.chunk_scores import (
    CHUNK_SCORES,
    KeptChunks,
    derived_config,
    derived_run,
    read_chunks,
)
from rank_core.ranking.interpolation import DEFAULT, FirstStageMix, choose_alpha, mixture
from rank_core.records import EVALUATED, Run
from rank_core.settings.config import TrialConfig
from rank_core.stats.compare import compare_pairs
from rank_core.stats.matrix import score_matrix
from sweeps.plan.experiment import model_and_windows
from sweeps.report.interpolation import MixtureInputs
from sweeps.report.load import Interpolated, Serving, Sweep, correction_of, of_split
from sweeps.report.notation import relation, short_signed
from sweeps.store.scores import SCORE_COLUMNS, as_categories
from sweeps.store.sweep_file import FIRST_STAGE, Cell, find_sweep
from sweeps.store.trial_status import USED

PROBABILITY = {"model.chunk_scores": "probability"}
_KINDS: dict[str, tuple[Mapping[str, Any], str]] = {
    "first": ({"model.name": "firstp"}, "the score of its first chunk"),
    "max": ({"model.name": "maxp"}, "the maximum of its chunk scores"),
    "sum": ({"model.name": "sump"}, "the sum of its chunk scores"),
    "sum P": ({"model.name": "sump", **PROBABILITY}, "the sum of its chunks' probabilities"),
    "mean": ({"model.name": "avgp"}, "the mean of its chunk scores"),
    "mean P": ({"model.name": "avgp", **PROBABILITY}, "the mean of its chunks' probabilities"),
    "best 2": ({"model.name": "kmax-avgp", "model.k": 2}, "the mean of its best two chunk scores"),
    "best 3": (
        {"model.name": "kmax-avgp", "model.k": 3},
        "the mean of its best three chunk scores",
    ),
}
"""{heading: (settings, words)}; P: of probabilities, the sigmoid of the scores."""
AGGREGATIONS = {heading: settings for heading, (settings, _) in _KINDS.items()}


@dataclass(frozen=True, eq=False)
class System:
    """An aggregation of the chunk scores of a trial."""

    cell: str
    of: str  # the cell of its trial
    seed: int
    heading: str  # its key in `AGGREGATIONS`
    config: TrialConfig
    values: pd.DataFrame
    dev: float
    tokens: float  # of the encoder, per query
    seconds: float
    alpha: float | None = None  # chosen on dev; None where nothing is interpolated
    mixed: pd.DataFrame | None = None
    mixed_dev: float = float("nan")

    @property
    def label(self) -> str:
        """`KMaxAvgP 64/32, k 2`."""
        return system_label(self.config)

    def interpolated(self, first_stage: str) -> Interpolated:
        """The system with the first stage as a row of the table."""
        assert self.alpha is not None and self.mixed is not None
        name = f"{self.cell}+{FIRST_STAGE}"
        scores = self.mixed[self.mixed["split"] == "test"].assign(cell=name, seed=self.seed)
        alphas = {self.seed: (self.alpha,)}
        label = f"{self.label} +{first_stage}"
        return Interpolated(name, self.cell, label, alphas, scores[list(SCORE_COLUMNS)], True)


def system_label(config: TrialConfig) -> str:
    """`KMaxAvgP 150/75, k 3, 4 chunks`, `SumP of P 150/75`."""
    name, windows = model_and_windows(config).rsplit(" ", 1)
    parts = [f"{name} of P {windows}" if config.model.chunk_scores else f"{name} {windows}"]
    if config.model.name == "kmax-avgp":
        parts.append(f"k {config.model.k or KMaxAvgP.DEFAULT_K}")
    if count := config.chunking.max_chunks:
        parts.append(f"{count} chunk{'s' if count > 1 else ''}")
    return ", ".join(parts)


def with_aggregations(sweep: Sweep, rows: str) -> Sweep:
    """The sweep with every aggregation as a cell, and its answer; unchanged where trials kept no
    chunk scores. `rows`: the systems that are interpolated, of `INTERPOLATE`."""
    kept = _Kept(sweep, interpolates=rows != "none")
    systems = list(kept.systems())
    if not systems:
        return sweep
    baseline = next(s for s in systems if s.of == sweep.baseline and s.heading == "first")
    chosen, alone = _best(systems)
    mixed = [s for s in systems if s.alpha is not None]
    if rows != "all":
        mixed = [s for s in mixed if s in (baseline, max(mixed, key=lambda m: m.mixed_dev), chosen)]
    ordered = [baseline, *(s for s in systems if s is not baseline)]
    values = pd.concat([s.values.assign(cell=s.cell, seed=s.seed) for s in ordered])
    values = as_categories(values[list(SCORE_COLUMNS)].reset_index(drop=True))
    trials = sweep.trials.set_index("cell", drop=False)

    names = ("model.name", "chunking.window", "chunking.stride")
    answered = replace(
        sweep,
        slots=(baseline.cell,),
        deterministic=tuple(s.cell for s in ordered),
        correction=correction_of(len(ordered) - 1),
        cells=tuple(
            Cell(s.cell, s.label, settings={n: s.config.settings()[n] for n in names})
            for s in ordered
        ),
        trials=pd.DataFrame([trials.loc[s.of].to_dict() | {"cell": s.cell} for s in ordered]),
        scores=of_split(values, sweep.split, *sweep.measures),
        dev_scores=of_split(values, "dev", sweep.primary),
        lists={(s.cell, s.seed): partial(kept.lists, s) for s in ordered},
        interpolated=tuple(s.interpolated(sweep.first_stage_name) for s in mixed),
    )
    return replace(answered, serving=_serving(answered, kept, systems, chosen, alone))


def _best(systems: list[System]) -> tuple[System, bool]:
    """The system with the best mean on dev, and whether it is alone, without the first stage; among
    equals the cheaper one."""
    alone = [(s.dev, -s.tokens, True, s) for s in systems]
    mixed = [(s.mixed_dev, -s.tokens, False, s) for s in systems if s.alpha not in (None, 0.0, 1.0)]
    _, _, is_alone, best = max(alone + mixed, key=lambda entry: entry[:3])
    return best, is_alone


class _Kept:
    """The chunk scores of a sweep's trials, its judgments and candidates."""

    def __init__(self, sweep: Sweep, *, interpolates: bool) -> None:
        self.sweep, self.records = sweep, find_sweep(str(sweep.folder))
        self.interpolates = interpolates
        self.read_tokens = self.separate_tokens = 0.0  # of the encoder: read, and a run per system
        read = MixtureInputs(sweep.folder, sweep.measures, sweep.primary).read
        self.candidates = {split: run for split, (run, _) in read.items()}
        self.qrels = {split: qrels for split, (_, qrels) in read.items()}

    def systems(self) -> Iterator[System]:
        """Every aggregation of every finished trial; the first chunk once for each window."""
        known: list[TrialConfig] = []
        queries = sum(map(len, self.qrels.values()))
        finished = self.sweep.trials[self.sweep.trials["status"].isin(USED)]
        for trial in finished.to_dict("records"):
            cell, seed, tokens = trial["cell"], int(trial["seed"]), float(trial["encoder_tokens"])
            config, kept = self._chunks(cell, seed)
            first = tokens * _first_share(tokens, kept.values())
            self.read_tokens += tokens
            for heading, asked in AGGREGATIONS.items():
                if (own := derived_config(config, asked)) in known:
                    continue
                known.append(own)
                read = first if heading == "first" else tokens
                self.separate_tokens += read
                runs = {split: derived_run(kept[split], own) for split in EVALUATED}
                system = System(
                    cell=f"{cell}.{heading.replace(' ', '-')}",
                    of=cell,
                    seed=seed,
                    heading=heading,
                    config=own,
                    values=self.values(runs),
                    dev=self._dev(runs["dev"]),
                    tokens=read / queries,
                    seconds=float(trial["eval_seconds"]) / queries,
                )
                yield self._mixed(system, runs) if self.interpolates else system

    def _chunks(self, cell: str, seed: int) -> tuple[TrialConfig, dict[str, KeptChunks]]:
        name = f"{cell}-seed{seed}"
        if CHUNK_SCORES not in self.records.result(name).files:
            raise BadInput(f"trial {name} kept no chunk scores; serving needs them")
        self.records.read(name, CHUNK_SCORES)  # checks it
        config = TrialConfig().override(json.loads(self.records.read(name, "config.json")))
        folder = self.records.trial_folder(name)
        return config, {split: read_chunks(folder, split) for split in EVALUATED}

    def _mixed(self, system: System, runs: Mapping[str, Run]) -> System:
        """The system with the first stage, its alpha chosen on dev."""
        sides = {split: mixture(runs[split], self.candidates[split]) for split in EVALUATED}
        alpha = choose_alpha(sides["dev"], self.qrels["dev"], self.sweep.primary)
        mixed = {split: sides[split].at(alpha) for split in EVALUATED}
        values, dev = self.values(mixed), self._dev(mixed["dev"])
        return replace(system, alpha=alpha, mixed=values, mixed_dev=dev)

    def _dev(self, run: Run) -> float:
        values = query_values(self.qrels["dev"], run, self.sweep.primary)
        return sum(values.values()) / len(values)

    def values(self, runs: Mapping[str, Run]) -> pd.DataFrame:
        """`split, query_id, measure, value` of the runs of dev and test."""
        of_split = {s: per_query(self.qrels[s], runs[s], self.sweep.measures) for s in EVALUATED}
        return pd.concat([values.assign(split=split) for split, values in of_split.items()])

    def lists(self, system: System, queries: Collection[str]) -> dict[str, list[str]]:
        """The documents of some queries as the system ranks them."""
        _, kept = self._chunks(system.of, system.seed)
        run = derived_run(kept[self.sweep.split], system.config)
        return {query: list(run[query]) for query in queries if query in run}


def _first_share(tokens: float, kept: Iterable[KeptChunks]) -> float:
    """The share of a trial's encoder tokens in first chunks; beside its own tokens a chunk has
    those of query and layout, taken as their mean."""
    all_tokens = first_tokens = chunks = pairs = 0
    for split in kept:
        lengths = [[end - start for start, end in places] for places in split.places_D]
        for document in split.document_N.tolist():
            all_tokens += sum(lengths[document])
            first_tokens += lengths[document][0]
            chunks += len(lengths[document])
        pairs += len(split.pairs)
    beside = (tokens - all_tokens) / chunks
    return (first_tokens + pairs * beside) / tokens


def _serving(
    sweep: Sweep, kept: _Kept, systems: list[System], best: System, alone: bool
) -> Serving:
    """The answer: the chosen system, its gains on test, its cost, and all rows."""
    of_longest = [s for s in systems if s.of == kept.sweep.baseline]
    first, cut = (next(s for s in of_longest if s.heading == name) for name in ("first", "max"))
    measured = _measured(kept, best, alone, {first: "first", cut: "cut"})
    mix = None if alone else FirstStageMix(best.alpha or 0.0, DEFAULT, sweep.first_stage_name)
    model = {**sweep.backbone, "name": Path(sweep.backbone["name"]).name}
    return Serving(
        file=FILE,
        setting=serving_setting(best.config, model, mix) | {"measured": measured},
        answer=_sentence(sweep, best, alone, measured, cut),
        rows=tuple(_row(s, sweep) for s in systems),
        of={s.cell: (s.of, s.config.settings()) for s in systems},
        read_tokens=int(kept.read_tokens),
        separate_tokens=int(kept.separate_tokens),
        best=best.cell,
        alpha=None if alone else best.alpha,
        mixed="" if alone else f" +{sweep.first_stage_name}",
    )


def _row(system: System, sweep: Sweep) -> dict[str, Any]:
    """The numbers of a system for the page and results.json."""

    def test(values: pd.DataFrame) -> float:
        chosen = (values["split"] == sweep.split) & (values["measure"] == sweep.primary)
        return float(values.loc[chosen, "value"].mean())

    chunking = system.config.chunking
    row = {"window": chunking.window, "stride": chunking.stride, "aggregation": system.heading}
    row |= {"label": system.label, "dev": system.dev, "test": test(system.values)}
    if system.mixed is not None:
        row |= {"alpha": system.alpha, "dev_interpolated": system.mixed_dev}
        row |= {"test_interpolated": test(system.mixed)}
    return row | {"tokens_per_query": system.tokens, "seconds_per_query": system.seconds}


def _measured(
    kept: _Kept, best: System, alone: bool, baselines: Mapping[System, str]
) -> dict[str, Any]:
    """Means on test, the corrected gains of the best over the baselines, and the cost."""
    sweep, values = kept.sweep, best.values if alone else best.mixed
    assert values is not None
    tables = {"best": values} | {name: system.values for system, name in baselines.items()}
    if kept.interpolates:
        tables["first stage"] = kept.values(kept.candidates)
    table = pd.concat([t.assign(cell=name, seed=1) for name, t in tables.items()])
    matrix = score_matrix(
        table[table["split"] == sweep.split], measure=sweep.primary, cells=[*tables]
    )
    same = [name for system, name in baselines.items() if alone and system == best]
    tests = compare_pairs(
        matrix,
        [("best", name) for name in tables if name not in ("best", *same)],
        correction=sweep.correction,
        alpha=sweep.alpha,
        deterministic=[*tables],
    )
    names = {"mean": "mean_baseline", "gain": "delta", "low": "ci_low", "high": "ci_high"}
    names["p"] = "p_both_adjusted"
    return {
        "collection": {name: sweep.collection[name] for name in ("name", "content_hash")},
        "measure": sweep.primary,
        "split": sweep.split,
        "queries": len(matrix.query_ids),
        "mean": float(matrix.scores["best"].mean()),
        "level": 1 - sweep.alpha,
        "over": {t.baseline: {k: getattr(t, name) for k, name in names.items()} for t in tests},
        "tokens_per_query": best.tokens,
        "seconds_per_query": best.seconds,
    }


def _sentence(
    sweep: Sweep, best: System, alone: bool, measured: Mapping[str, Any], cut: System
) -> str:
    """The answer in one sentence."""
    chunking, longest = best.config.chunking, cut.config.chunking.window
    over, digits = measured["over"], sweep.digits
    what = {
        "first": f"the first {longest} tokens",
        "cut": f"cutting at {longest} and the maximum",
        "first stage": f"{sweep.first_stage_name} alone",
    }
    gains = [
        f"{short_signed(gain['gain'], digits)} over {what[name]} "
        f"([{short_signed(gain['low'], digits)}, {short_signed(gain['high'], digits)}], "
        f"p {relation(gain['p'])})"
        for name, gain in over.items()
    ]
    score = _KINDS[best.heading][1]
    if not alone:
        score = f"{best.alpha:g} x {score} + {1 - (best.alpha or 0):g} x {sweep.first_stage_name}"
    corrected = f" (p corrected over these {len(gains)})" * (len(gains) > 1)
    return (
        f"Serve windows of {chunking.window} tokens with stride {chunking.stride} and score a "
        f"document by {score}: {sweep.primary} {measured['mean']:.{digits}f} "
        f"({sweep.count_text(measured['queries'])}), {', '.join(gains)}{corrected}. It reads "
        f"{best.tokens:,.0f} encoder tokens and takes {best.seconds:.2g} s per query (cutting at "
        f"{longest}: {cut.tokens:,.0f}, {cut.seconds:.2g} s)."
    )
