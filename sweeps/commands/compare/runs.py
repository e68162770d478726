"""The report's analysis of a third party's systems, given as runs or as per-query values.

A system is a cell; its k-th training run is its k-th seed. A column is a measure on a collection,
and a collection is a query set or several pooled sets.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import pandas as pd

from rank_core.data.named_files import named_qrels
from rank_core.errors import BadInput, unknown
from rank_core.evaluate import parse_measure, per_query
from rank_core.measure_check import check_measures
from rank_core.records import Qrels, Run
from rank_core.stats.baselines import Slot
from rank_core.stats.matrix import QUERIES_THAT_PROVE
from rank_core.stats.pooling import pool_query_sets
from sweeps.commands.compare.sources import (
    Source,
    TrainingRun,
    judgments_of,
    measure_key,
    training_runs,
)
from sweeps.report.analysis import Analysis, analyse
from sweeps.report.load import COUNTS, ListReader, Sweep
from sweeps.report.notation import TIE_POLICY, names_text
from sweeps.store.sweep_file import ROPE, Cell

MEASURES = ("nDCG@10", "RR@10")
"""Default measures of runs."""
_MOST_MEASURES, _TAKEN = 6, 4
"""Of tables with more measures than the first number, so many are shown."""

TIES = {
    "doc_id": TIE_POLICY,
    "trec_eval": "equal scores rank by descending document id, as trec_eval sorts them",
}
"""{rule for equal scores of a run: its description}."""
GIVEN = "as in the given values"
"""The unknown tie policy of per-query values."""

RunSource: TypeAlias = Source | TrainingRun | Mapping[str, Source]
"""One training run, or several of one system: on all query sets, or {query set: source}."""

Systems = Mapping[str, Sequence[RunSource]]
"""{system: its training runs}; the k-th is the same training run on every query set."""

Judgments: TypeAlias = str | Path | pd.DataFrame | Qrels

LoadedRun = Mapping[str, TrainingRun]
"""{query set: a training run on it}; "" for all sets."""


@dataclass
class Measured:
    """The values of every query set, with counts of queries and ties."""

    tables: dict[str, pd.DataFrame]  # {query set: long per-query table}
    num_queries: dict[str, int]  # {query set: judged queries}
    notes: list[str] = field(default_factory=list)  # on queries counted as 0 or excluded
    ties: dict[tuple[str, int], int] = field(default_factory=dict)
    """{(system, seed): tied scores of judged queries}."""


@dataclass(frozen=True)
class RunComparison:
    """Systems given as runs or values, and the analysis of their columns."""

    systems: Mapping[str, Mapping[int, LoadedRun]]  # {system: {seed: its training run}}
    qrels: Mapping[str, str]  # {query set: where its judgments are}; empty for values without
    collections: Mapping[str, tuple[str, ...]]  # {collection: its query sets}
    measured: Measured
    analysis: Analysis

    @property
    def sweep(self) -> Sweep:
        """The systems in the report's terms."""
        return self.analysis.sweep

    @property
    def single(self) -> list[str]:
        """Trained systems with one run, whose seed variance is unknown."""
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
    qrels: Judgments | Mapping[str, Judgments] | None = None,
    *,
    baselines: Sequence[Slot] = (),
    measures: Sequence[str] = (),
    alpha: float = 0.05,
    correction: str = "holm",
    margin: float = ROPE,
    deterministic: Collection[str] = (),
    paired_seeds: bool = False,
    apart: bool = False,
    ties: str = "doc_id",
    digits: int = 3,
    tracking_uri: str | None = None,
    command: str = "",
) -> RunComparison:
    """Test every system against its baselines, on the judged queries or on those of its values.

    `qrels` are needed for runs; several query sets are pooled as one collection; with `apart` each
    is a collection of its own, except that `dl/2019` and `dl/2020` are both sets of `dl`. The first
    system is the baseline unless others are named. `deterministic` names systems (BM25) that can
    have only one run; with `paired_seeds` run i of every other system shares its randomness with
    run i of the others. `margin` is a difference without practical importance; `ties` is one of
    `TIES`; `digits` are those of tables; `measures` default to `MEASURES`, or to those of the
    values; `command` is stored with the results.
    """
    slots = tuple(baselines) or (next(iter(systems)),)
    _check_names(slots, deterministic, systems, ties)
    loaded = {name: _loaded(name, runs, tracking_uri) for name, runs in systems.items()}
    _check_separate(systems)
    fixed = {name for name, runs in loaded.items() if _is_deterministic(runs)}.union(deterministic)
    _check_paired(loaded, fixed, paired_seeds)
    judged, files = _judgments(qrels)
    parts = _parts(loaded)
    collections = _collections(list(judged) or [""], apart=apart)
    measures_of = _measures(measures or _shared_measures(parts), list(collections))
    measured = _measure(loaded, judged, collections, measures_of, ties)
    _check_sizes(measured, collections, files)
    measured.notes += _left_measures(parts, measures, measures_of)
    measured.notes += _pairs(loaded, fixed) if paired_seeds else ()
    sweep = _as_sweep(
        loaded,
        files,
        collections,
        measures_of,
        measured,
        judged,
        slots=slots,
        deterministic=tuple(name for name in systems if name in fixed),
        alpha=alpha,
        correction=correction,
        rope=margin,
        paired_seeds=paired_seeds,
        digits=digits,
        command=command,
        ties=ties,
    )
    return RunComparison(loaded, files, collections, measured, analyse(sweep))


def _as_sweep(
    systems: Mapping[str, Mapping[int, LoadedRun]],
    qrels: Mapping[str, str],
    collections: Mapping[str, Sequence[str]],
    measures_of: Mapping[str, Sequence[str]],
    measured: Measured,
    judged: Mapping[str, Qrels],
    *,
    ties: str,
    **settings: Any,
) -> Sweep:
    """The systems in the report's terms; `settings` are fields of a sweep."""
    columns = _columns(measures_of)
    every = tuple(column for own in columns.values() for column in own)
    ranked = any(part.ranking for part in _parts(systems))
    return Sweep(
        folder=Path(),
        name="comparison",
        question=_question(list(systems), settings["slots"][0]),
        split=_split(qrels, collections, measured),
        measures=every,
        primary=every[0],
        cells=tuple(Cell(name, name) for name in systems),
        collections=columns,
        trials=_trials(systems, measured if ranked else None),
        scores=_scores(measured, collections, measures_of, columns),
        third_party=True,
        tie_policy=TIES[ties] if ranked else GIVEN,
        lists=_lists(systems, qrels, ties),
        qrels=next(iter(judged.values())) if len(judged) == 1 else None,
        notes=tuple(measured.notes),
        **settings,
    )


def _lists(
    systems: Mapping[str, Mapping[int, LoadedRun]], qrels: Mapping[str, str], ties: str
) -> dict[tuple[str, int], ListReader]:
    """{(system, seed): its ranked lists}, of runs on a single query set, read again."""

    def read(ranking: Callable[[], Run], queries: Collection[str]) -> dict[str, list[str]]:
        query_ids = set(queries)
        return {
            query_id: _ordered(scores, ties)
            for query_id, scores in ranking().items()
            if query_id in query_ids
        }

    return {
        (system, seed): partial(read, run[""].ranking)
        for system, runs in systems.items()
        for seed, run in runs.items()
        if len(qrels) == 1 and "" in run and run[""].ranking is not None
    }


def _question(names: Sequence[str], baseline: Slot) -> str:
    """The title of the page."""
    if not isinstance(baseline, str):
        return "Which systems are better than their baselines?"
    others = [name for name in names if name != baseline]
    if len(others) == 1:
        return f"Is {others[0]} better than {baseline}?"
    return f"Which systems are better than {baseline}?"


def _parts(systems: Mapping[str, Mapping[int, LoadedRun]]) -> list[TrainingRun]:
    return [part for runs in systems.values() for run in runs.values() for part in run.values()]


def _loaded(
    system: str, sources: Sequence[RunSource], tracking_uri: str | None
) -> dict[int, LoadedRun]:
    """{seed: training run} of a system; runs without seeds of their own are numbered from 1."""
    runs: list[LoadedRun] = []
    for number, source in enumerate(sources, start=1):
        where = f"run {number} of {system}"
        if not isinstance(source, Mapping):
            runs += [{"": run} for run in _runs_of(source, where, tracking_uri)]
            continue
        by_set = {
            name: _runs_of(part, f"{where} on {name}", tracking_uri)
            for name, part in source.items()
        }
        counts = {name: len(own) for name, own in by_set.items()}
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{count} for {name}" for name, count in counts.items())
            raise BadInput(f"every training run must be on every query set; {where} has {listed}")
        runs += [dict(zip(by_set, own, strict=True)) for own in zip(*by_set.values(), strict=True)]
    places = Counter(tuple(part.where for part in run.values()) for run in runs)
    for place, count in places.items():
        if count > 1:
            raise BadInput(
                f"the runs of a system must differ, but {system} has {place[0]} {count} times: a "
                "copy is not another training run"
            )
    seeds = [next(iter(run.values())).seed for run in runs]
    if None in seeds or len(set(seeds)) < len(seeds):
        return dict(enumerate(runs, start=1))
    return dict(sorted(zip(cast(list[int], seeds), runs, strict=True), key=lambda item: item[0]))


def _check_separate(systems: Systems) -> None:
    """A file belongs to one system; equal contents of two files are a finding, with p = 1."""
    owner: dict[tuple[str, Path], str] = {}
    for system, runs in systems.items():
        for run in runs:
            for name, source in (run if isinstance(run, Mapping) else {"": run}).items():
                if not isinstance(source, str | Path):
                    continue
                other = owner.setdefault((name, Path(source).resolve()), system)
                if other != system:
                    raise BadInput(f"{other} and {system} both contain {source}")


def _runs_of(
    source: Source | TrainingRun, where: str, tracking_uri: str | None
) -> list[TrainingRun]:
    """The runs of the one system that a source holds."""
    if isinstance(source, TrainingRun):
        return [source]
    systems = training_runs(source, where=where, tracking_uri=tracking_uri)
    if len(systems) > 1:
        place = where if isinstance(source, pd.DataFrame) else source
        raise BadInput(
            f"{place} holds {len(systems)} systems ({', '.join(systems)}); one of them is "
            f"{place}:{next(iter(systems))}"
        )
    return next(iter(systems.values()))


def _is_deterministic(runs: Mapping[int, LoadedRun]) -> bool:
    return len(runs) == 1 and all(
        part.deterministic for run in runs.values() for part in run.values()
    )


def _judgments(
    qrels: Judgments | Mapping[str, Judgments] | None,
) -> tuple[dict[str, Qrels], dict[str, str]]:
    """{query set: judgments} and {query set: where they are}; empty without any."""
    if qrels is None:
        return {}, {}
    if isinstance(qrels, str | Path):
        qrels = {Path(qrels).name: qrels}
    elif isinstance(qrels, pd.DataFrame) or _is_qrels(qrels):
        qrels = {"judgments": cast(Judgments, qrels)}
    read: dict[str, Qrels] = {}
    places: dict[str, str] = {}
    for name, judgments in cast(Mapping[str, Judgments], qrels).items():
        if isinstance(judgments, str | Path):
            read[name], places[name] = named_qrels(judgments), str(judgments)
        else:
            read[name] = (
                judgments_of(judgments, name) if isinstance(judgments, pd.DataFrame) else judgments
            )
            places[name] = name
    return read, places


def _is_qrels(qrels: Mapping[str, object]) -> bool:
    """True if a mapping is {query: {document: relevance}}, and not {query set: judgments}."""
    inner = next(iter(qrels.values()), None)
    return isinstance(inner, Mapping) and isinstance(next(iter(inner.values()), None), int)


def _own_queries(parts: Sequence[TrainingRun]) -> Qrels:
    """The queries of values without judgments, treated as judged."""
    for part in parts:
        if part.ranking is not None:
            raise BadInput(
                f"{part.where} is a run and needs judgments: --qrels FILE, qrels= in Python"
            )
    queries = {
        part.where: set(part.values["query_id"]) for part in parts if part.values is not None
    }
    first = parts[0].where
    for where, own in queries.items():
        if not own & queries[first]:
            raise BadInput(f"{first} and {where} share no query id")
    return {query_id: {} for query_id in sorted(set().union(*queries.values()))}


def _shared_measures(parts: Sequence[TrainingRun]) -> list[str]:
    """The measures that all tables of values have, in their order; `MEASURES` for runs."""
    tables = [part for part in parts if part.values is not None]
    if not tables:
        return list(MEASURES)
    shared = [
        name
        for name in tables[0].measures
        if all(name in part.measures for part in tables) and not name.startswith((COUNTS, "num_"))
    ]
    if len(tables) < len(parts):  # there are runs as well
        shared = [name for name in shared if measure_key(name) == name and _computable(name)]
    if not shared:
        listed = "; ".join(f"{part.where}: {', '.join(part.measures)}" for part in tables[:2])
        raise BadInput(f"all tables need a measure in common, found {listed}")
    return shared if len(shared) <= _MOST_MEASURES else shared[:_TAKEN]


def _computable(name: str) -> bool:
    try:
        parse_measure(name)
    except BadInput:
        return False
    return True


def _left_measures(
    parts: Sequence[TrainingRun], requested: Sequence[str], measures_of: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """A note on measures of the values that are not shown, where no measures were named."""
    measures = next(
        (part.measures for part in parts if part.values is not None and not requested), ()
    )
    left = [name for name in measures if all(name not in own for own in measures_of.values())]
    if left:
        yield f"Measures not shown (--measures): {names_text(left, _TAKEN)}."


def _columns(measures: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """{collection: the names of its columns}."""
    return {
        name: tuple(f"{name} {measure}" if len(measures) > 1 else measure for measure in own)
        for name, own in measures.items()
    }


def _check_paired(
    systems: Mapping[str, Mapping[int, LoadedRun]], deterministic: Collection[str], paired: bool
) -> None:
    """Refuse paired seeds where systems have different seeds."""
    seeds = {name: tuple(runs) for name, runs in systems.items() if name not in deterministic}
    if not paired or not seeds:
        return
    first, *others = seeds
    for name in others:
        if seeds[name] != seeds[first]:
            listed = " and ".join(
                f"{', '.join(map(str, seeds[system]))} of {system}" for system in (first, name)
            )
            raise BadInput(f"paired seeds need the same seeds in every system, got {listed}")


def _pairs(
    systems: Mapping[str, Mapping[int, LoadedRun]], deterministic: Collection[str]
) -> Iterator[str]:
    """A note on the runs that are paired by their places, without seeds of their own."""
    trained = [list(runs.values()) for name, runs in systems.items() if name not in deterministic]
    pairs = [[next(iter(run.values())) for run in runs] for runs in zip(*trained, strict=True)]
    if any(part.seed is None for parts in pairs for part in parts):
        shown = "; ".join(" with ".join(part.name for part in parts) for parts in pairs)
        yield f"Seeds paired: {shown}."


def _trials(
    systems: Mapping[str, Mapping[int, LoadedRun]], measured: Measured | None
) -> pd.DataFrame:
    """A row for every run, as for a finished trial; ties where runs were `measured`."""
    rows = [(name, seed, "done") for name, runs in systems.items() for seed in runs]
    trials = pd.DataFrame(rows, columns=["cell", "seed", "status"])
    if measured is None:
        return trials
    return trials.assign(ties=[measured.ties[name, seed] for name, seed, _ in rows])


def _check_names(
    slots: Sequence[Slot], deterministic: Collection[str], systems: Systems, ties: str
) -> None:
    if ties not in TIES:
        raise unknown("rule for ties", ties, TIES)
    for slot in slots:
        for name in [slot] if isinstance(slot, str) else [*slot.values(), *slot]:
            if name not in systems:
                raise unknown("baseline", name, systems)
    for name in deterministic:
        if name not in systems:
            raise unknown("deterministic system", name, systems)


def _check_sizes(
    measured: Measured, collections: Mapping[str, Sequence[str]], qrels: Mapping[str, str]
) -> None:
    for sets in collections.values():
        count = sum(measured.num_queries[name] for name in sets)
        if count < 2:
            where = ", ".join(qrels.get(name, "the given values") for name in sets)
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
    measures_of: dict[str, list[str]] = {name: [] for name in collections}
    for text in measures:
        collection, equals, measure = text.partition("=")
        if not equals or "(" in collection:  # the = of a setting: AP(rel=2)
            collection, equals, measure = "", "", text
        measure = measure_key(measure)  # of NDCG@10, of trec_eval's ndcg_cut_10
        if equals and collection not in measures_of:
            raise unknown("collection of a measure", collection, measures_of)
        for name in [collection] if equals else measures_of:
            measures_of[name].append(measure)
    without = [name for name, own in measures_of.items() if not own]
    if without:
        raise BadInput(f"every collection needs a measure, {', '.join(without)} has none")
    return {name: tuple(dict.fromkeys(own)) for name, own in measures_of.items()}


def _split(
    qrels: Mapping[str, str], collections: Mapping[str, Sequence[str]], measured: Measured
) -> str:
    """The query sets with their sizes: `dl19 (43) + dl20 (45)` are pooled; a comma separates
    collections."""
    if len(qrels) < 2:
        return next(iter(qrels), "the given values")
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
    systems: Mapping[str, Mapping[int, LoadedRun]],
    qrels: Mapping[str, Qrels],
    collections: Mapping[str, Sequence[str]],
    measures_of: Mapping[str, Sequence[str]],
    ties: str,
) -> Measured:
    """The values of every training run on the judged queries of every set, or on the queries of the
    values without judgments; `wanted` are the measures of each collection."""
    parts = _parts(systems)
    judged = dict(qrels) or {"": _own_queries(parts)}
    measures = {
        query_set: measures_of[name] for name, sets in collections.items() for query_set in sets
    }
    if any(part.ranking for part in parts):
        for name, names in measures.items():
            check_measures(names, [judged[name]])
    tables: dict[str, list[pd.DataFrame]] = {name: [] for name in judged}
    measured = Measured(tables={}, num_queries={name: len(qs) for name, qs in judged.items()})
    ranked_anywhere: set[str] = set()
    lost: dict[str, list[str]] = {}  # {note: the runs it is about}
    for system, runs in systems.items():
        seen: dict[str, tuple[int, Mapping[Any, Any]]] = {}
        for seed, run in runs.items():
            measured.ties[system, seed] = 0
            for part, sets in _sets_of(run, list(judged)):
                _check_apart(part.where, sets, judged)
                own = {name: judged[name] for name in sets}
                ranking = _differing(part, seed, seen, system)
                for name, queries in own.items():
                    if ranking is None:
                        table = _given_values(part, queries, measures[name], strict=not qrels)
                    else:
                        ranked = _ranked(part.where, ranking, queries, name)
                        measured.ties[system, seed] += _num_tied(ranked, ties)
                        table = per_query(queries, _strict(ranked, ties), measures[name])
                    # The split is the same for all sets: they are pooled as one.
                    tables[name].append(table.assign(cell=system, seed=seed, split="judged"))
                answered = set(ranking or () if part.values is None else part.values["query_id"])
                ranked_anywhere |= answered
                for note in _lost(answered, own):
                    lost.setdefault(note, []).append(part.name)
    for note, names in lost.items():
        whose = f"all {len(parts)} runs" if len(names) == len(parts) else names_text(names)
        measured.notes.append(f"{whose}: {note}")
    measured.notes += _never_ranked(ranked_anywhere, judged)
    measured.tables = {name: pd.concat(parts, ignore_index=True) for name, parts in tables.items()}
    return measured


def _given_values(
    part: TrainingRun, judged: Qrels, measures: Sequence[str], *, strict: bool
) -> pd.DataFrame:
    """The values of the judged queries, sorted by query, measure by measure."""
    assert part.values is not None
    values = part.values[part.values["query_id"].isin(judged)]
    wide = values.pivot(index="query_id", columns="measure", values="value")
    if not len(wide):
        raise BadInput(f"{part.where}: none of its queries is judged")
    if absent := sorted(judged.keys() - set(wide.index)):
        if strict:
            raise BadInput(
                f"{part.where} lacks {len(absent)} of {len(judged)} {_queries(len(judged))} that "
                f"others have: {', '.join(absent[:5])}{', ...' if len(absent) > 5 else ''}; with "
                "--qrels judged queries without values count 0"
            )
        wide = pd.concat([wide, pd.DataFrame(0.0, index=absent, columns=wide.columns)])
    wide = wide.sort_index()
    tables = []
    for measure in measures:
        key = measure_key(measure)
        if key not in wide:
            raise unknown(f"measure of {part.where}", measure, map(str, wide.columns))
        column = wide[key]
        for query_id in column.index[column.isna()][:1]:
            raise BadInput(f"{part.where}: query {query_id!r} has no {measure}, others have")
        tables.append(
            pd.DataFrame({"query_id": wide.index, "measure": measure, "value": column.to_numpy()})
        )
    return pd.concat(tables, ignore_index=True)


def _sets_of(run: LoadedRun, names: list[str]) -> Iterator[tuple[TrainingRun, list[str]]]:
    """Every part of a training run once, with its query sets."""
    if "" in run and names != [""]:
        yield run[""], names
        return
    missing = [name for name in names if name not in run]
    if missing:
        raise BadInput(f"every training run must be on every query set, found none on {missing[0]}")
    for where in dict.fromkeys(run[name].where for name in names):
        sets = [name for name in names if run[name].where == where]
        yield run[sets[0]], sets


def _differing(
    part: TrainingRun, seed: int, seen: dict[str, tuple[int, Mapping[Any, Any]]], system: str
) -> Run | None:
    """The ranking, None for values; refused if another run of the system has the same content."""
    ranking = None if part.ranking is None else part.ranking()
    content = _by_query(part) if ranking is None else ranking
    for other, (earlier, same) in seen.items():
        if earlier != seed and content and content == same:
            raise BadInput(
                f"the runs of a system must differ, but {part.where} has the content of {other} "
                f"({system}): a copy is not another training run"
            )
    seen[part.where] = (seed, content)
    return ranking


def _by_query(part: TrainingRun) -> dict[Any, float]:
    """{(query, measure): value}; empty where equal values do not prove that a run was copied."""
    assert part.values is not None
    few = part.values["query_id"].nunique() < QUERIES_THAT_PROVE
    if few or part.values["value"].nunique() < 2:
        return {}
    return dict(part.values.set_index(["query_id", "measure"])["value"])


def _check_apart(where: str, sets: Sequence[str], judged: Mapping[str, Qrels]) -> None:
    """Refuse one file for several sets that share a query id."""
    owner: dict[str, str] = {}
    for name in sets:
        for query_id in judged[name]:
            if query_id in owner:
                raise BadInput(
                    f"{where}: one file for several query sets needs different query ids, but "
                    f"{owner[query_id]} and {name} both judge {query_id}; use a file per set, "
                    f"with {set} in its name"
                )
            owner[query_id] = name


def _ranked(where: str, run: Run, judged: Qrels, qrels: str) -> Run:
    ranked = {query_id: run[query_id] for query_id in judged if query_id in run}
    if not ranked:
        raise BadInput(
            f"{where}: a run must rank queries that are judged; {qrels} judges none of its "
            f"{len(run)}"
        )
    if not any(judged[query_id].keys() & scores.keys() for query_id, scores in ranked.items()):
        raise BadInput(
            f"none of the documents in {where} is judged in {qrels}: do the document ids match?"
        )
    return ranked


def _strict(ranked: Run, ties: str) -> Run:
    """The run with ranks for scores: evaluation tools break ties in different ways."""
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
        len(scores) - len({_compared_score(score, ties) for score in scores.values()})
        for scores in ranked.values()
    )


def _lost(answered: Collection[str], judged: Mapping[str, Qrels]) -> Iterator[str]:
    """The notes on queries of a run that were counted as 0, per set, or excluded."""
    for name, queries in judged.items():
        of_set = f" of {name}" if len(judged) > 1 else ""
        if missing := len(queries.keys() - answered):
            yield f"{missing} judged {_queries(missing)}{of_set} without a result, counted as 0."
    if extra := len(set(answered).difference(*judged.values())):
        yield f"{extra} ranked {_queries(extra)} without a judgment, excluded."


def _never_ranked(ranked: Collection[str], judged: Mapping[str, Qrels]) -> Iterator[str]:
    """A note per set on queries that no run has, most often those of another split."""
    for name, queries in judged.items():
        if missing := len(queries.keys() - ranked):
            of_set = f" of {name}" if len(judged) > 1 else ""
            yield (
                f"No run has {missing} of the {len(queries)} judged queries{of_set}: the zeros "
                "shrink all differences. If these queries are of another split, name the "
                "judgments of this split alone (of a sweep: --qrels DIR/qrels/test.qrels)."
            )


def _queries(count: int) -> str:
    return "query" if count == 1 else "queries"
