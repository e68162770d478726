"""All aggregations of the chunk scores that the trials of a `serving` sweep kept, as systems of
their own, and the one to serve: chosen on dev, tested on test.

Nothing is trained: a window and a stride are scored once, and every system is computed from these
scores, also interpolated with the first stage.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd

from rank_core.errors import BadInput
from rank_core.evaluate import mean_value, per_query
from rank_core.export.serving import FILE, serving_setting
from rank_core.models.kept_files import CHUNK_SCORES
from rank_core.models.passage_scores import KMaxAvgP
from rank_core.ranking.chunk_scores import (
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
from sweeps.plan.experiment import aggregation_label
from sweeps.store.records import Records, trial_name
from sweeps.store.scores import SCORE_COLUMNS, as_categories
from sweeps.store.sweep_file import FIRST_STAGE, Cell
from sweeps.systems.interpolation import MixtureInputs
from sweeps.systems.load import (
    Serving,
    Sweep,
    in_clusters,
    of_split,
    trial_config,
)
from sweeps.systems.system import Kind, System, seed_means
from sweeps.terminal.notation import relation, short_signed

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
class Aggregation:
    """An aggregation of the chunk scores of a trial, alone or interpolated with the first stage."""

    cell: str
    trial: Mapping[str, Any]  # its row of the sweep's trials
    heading: str  # its key in `AGGREGATIONS`
    config: TrialConfig
    values: pd.DataFrame  # of dev and test
    dev: float
    tokens: float  # of the encoder, per query
    seconds: float
    stated: tuple[str, ...] = ()  # beside windows: what its trial differs in from others
    alpha: float | None = None  # chosen on dev; None: alone

    @property
    def of(self) -> str:
        """The cell of its trial."""
        return str(self.trial["cell"])

    @property
    def label(self) -> str:
        """`KMaxAvgP 64/32, k 2`, `MaxP 64/32, int8`."""
        return ", ".join([system_label(self.config), *self.stated])

    def scores(self, cell: str) -> pd.DataFrame:
        """Its values as those of a cell."""
        return self.values.assign(cell=cell, seed=int(self.trial["seed"]))[list(SCORE_COLUMNS)]

    def interpolated(self, sweep: Sweep) -> System:
        """The system with the first stage as a row of the table."""
        assert self.alpha is not None
        name, seed = f"{self.cell}+{FIRST_STAGE}", int(self.trial["seed"])
        scores = of_split(self.scores(name), sweep.split, *sweep.measures)
        return System(
            cell=Cell(name, f"{self.label} +{sweep.first_stage_name}"),
            seed_means=seed_means(scores, sweep.measures),
            statuses={seed: str(self.trial["status"])},
            kind=Kind.INTERPOLATED,
            of=self.cell,
            scores=scores,
            deterministic=True,
            alphas={seed: (self.alpha,)},
        )


Pair: TypeAlias = tuple[Aggregation, Aggregation | None]
"""A system alone, and interpolated; None where no system is."""


def system_label(config: TrialConfig) -> str:
    """`KMaxAvgP 150/75, k 3, 4 chunks`, `SumP of P 150/75`."""
    parts = [aggregation_label(config)]
    if config.model.name == "kmax-avgp":
        parts.append(f"k {config.model.k or KMaxAvgP.DEFAULT_K}")
    if count := config.chunking.max_chunks:
        parts.append(f"{count} chunk{'s' if count > 1 else ''}")
    return ", ".join(parts)


def kept_chunks(records: Records, name: str, *splits: str) -> dict[str, KeptChunks]:
    """{split: the chunk scores of a finished trial}, as they were at its end."""
    records.read(name, CHUNK_SCORES)  # checks it
    return {split: read_chunks(records.trial_folder(name), split) for split in splits}


def with_aggregations(sweep: Sweep, rows: str) -> Sweep:
    """The sweep with every aggregation as a cell, and its answer; unchanged where trials kept no
    chunk scores. `rows`: the systems that are interpolated, of `INTERPOLATE`."""
    kept = _Kept(sweep, interpolates=rows != "none")
    pairs = list(kept.systems())
    if not pairs:
        return sweep
    alone, mixed = [system for system, _ in pairs], [own for _, own in pairs if own]
    baseline = next(s for s in alone if s.of == sweep.baseline and s.heading == "first")
    # Among equals the cheaper one, then the one without the first stage.
    best = max(
        (s for s in (*alone, *mixed) if s.alpha not in (0.0, 1.0)),
        key=lambda s: (s.dev, -s.tokens, s.alpha is None),
    )
    if rows == "best":
        shown = {s.cell for s in (baseline, max(mixed, key=lambda s: s.dev), best)}
        mixed = [s for s in mixed if s.cell in shown]
    ordered = [baseline, *(s for s in alone if s is not baseline)]
    values = as_categories(pd.concat([s.scores(s.cell) for s in ordered], ignore_index=True))
    names = ("model.name", *WINDOWS, *_beside_windows(sweep))
    answered = replace(
        sweep,
        slots=(baseline.cell,),
        deterministic=tuple(s.cell for s in ordered),
        cells=tuple(
            Cell(s.cell, s.label, settings={n: s.config.settings()[n] for n in names})
            for s in ordered
        ),
        trials=pd.DataFrame([{**s.trial, "cell": s.cell} for s in ordered]),
        scores=of_split(values, sweep.split, *sweep.measures),
        dev_scores=of_split(values, "dev", sweep.primary),
        lists={(s.cell, int(s.trial["seed"])): partial(kept.lists, s) for s in ordered},
        interpolated=tuple(s.interpolated(sweep) for s in mixed),
    )
    return replace(answered, serving=_serving(answered, kept, pairs, best))


WINDOWS = ("chunking.window", "chunking.stride")


def _beside_windows(sweep: Sweep) -> list[str]:
    """The settings that its trials differ in beside the windows."""
    return [name for name in sweep.about.swept if name not in WINDOWS]


class _Kept:
    """The chunk scores of a sweep's trials, its judgments and candidates."""

    def __init__(self, sweep: Sweep, *, interpolates: bool) -> None:
        self.sweep, self.records = sweep, sweep.stored
        self.interpolates = interpolates
        self.read_tokens = self.separate_tokens = 0.0  # of the encoder: read, and a run per system
        read = MixtureInputs.of(sweep).read
        self.candidates = {split: run for split, (run, _) in read.items()}
        self.qrels = {split: qrels for split, (_, qrels) in read.items()}

    def systems(self) -> Iterator[Pair]:
        """Every aggregation of every finished trial; the first chunk once for each window."""
        known: list[TrialConfig] = []
        queries = sum(map(len, self.qrels.values()))
        for trial in self.sweep.used.to_dict("records"):
            name, tokens = trial_name(trial["cell"], trial["seed"]), float(trial["encoder_tokens"])
            if CHUNK_SCORES not in self.records.result(name).files:
                raise BadInput(f"trial {name} kept no chunk scores; serving needs them")
            config = trial_config(self.records, name)
            kept = kept_chunks(self.records, name, *EVALUATED)
            first = tokens * _first_share(tokens, kept.values())
            self.read_tokens += tokens
            for heading, asked in AGGREGATIONS.items():
                # The first chunk does not depend on the stride: once for each window.
                if (own := derived_config(config, asked)) in known:
                    continue
                known.append(own)
                read = first if heading == "first" else tokens
                self.separate_tokens += read
                runs = {split: derived_run(kept[split], own) for split in EVALUATED}
                system = Aggregation(
                    cell=f"{trial['cell']}.{heading.replace(' ', '-')}",
                    trial=trial,
                    heading=heading,
                    config=own,
                    stated=tuple(str(own.settings()[name]) for name in _beside_windows(self.sweep)),
                    values=self.values(runs),
                    dev=self._dev(runs),
                    tokens=read / queries,
                    seconds=float(trial["eval_seconds"]) / queries,
                )
                yield system, self._mixed(system, runs) if self.interpolates else None

    def _mixed(self, system: Aggregation, runs: Mapping[str, Run]) -> Aggregation:
        """The system with the first stage, its alpha chosen on dev."""
        sides = {split: mixture(runs[split], self.candidates[split]) for split in EVALUATED}
        alpha = choose_alpha(sides["dev"], self.qrels["dev"], self.sweep.primary)
        mixed = {split: sides[split].at(alpha) for split in EVALUATED}
        return replace(system, alpha=alpha, values=self.values(mixed), dev=self._dev(mixed))

    def _dev(self, runs: Mapping[str, Run]) -> float:
        return mean_value(self.qrels["dev"], runs["dev"], self.sweep.primary)

    def values(self, runs: Mapping[str, Run]) -> pd.DataFrame:
        """`split, query_id, measure, value` of the runs of dev and test."""
        of_split = {s: per_query(self.qrels[s], runs[s], self.sweep.measures) for s in EVALUATED}
        return pd.concat([values.assign(split=split) for split, values in of_split.items()])

    def lists(self, system: Aggregation, queries: Collection[str]) -> dict[str, list[str]]:
        """The documents of some queries as the system ranks them."""
        name, split = trial_name(system.of, system.trial["seed"]), self.sweep.split
        run = derived_run(kept_chunks(self.records, name, split)[split], system.config)
        return {query: list(run[query]) for query in queries if query in run}


def _first_share(tokens: float, kept: Iterable[KeptChunks]) -> float:
    """The share of a trial's encoder tokens in first chunks; beside its own tokens a chunk has
    those of query and layout, taken as their mean."""
    lengths: list[list[int]] = []  # of the chunks of every pair
    for split in kept:
        of_document = [[end - start for start, end in places] for places in split.places_D]
        lengths += [of_document[document] for document in split.document_N.tolist()]
    beside = (tokens - sum(map(sum, lengths))) / sum(map(len, lengths))
    return (sum(own[0] for own in lengths) + len(lengths) * beside) / tokens


def _serving(sweep: Sweep, kept: _Kept, pairs: Sequence[Pair], best: Aggregation) -> Serving:
    """The answer: the chosen system, its gains on test, its cost, and all rows."""
    of_longest = {s.heading: s for s, _ in pairs if s.of == kept.sweep.baseline}
    cut = of_longest["max"]
    measured = _measured(kept, best, {"first": of_longest["first"], "cut": cut})
    name = sweep.first_stage_name
    mix = None if best.alpha is None else FirstStageMix(best.alpha, DEFAULT, name)
    model = {**sweep.about.backbone, "name": Path(sweep.about.backbone["name"]).name}
    return Serving(
        file=FILE,
        setting=serving_setting(best.config, model, mix) | {"measured": measured},
        answer=_sentence(sweep, best, measured, cut),
        rows=tuple(_row(*pair, sweep) for pair in pairs),
        of={s.cell: (s.of, s.config.settings()) for s, _ in pairs},
        read_tokens=int(kept.read_tokens),
        separate_tokens=int(kept.separate_tokens),
        best=best.cell,
        alpha=best.alpha,
        mixed=f" +{name}" if mix else "",
    )


def _row(system: Aggregation, mixed: Aggregation | None, sweep: Sweep) -> dict[str, Any]:
    """The numbers of a system for the page and results.json."""

    def test(system: Aggregation) -> float:
        return float(of_split(system.scores(""), sweep.split, sweep.primary)["value"].mean())

    chunking = system.config.chunking
    row = {"window": chunking.window, "stride": chunking.stride, "aggregation": system.heading}
    row |= {"label": system.label, "dev": system.dev, "test": test(system)}
    if mixed:
        row |= {"alpha": mixed.alpha, "dev_interpolated": mixed.dev}
        row |= {"test_interpolated": test(mixed)}
    return row | {"tokens_per_query": system.tokens, "seconds_per_query": system.seconds}


def _measured(
    kept: _Kept, best: Aggregation, baselines: Mapping[str, Aggregation]
) -> dict[str, Any]:
    """Means on test, the corrected gains of the best over the baselines, and the cost."""
    sweep = kept.sweep
    tables = {name: s.values for name, s in {"best": best, **baselines}.items()}
    if kept.interpolates:
        tables["first stage"] = kept.values(kept.candidates)
    table = pd.concat([t.assign(cell=name, seed=1) for name, t in tables.items()])
    matrix = score_matrix(
        table[table["split"] == sweep.split], measure=sweep.primary, cells=[*tables]
    )
    matrix = in_clusters(sweep, matrix)
    same = [name for name, system in baselines.items() if system is best]
    tests = compare_pairs(
        matrix,
        [("best", name) for name in tables if name not in ("best", *same)],
        correction=sweep.correction,
        alpha=sweep.about.alpha,
        deterministic=[*tables],
    )
    names = {"mean": "mean_baseline", "gain": "delta", "low": "ci_low", "high": "ci_high"}
    names["p"] = "p_both_adjusted"
    return {
        "collection": {name: sweep.about.collection[name] for name in ("name", "content_hash")},
        "measure": sweep.primary,
        "split": sweep.split,
        "queries": matrix.num_queries,
        "mean": float(matrix.scores["best"].mean()),
        "level": 1 - sweep.about.alpha,
        "over": {t.baseline: {k: getattr(t, name) for k, name in names.items()} for t in tests},
        "tokens_per_query": best.tokens,
        "seconds_per_query": best.seconds,
    }


def _sentence(
    sweep: Sweep, best: Aggregation, measured: Mapping[str, Any], cut: Aggregation
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
    if best.alpha is not None:
        score = f"{best.alpha:g} x {score} + {1 - best.alpha:g} x {sweep.first_stage_name}"
    corrected = f" (p corrected over these {len(gains)})" * (len(gains) > 1)
    return (
        f"Serve windows of {chunking.window} tokens with stride {chunking.stride} and score a "
        f"document by {score}: {sweep.primary} {measured['mean']:.{digits}f} "
        f"({sweep.count_text(measured['queries'])}), {', '.join(gains)}{corrected}. It reads "
        f"{best.tokens:,.0f} encoder tokens and takes {best.seconds:.2g} s per query (cutting at "
        f"{longest}: {cut.tokens:,.0f}, {cut.seconds:.2g} s)."
    )
