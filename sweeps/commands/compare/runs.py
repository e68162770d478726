"""The second loader of the report's analysis: any TREC runs as systems with seeds.

A system is a cell, its k-th run is its k-th seed. A column is one measure on one collection, and a
collection is one query set or several pooled ones.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from rank_core.data.named_files import named_qrels, named_run
from rank_core.errors import BadInput, unknown
from rank_core.evaluate import parse_measure, per_query
from rank_core.measure_check import check_measures
from rank_core.records import Qrels, Run
from rank_core.stats.baselines import Slot
from rank_core.stats.pooling import pool_query_sets
from sweeps.report.analysis import Analysis, analyse
from sweeps.report.load import Sweep
from sweeps.report.notation import TIE_POLICY
from sweeps.store.sweep_file import ROPE, Cell

MEASURES = ("nDCG@10", "RR@10")

TIES = {
    "doc_id": TIE_POLICY,
    "trec_eval": "equal scores rank by descending document id, as trec_eval sorts them",
}
"""{rule for the documents of a run that have the same score: its words}."""

RunFiles = Path | Mapping[str, Path]
"""What one training run ranked: one file for all query sets, or {query set: its file}."""

Systems = Mapping[str, tuple[RunFiles, ...]]
"""{system: its training runs}; the k-th is the same training run on every query set."""


@dataclass
class Measured:
    """The values of every query set, and what was counted on the way."""

    tables: dict[str, pd.DataFrame]  # {query set: long per-query table}
    num_queries: dict[str, int]  # {query set: judged queries}
    notes: list[str] = field(default_factory=list)  # what was counted as 0 or excluded
    ties: dict[tuple[str, int], int] = field(default_factory=dict)
    """{(system, seed): scores of judged queries that another document has as well}."""


@dataclass(frozen=True)
class RunComparison:
    """Systems given as runs, and the analysis of their columns."""

    systems: Systems
    qrels: Mapping[str, Path]  # {query set: its judgments}
    collections: Mapping[str, tuple[str, ...]]  # {collection: its query sets}
    measured: Measured
    analysis: Analysis

    @property
    def sweep(self) -> Sweep:
        """The systems in the report's terms."""
        return self.analysis.sweep

    @property
    def single(self) -> list[str]:
        """Systems with one run, about whose training nothing is known."""
        return [
            name
            for name, runs in self.systems.items()
            if len(runs) == 1 and name not in self.sweep.deterministic
        ]

    @property
    def tied(self) -> int:
        """Tied scores of all runs."""
        return sum(self.measured.ties.values())


def compare_runs(
    systems: Systems,
    qrels: Path | Mapping[str, Path],
    *,
    baselines: Sequence[Slot] = (),
    measures: Sequence[str] = MEASURES,
    alpha: float = 0.05,
    correction: str = "holm",
    margin: float = ROPE,
    deterministic: Collection[str] = (),
    apart: bool = False,
    ties: str = "doc_id",
) -> RunComparison:
    """Measure every run on the judged queries and test every system against its baselines.

    Several query sets are pooled as one collection; with `apart` each is a collection of its own,
    except that `dl/2019` and `dl/2020` are both sets of `dl`. The first system is the baseline
    unless others are named. `deterministic` names systems (BM25) whose one run is declared to be
    the only one there is; `margin` is a difference that practice does not notice; `ties` is one of
    `TIES`.
    """
    if ties not in TIES:
        raise unknown("rule for ties", ties, TIES)
    sets = {qrels.name: qrels} if isinstance(qrels, Path) else dict(qrels)
    slots = tuple(baselines) or (next(iter(systems)),)
    _check_names(slots, deterministic, systems)
    collections = _collections(list(sets), apart=apart)
    wanted = _measures(measures, list(collections))
    of_set = {one: wanted[name] for name, own in collections.items() for one in own}
    measured = _measure(systems, sets, of_set, ties)
    _check_sizes(measured, collections, sets)
    columns = {
        name: tuple(f"{name} {one}" if len(collections) > 1 else one for one in own)
        for name, own in wanted.items()
    }
    every = tuple(column for own in columns.values() for column in own)
    sweep = Sweep(
        folder=Path(),
        name="comparison",
        question=f"Which of {len(systems)} systems is better?",
        split=_split(sets, collections, measured),
        measures=every,
        primary=every[0],
        slots=slots,
        deterministic=tuple(name for name in systems if name in deterministic),
        alpha=alpha,
        correction=correction,
        rope=margin,
        cells=tuple(Cell(name, name, "", {}, None, None) for name in systems),
        collections=columns,
        trials=_trials(systems, measured),
        scores=_scores(measured, collections, wanted, columns),
        third_party=True,
        tie_policy=TIES[ties],
    )
    return RunComparison(systems, sets, collections, measured, analyse(sweep))


def _trials(systems: Systems, measured: Measured) -> pd.DataFrame:
    """A row for every run, as for a finished trial."""
    runs = [(name, seed) for name in systems for seed in range(1, len(systems[name]) + 1)]
    return pd.DataFrame(
        [(name, seed, "done", measured.ties[name, seed]) for name, seed in runs],
        columns=["cell", "seed", "status", "ties"],
    )


def _check_names(slots: Sequence[Slot], deterministic: Collection[str], systems: Systems) -> None:
    for slot in slots:
        for name in [slot] if isinstance(slot, str) else [*slot.values(), *slot]:
            if name not in systems:
                raise unknown("baseline", name, systems)
    for name in deterministic:
        if name not in systems:
            raise unknown("deterministic system", name, systems)


def _check_sizes(
    measured: Measured, collections: Mapping[str, Sequence[str]], qrels: Mapping[str, Path]
) -> None:
    for sets in collections.values():
        count = sum(measured.num_queries[name] for name in sets)
        if count < 2:
            where = ", ".join(str(qrels[name]) for name in sets)
            raise BadInput(f"{where}: a test needs two judged queries or more, found {count}")


def _collections(sets: Sequence[str], *, apart: bool) -> dict[str, tuple[str, ...]]:
    """{collection: its query sets}: all pooled, or by the part of the name before a slash."""
    if not apart:
        return {"": tuple(sets)}
    collections: dict[str, tuple[str, ...]] = {}
    for name in sets:
        collection = name.rpartition("/")[0] or name
        collections[collection] = (*collections.get(collection, ()), name)
    return collections


def _measures(measures: Sequence[str], collections: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """{collection: its measures}; `NAME=MEASURE` is for one collection, `MEASURE` for all."""
    wanted: dict[str, list[str]] = {name: [] for name in collections}
    for text in measures:
        collection, equals, measure = text.partition("=")
        if not equals or "(" in collection:  # the = of a setting: AP(rel=2)
            collection, equals, measure = "", "", text
        parse_measure(measure)
        if equals and collection not in wanted:
            raise unknown("collection of a measure", collection, wanted)
        for name in [collection] if equals else wanted:
            wanted[name].append(measure)
    without = [name for name, own in wanted.items() if not own]
    if without:
        raise BadInput(f"every collection needs a measure, {', '.join(without)} has none")
    return {name: tuple(own) for name, own in wanted.items()}


def _split(
    qrels: Mapping[str, Path], collections: Mapping[str, Sequence[str]], measured: Measured
) -> str:
    """The query sets with their sizes: `dl19 (43) + dl20 (45)` is pooled, a comma separates."""
    if len(qrels) == 1:
        return next(iter(qrels.values())).name
    return ", ".join(
        " + ".join(f"{name} ({measured.num_queries[name]})" for name in sets)
        for sets in collections.values()
    )


def _scores(
    measured: Measured,
    collections: Mapping[str, Sequence[str]],
    measures: Mapping[str, Sequence[str]],
    columns: Mapping[str, Sequence[str]],
) -> pd.DataFrame:
    """All values, a measure under the name of its column; pooled sets keyed by (set, query_id)."""
    parts = []
    for collection, sets in collections.items():
        tables = {name.rpartition("/")[2]: measured.tables[name] for name in sets}
        table = pool_query_sets(tables) if len(sets) > 1 else measured.tables[sets[0]]
        names = dict(zip(measures[collection], columns[collection], strict=True))
        parts.append(table.assign(measure=table["measure"].map(names)))
    return pd.concat(parts, ignore_index=True)


def _measure(
    systems: Systems,
    qrels: Mapping[str, Path],
    measures: Mapping[str, Sequence[str]],
    ties: str,
) -> Measured:
    """Every run on the judged queries of every set; `measures` are those of each set."""
    judged = {name: named_qrels(path) for name, path in qrels.items()}
    for name, wanted in measures.items():
        check_measures(wanted, [judged[name]])
    parts: dict[str, list[pd.DataFrame]] = {name: [] for name in qrels}
    measured = Measured(tables={}, num_queries={name: len(one) for name, one in judged.items()})
    for system, runs in systems.items():
        seen: dict[Path, tuple[int, Run]] = {}
        for seed, files in enumerate(runs, start=1):
            measured.ties[system, seed] = 0
            for path, sets in _sets_of_file(files, list(qrels)):
                run = _read(path, seed, seen, system)
                _check_apart(path, sets, judged)
                own = {name: _ranked(path, run, judged[name], qrels[name]) for name in sets}
                measured.notes += _lost(path, run, {name: judged[name] for name in sets}, own)
                for name, ranked in own.items():
                    measured.ties[system, seed] += _num_tied(ranked, ties)
                    table = per_query(judged[name], _strict(ranked, ties), measures[name])
                    # The split is the same for all sets: they are pooled as one.
                    parts[name].append(table.assign(cell=system, seed=seed, split="judged"))
    measured.tables = {name: pd.concat(one, ignore_index=True) for name, one in parts.items()}
    return measured


def _sets_of_file(files: RunFiles, names: list[str]) -> Iterator[tuple[Path, list[str]]]:
    """Every file of a training run once, with the query sets it answers."""
    if isinstance(files, Path):
        yield files, names
        return
    for path in dict.fromkeys(files[name] for name in names):
        yield path, [name for name in names if files[name] == path]


def _read(path: Path, seed: int, seen: dict[Path, tuple[int, Run]], system: str) -> Run:
    """The run of a file; refused if another training run of the system has the same content."""
    run = dict(named_run(path))
    for other, (earlier, content) in seen.items():
        if earlier != seed and run == content:
            raise BadInput(
                f"the runs of a system must differ, but {path} has the content of {other} "
                f"({system}): a copy is no further training run"
            )
    seen[path] = (seed, run)
    return run


def _check_apart(path: Path, sets: Sequence[str], judged: Mapping[str, Qrels]) -> None:
    """One file for several sets is only right where no query id stands in two of them."""
    owner: dict[str, str] = {}
    for name in sets:
        for query_id in judged[name]:
            if query_id in owner:
                raise BadInput(
                    f"{path}: one run file for several query sets needs different query ids, but "
                    f"{owner[query_id]} and {name} both judge {query_id}; give one file per set, "
                    "with {set} in its name"
                )
            owner[query_id] = name


def _ranked(path: Path, run: Run, judged: Qrels, qrels: Path) -> Run:
    ranked = {query_id: run[query_id] for query_id in judged if query_id in run}
    if not ranked:
        raise BadInput(
            f"{path}: a run must rank queries that are judged; {qrels} judges none of its "
            f"{len(run)}"
        )
    return ranked


def _strict(ranked: Run, ties: str) -> Run:
    """Tools break ties each in their own way: the order by the rule becomes the score."""
    return {
        query_id: {doc_id: float(-rank) for rank, doc_id in enumerate(_ordered(scores, ties))}
        for query_id, scores in ranked.items()
    }


def _ordered(scores: Mapping[str, float], ties: str) -> list[str]:
    if ties == "trec_eval":
        by_id = sorted(scores, reverse=True)
    else:
        by_id = sorted(scores)
    return sorted(by_id, key=lambda doc_id: -_compared_score(scores[doc_id], ties))


def _compared_score(score: float, ties: str) -> float:
    """trec_eval keeps scores in single precision: 10 and 10.00000001 tie."""
    return float(np.float32(score)) if ties == "trec_eval" else score


def _num_tied(ranked: Run, ties: str) -> int:
    return sum(
        len(one) - len({_compared_score(score, ties) for score in one.values()})
        for one in ranked.values()
    )


def _lost(
    path: Path, run: Run, judged: Mapping[str, Qrels], ranked: Mapping[str, Run]
) -> Iterator[str]:
    """What was counted as 0, per set, and what was excluded."""
    for name, queries in judged.items():
        where = f" of {name}" if len(judged) > 1 else ""
        if missing := len(queries) - len(ranked[name]):
            yield (
                f"{path.name}: {missing} judged {_queries(missing)}{where} without a result, "
                "counted as 0."
            )
    if extra := len(set(run).difference(*judged.values())):
        yield f"{path.name}: {extra} ranked {_queries(extra)} without a judgment, excluded."


def _queries(count: int) -> str:
    return "query" if count == 1 else "queries"
