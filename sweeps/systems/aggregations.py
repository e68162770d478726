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
from sweeps.systems.choice import choose, with_rows
from sweeps.systems.interpolation import MixtureInputs, first_stage_of
from sweeps.systems.load import (
    Serving,
    Sweep,
    in_clusters,
    of_split,
    trial_config,
)
from sweeps.systems.system import Kind, System, seed_means

PROBABILITY = {"model.chunk_scores": "probability"}
AGGREGATIONS: dict[str, Mapping[str, Any]] = {
    "first": {"model.name": "firstp"},
    "max": {"model.name": "maxp"},
    "sum": {"model.name": "sump"},
    "sum P": {"model.name": "sump", **PROBABILITY},
    "mean": {"model.name": "avgp"},
    "mean P": {"model.name": "avgp", **PROBABILITY},
    "best 2": {"model.name": "kmax-avgp", "model.k": 2},
    "best 3": {"model.name": "kmax-avgp", "model.k": 3},
}
"""{heading: settings}; P: of probabilities, the sigmoid of the scores."""


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
            dev={seed: self.dev},
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
    """The sweep with every aggregation as a cell, and what it says of the choice; unchanged where
    trials kept no chunk scores. `rows`: the interpolated systems with a row, of `INTERPOLATE`."""
    kept = _Kept(sweep, interpolates=sweep.about.interpolate != "none" or rows != "none")
    pairs = list(kept.systems())
    if not pairs:
        return sweep
    alone = [system for system, _ in pairs]
    baseline = next(s for s in alone if s.of == sweep.baseline and s.heading == "first")
    ordered = [baseline, *(s for s in alone if s is not baseline)]
    values = as_categories(pd.concat([s.scores(s.cell) for s in ordered], ignore_index=True))
    names = ("model.name", *WINDOWS, *_beside_windows(sweep))
    mixed = tuple(row.interpolated(sweep) for _, row in pairs if row)
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
        mixed=mixed,
        first_stage=first_stage_of(sweep) if mixed else None,
    )
    answered = with_rows(replace(answered, serving=_serving(answered, kept, pairs)), rows)
    return replace(answered, serving=_with_choice(answered, kept, pairs))


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
                if (derived := derived_config(config, asked)) in known:
                    continue
                known.append(derived)
                read = first if heading == "first" else tokens
                self.separate_tokens += read
                runs = {split: derived_run(kept[split], derived) for split in EVALUATED}
                system = Aggregation(
                    cell=f"{trial['cell']}.{heading.replace(' ', '-')}",
                    trial=trial,
                    heading=heading,
                    config=derived,
                    stated=tuple(
                        str(derived.settings()[name]) for name in _beside_windows(self.sweep)
                    ),
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
    marks = (tokens - sum(map(sum, lengths))) / sum(map(len, lengths))
    return (sum(chunks[0] for chunks in lengths) + len(lengths) * marks) / tokens


def _serving(sweep: Sweep, kept: _Kept, pairs: Sequence[Pair]) -> Serving:
    """All rows with their costs, before the choice."""
    return Serving(
        rows=tuple(_row(*pair, sweep) for pair in pairs),
        of={s.cell: (s.of, s.config.settings()) for s, _ in pairs},
        read_tokens=int(kept.read_tokens),
        separate_tokens=int(kept.separate_tokens),
    )


def _with_choice(sweep: Sweep, kept: _Kept, pairs: Sequence[Pair]) -> Serving:
    """The same with the content of `serving.json`; the first stage needs none."""
    assert sweep.serving is not None
    choice, every = choose(sweep), {s.cell: (s, row) for s, row in pairs}
    if choice is None or not choice.cell:
        return sweep.serving
    model, mixed = every[choice.cell]
    best = mixed if choice.is_mixed and mixed else model
    of_longest = {s.heading: s for s, _ in pairs if s.of == kept.sweep.baseline}
    measured = _measured(kept, best, {name: of_longest[h] for name, h in _LONGEST.items()})
    if best is mixed:
        measured["mean_alone"] = _test(model, sweep)
    mix = None
    if best.alpha is not None:
        mix = FirstStageMix(best.alpha, DEFAULT, sweep.first_stage_name)
    named = {**sweep.about.backbone, "name": Path(sweep.about.backbone["name"]).name}
    setting = serving_setting(best.config, named, mix) | {"measured": measured}
    return replace(sweep.serving, file=FILE, setting=setting)


_LONGEST = {"first": "first", "cut": "max"}
"""{what the choice is compared with, of the longest windows: its key in `AGGREGATIONS`}."""


def _test(system: Aggregation, sweep: Sweep) -> float:
    """Its mean of the primary measure on the reported split."""
    return float(of_split(system.scores(""), sweep.split, sweep.primary)["value"].mean())


def _row(system: Aggregation, mixed: Aggregation | None, sweep: Sweep) -> dict[str, Any]:
    """The numbers of a system for the page and results.json."""
    chunking = system.config.chunking
    row = {"window": chunking.window, "stride": chunking.stride, "aggregation": system.heading}
    row |= {"label": system.label, "dev": system.dev, "test": _test(system, sweep)}
    if mixed:
        row |= {"alpha": mixed.alpha, "dev_interpolated": mixed.dev}
        row |= {"test_interpolated": _test(mixed, sweep)}
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
        correction=sweep.tests.correction,
        alpha=sweep.tests.alpha,
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
        "level": 1 - sweep.tests.alpha,
        "over": {t.baseline: {k: getattr(t, name) for k, name in names.items()} for t in tests},
        "tokens_per_query": best.tokens,
        "seconds_per_query": best.seconds,
    }
