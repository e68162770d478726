"""A third party's systems, given as runs or as per-query values, in the report's terms.

A system is a cell; its k-th training run is its k-th seed. A column is a measure on one query set,
or, of several, the mean over them.
"""

import os
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
import pandas as pd

from rank_core.data.judged import (
    SEEN,
    depth_note,
    judged_depth,
    num_without_relevant,
    without_relevant_note,
)
from rank_core.data.named_files import named_qrels
from rank_core.data.own_documents import own_ids
from rank_core.data.readers import dictionary_qrels, frame_qrels
from rank_core.data.trec import RankedFile, order_notes, unicode_text
from rank_core.errors import BadInput, unknown
from rank_core.evaluate import check_measures, mean_values, per_query
from rank_core.files import file_sha256, shown_path
from rank_core.records import Qrels, Run
from rank_core.stats.matrix import identical_seeds
from sweeps.store.sweep_file import Cell, SweepFile
from sweeps.store.test_options import USUAL, TestOptions
from sweeps.systems.clusters import (
    ClusterOf,
    Queries,
    check_clusters,
    clusters_from,
    query_keys,
)
from sweeps.systems.load import Sweep
from sweeps.systems.sources import (
    Source,
    TrainingRun,
    measure_key,
    parsed,
    training_runs,
)
from sweeps.systems.system import ListReader
from sweeps.terminal.notation import TIE_POLICY, names_text, number

MEASURES = ("nDCG@10", "RR@10")
"""Default measures of runs."""
COUNTS = ("Num", "num_")  # the names of measures that are no share, such as NumRet, begin so
_PLAINLY = 30
"""Two runs of a measure whose values differ by this factor may be on two scales."""
_MOST_MEASURES, _TAKEN = 6, 4  # of tables with more measures, so many are shown

_LISTED = 10  # systems of a file in a message
_MOVED = 6  # means that ties move in a note

DOC_ID, TREC_EVAL = "doc_id", "trec_eval"
TIES = {
    TREC_EVAL: "equal scores rank by descending document id, as trec_eval sorts them",
    DOC_ID: TIE_POLICY,
}
"""{rule for equal scores of a run: its description}, the default first."""
MEAN = "mean"  # the name of the mean over several query sets
GIVEN = "as in the given values"  # the unknown tie policy of per-query values

RunSource: TypeAlias = Source | TrainingRun | Mapping[str, Source]
"""One training run, or several of one system: on all query sets, or {query set: source}."""

Systems = Mapping[str, Sequence[RunSource]]
"""{system: its training runs}; the k-th is the same training run on every query set."""

Judgments: TypeAlias = str | Path | pd.DataFrame | Qrels
JUDGMENT_KINDS = (
    "judgments must be a file, a data frame with the columns query_id, doc_id, relevance, or "
    "{query_id: {doc_id: relevance}}"
)


@dataclass(frozen=True)
class SystemRun:
    """A training run of a system: {query set: its run on this set}; "" for all sets."""

    system: str
    seed: int
    on: Mapping[str, TrainingRun]  # on some of the query sets where runs are separate

    @property
    def first(self) -> TrainingRun:
        """The run on the first query set, which stands for all."""
        return next(iter(self.on.values()))


@dataclass(frozen=True)
class QuerySet:
    """Queries with their judgments, which are empty for values without judgments."""

    name: str
    qrels: Qrels
    where: str = ""  # of its judgments; "" without any
    columns: Mapping[str, str] = field(default_factory=dict)  # {measure: column of the table}


@dataclass(frozen=True)
class RunSystems:
    """Systems given as runs or values, in the report's terms."""

    runs: Sequence[SystemRun]
    query_sets: Sequence[QuerySet]
    sweep: Sweep
    tie_notes: Sequence[str]  # how many documents tie, and the means by the other rule

    @property
    def seeds(self) -> dict[str, tuple[int, ...]]:
        """{system: its seeds}."""
        return seeds_of(self.runs)

    @property
    def tied(self) -> int:
        """Tied scores of all runs."""
        return int(self.sweep.trials.get("ties", pd.Series([0])).sum())


def run_systems(
    systems: Systems,
    qrels: Judgments | Mapping[str, Judgments] | None = None,
    tests: TestOptions = USUAL,
    *,
    baselines: Sequence[str] = (),
    measures: Sequence[str] = (),
    deterministic: Collection[str] = (),
    digits: int = 3,
    tracking_uri: str | None = None,
    command: str = "",
) -> RunSystems:
    """The systems with their values on the judged queries, or on the queries of their values.

    `qrels` are needed for runs. Several query sets have columns each, and their mean has them; the
    k-th run of a system is the same training run on all, unless it has `separate_runs`. `command`
    is stored; `ranksweep.compare` describes the other options.
    """
    _check_separate(systems)
    by_system = _by_collection(systems, tracking_uri)
    names = [unicode_text("systems", "a name", name) for name in by_system]
    baselines = tuple(baselines) or (names[0],)
    _check_names("baseline", baselines, names)
    _check_names("deterministic system", deterministic, names)
    runs = [run for group in by_system.values() for run in group]
    ties = _rule_for_ties(tests.ties, runs)
    fixed = _fixed(by_system, deterministic)
    sets = _judged(qrels) or _own_queries(runs)
    _check_on_all(by_system, sets, separate_runs=tests.separate_runs)
    sets = _with_columns(sets, measures or _shared_measures(runs))
    scores, trials, notes, moved = _measured(runs, sets, ties)
    alike = dict(_alike(scores, runs))
    notes += [*alike.values(), *([] if measures else _not_shown(runs, sets))]
    notes += _pairs([run for run in runs if run.system not in fixed]) if tests.paired_seeds else []
    about = _described(names, sets, baselines[0], deterministic=fixed, command=command, tests=tests)
    sweep = Sweep(
        about=about,
        records=None,
        slots=baselines,
        deterministic=fixed,
        cells=about.cells,
        trials=trials,
        scores=scores,
        dev_scores=_dev_scores(runs, sets, about.primary),
        look=max(part.look for run in runs for part in run.on.values()),
        tie_policy=TIES[ties] if "ties" in trials else GIVEN,
        digits=digits,
        notes=tuple(notes),
        alike=tuple(alike),
        separate_runs=tuple(names) if tests.separate_runs else _trained(runs),
        **_of_sets(runs, sets, ties),
        **_of_queries(runs, sets, tests.clusters),
    )
    tied = int(trials.get("ties", pd.Series([0])).sum())
    return RunSystems(runs, sets, sweep, tie_notes(tied, ties, moved, digits))


def _described(
    names: Sequence[str], sets: Sequence[QuerySet], baseline: str, **options: Any
) -> SweepFile:
    """What a sweep would have in its file."""
    split, measures = sets[0].name or "the given values", (*sets[0].columns.values(),)
    if len(sets) > 1:
        split = ", ".join(f"{one.name} ({len(one.qrels)})" for one in sets)
        measures = tuple(name for mean, parts in _means(sets).items() for name in (mean, *parts))
    return SweepFile(
        sweep="comparison",
        question=f"{_asked(names, baseline)} than {baseline}?",
        split=split,
        measures=measures,
        primary=measures[0],
        baseline=baseline,
        cells=tuple(Cell(name, name) for name in names),
        interpolate="none",
        **options,
    )


def _dev_scores(runs: Sequence[SystemRun], sets: Sequence[QuerySet], primary: str) -> pd.DataFrame:
    """Their values of the primary measure on dev, where all are of sweeps that have it on the same
    queries; empty elsewhere, so that the reported queries choose."""
    key = next(iter(sets[0].columns))
    tables, queries = [], set()
    for run in runs:
        part = run.on.get("")
        if part is None or part.dev is None:
            return pd.DataFrame()
        rows = part.dev[part.dev["measure"] == key]
        if len(rows):
            queries.add(frozenset(rows["query_id"]))
            tables.append(rows.assign(cell=run.system, seed=run.seed, split="dev", measure=primary))
    return pd.concat(tables, ignore_index=True) if len(queries) == 1 else pd.DataFrame()


def _means(sets: Sequence[QuerySet]) -> dict[str, tuple[str, ...]]:
    """{mean of a measure over the query sets: its columns}."""
    return {f"{MEAN} {key}": tuple(one.columns[key] for one in sets) for key in sets[0].columns}


def _of_sets(runs: Sequence[SystemRun], sets: Sequence[QuerySet], ties: str) -> dict[str, Any]:
    """What a sweep has of its query sets: collections, judgments and ranked lists."""
    facts: dict[str, Any] = {"collections": {one.name: (*one.columns.values(),) for one in sets}}
    if len(sets) > 1:
        facts["means"] = _means(sets)
    elif sets[0].where:
        facts |= {"lists": _lists(runs, ties), "qrels": sets[0].qrels}
    return facts


def _of_queries(
    runs: Sequence[SystemRun], sets: Sequence[QuerySet], given: str | ClusterOf
) -> dict[str, Any]:
    """The clusters of the queries, those that share relevant documents, and the keys of those that
    several collections share."""
    queries = {}
    for one in sets:
        parts = (run.on.get(one.name, run.on.get("")) for run in runs)
        known = next((part.queries for part in parts if part and part.queries), Queries())
        judged = one.qrels
        if not one.where:  # values, of which a sweep has the judgments
            judged = {query_id: known.qrels.get(query_id, {}) for query_id in one.qrels}
        queries[one.name] = replace(known, qrels=judged if any(judged.values()) else {})
    facts: dict[str, Any] = {
        "sharing": {name: stored.sharing for name, stored in queries.items()},
        "query_keys": query_keys(queries),
    }
    if given:
        facts["clusters"] = clusters_from(given, queries)
        check_clusters(facts["clusters"], {one.name: [*one.qrels] for one in sets})
    return facts


def _by_collection(systems: Systems, tracking_uri: str | None) -> dict[str, list[SystemRun]]:
    """{system: its runs}, those of sweeps by seed where a system is given on several collections,
    of which a seed may lack some."""
    by_system = {name: _loaded(name, sources, tracking_uri) for name, sources in systems.items()}
    if len(by_system) < 2:
        raise BadInput(
            f"a comparison needs two systems or more, got {', '.join(systems) or 'none'}"
        )
    parts = {
        system: [part for run in runs for part in run.on.values()]
        for system, runs in by_system.items()
    }
    if all(len({part.collection for part in of_system} - {""}) < 2 for of_system in parts.values()):
        return by_system
    merged: dict[str, list[SystemRun]] = {}
    for system, of_system in parts.items():
        seeds: dict[int, dict[str, TrainingRun]] = {}
        for part in of_system:
            if not part.collection or part.seed is None:
                raise BadInput(
                    f"{part.where} is of no sweep; where sweeps are on several collections, all "
                    "systems must be cells of sweeps"
                )
            on = seeds.setdefault(part.seed, {})
            if part.collection in on:
                other = on[part.collection].where
                raise BadInput(f"{other} and {part.where} are both on {part.collection}")
            on[part.collection] = part
        merged[system] = [SystemRun(system, seed, seeds[seed]) for seed in sorted(seeds)]
    return merged


def _trained(runs: Sequence[SystemRun]) -> tuple[str, ...]:
    """The systems that sweeps trained on each of several collections."""
    return tuple(dict.fromkeys(run.system for run in runs if not _is_one_run(run)))


def _is_one_run(run: SystemRun) -> bool:
    """True where a seed has the same weights on every collection: it was trained on one of them at
    most."""
    parts = run.on.values()
    if all(part.deterministic for part in parts):
        return True
    return sum(part.trained for part in parts) < 2 and len({part.weights for part in parts}) == 1


def _check_on_all(
    by_system: Mapping[str, Sequence[SystemRun]], sets: Sequence[QuerySet], *, separate_runs: bool
) -> None:
    """Refuse a system without a run on some query set, a run that is not on all of them unless runs
    are separate, and separate runs on a single one."""
    if separate_runs and len(sets) < 2:
        raise BadInput("--separate-runs needs several query sets: --qrels NAME=FILE, repeated")
    for system, runs in by_system.items():
        has = {name for run in runs for name in run.on}
        if lacks := [one.name for one in sets if not has & {"", one.name}]:
            raise BadInput(
                f"every system must be on every collection, but {system} has no run on "
                f"{names_text(lacks)}; it is on {names_text(sorted(has))}"
            )
        for run, one in product(() if separate_runs or _trained(runs) else runs, sets):
            if not {*run.on} & {"", one.name}:
                counts = Counter(name for run in runs for name in run.on)
                listed = ", ".join(f"{counts[one.name]} for {one.name}" for one in sets)
                raise BadInput(
                    f"every training run must be on every collection, but seed {run.seed} of "
                    f"{system} is not on {one.name} (runs: {listed}); where it was trained on each "
                    "collection, --separate-runs (in Python separate_runs=True) takes any number"
                )


def _fixed(
    by_system: Mapping[str, Sequence[SystemRun]], declared: Collection[str]
) -> tuple[str, ...]:
    """The systems without training: declared ones, and those of a sweep that has declared them."""
    return tuple(
        name
        for name, runs in by_system.items()
        if name in declared
        or (len(runs) == 1 and all(part.deterministic for part in runs[0].on.values()))
    )


def seeds_of(runs: Iterable[SystemRun]) -> dict[str, tuple[int, ...]]:
    """{system: its seeds}, in the order of the runs."""
    seeds: dict[str, tuple[int, ...]] = {}
    for run in runs:
        seeds[run.system] = (*seeds.get(run.system, ()), run.seed)
    return seeds


def _check_names(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise unknown(kind, name, known)


def _asked(names: Sequence[str], baseline: str) -> str:
    others = [name for name in names if name != baseline]
    return f"Is {others[0]} better" if len(others) == 1 else "Which systems are better"


def _lists(runs: Sequence[SystemRun], ties: str) -> dict[tuple[str, int], ListReader]:
    """{(system, seed): its ranked lists}, of runs on a single query set, read again."""

    def read(ranking: Callable[[], RankedFile], queries: Collection[str]) -> dict[str, list[str]]:
        wanted, run = set(queries), ranking().run
        return {query: _ordered(ranked, ties) for query, ranked in run.items() if query in wanted}

    return {
        (run.system, run.seed): partial(read, run.on[""].ranking)
        for run in runs
        if "" in run.on and run.on[""].ranking is not None
    }


def _check_separate(systems: Systems) -> None:
    """A file is one run of one system; equal contents of two systems are a finding, with p = 1."""
    owner: dict[tuple[str, str], str] = {}
    for system, runs in systems.items():
        for run in runs:
            for name, source in (run if isinstance(run, Mapping) else {"": run}).items():
                if isinstance(source, str | Path):
                    # The same file twice would be two equal systems, or a seed without variance.
                    first = owner.setdefault((name, str(Path(source).absolute())), system)
                    if first != system:
                        raise BadInput(
                            f"{first} and {system} both contain {source}: a copy is not another "
                            "training run"
                        )


def _loaded(system: str, sources: Sequence[RunSource], tracking_uri: str | None) -> list[SystemRun]:
    """The runs of a system; those without seeds of their own are numbered from 1."""
    runs: list[dict[str, TrainingRun]] = []
    for place, source in enumerate(sources, start=1):
        where = f"run {place} of {system}"
        by_set = {
            name: _runs_of(part, f"{where} on {name}" if name else where, tracking_uri)
            for name, part in (source if isinstance(source, Mapping) else {"": source}).items()
        }
        runs += by_number(by_set)
    seeds = [next(iter(run.values())).seed for run in runs]
    # Seeds that are missing or repeated say nothing; numbers at least keep runs apart.
    if None in seeds or len(set(seeds)) < len(seeds):
        seeds = list(range(1, len(runs) + 1))
    by_seed = sorted(zip(cast(list[int], seeds), runs, strict=True), key=lambda pair: pair[0])
    return [SystemRun(system, seed, run) for seed, run in by_seed]


T = TypeVar("T")


def by_number(by_set: Mapping[str, Sequence[T]]) -> list[dict[str, T]]:
    """The k-th run of every query set that has so many; separate runs may differ in number."""
    most = max(map(len, by_set.values()))
    return [{name: runs[k] for name, runs in by_set.items() if k < len(runs)} for k in range(most)]


def _runs_of(
    source: Source | TrainingRun, where: str, tracking_uri: str | None
) -> list[TrainingRun]:
    """The runs of the one system that a source holds."""
    if isinstance(source, TrainingRun):
        return [source]
    systems = training_runs(source, where=where, tracking_uri=tracking_uri)
    if len(systems) > 1:
        place = where if isinstance(source, pd.DataFrame) else source
        listed = ", ".join([*systems][:_LISTED]) + ", ..." * (len(systems) > _LISTED)
        raise BadInput(
            f"{place} holds {len(systems)} systems ({listed}); one of them is "
            f"{place}:{next(iter(systems))}"
        )
    return next(iter(systems.values()))


def _judged(qrels: Judgments | Mapping[str, Judgments] | None) -> list[QuerySet]:
    """The query sets; empty without judgments."""
    if qrels is None:
        return []
    if isinstance(qrels, str | Path):
        qrels = {shown_path(Path(qrels).name): qrels}
    elif isinstance(qrels, pd.DataFrame) or (isinstance(qrels, Mapping) and _is_qrels(qrels)):
        qrels = {"the judgments": cast(Judgments, qrels)}
    elif not isinstance(qrels, Mapping):
        raise BadInput(f"{JUDGMENT_KINDS}, got {type(qrels).__name__}")
    query_sets = []
    for name, given in cast(Mapping[str, Judgments], qrels).items():
        where, judged = str(name), judgments_of(given, str(name))
        if isinstance(given, str | Path):
            where = shown_path(given)
        if not any(grade > 0 for grades in judged.values() for grade in grades.values()):
            raise BadInput(f"{where}: judgments need a relevant document, found none")
        query_sets.append(QuerySet(str(name), judged, where))
    return query_sets


def query_set_names(qrels: Judgments | Mapping[str, Judgments] | None) -> list[str]:
    """The names of several query sets; none where the judgments are of one."""
    named = isinstance(qrels, Mapping) and not _is_qrels(qrels)
    return [str(name) for name in cast(Mapping[str, Any], qrels)] if named else []


def judgments_of(given: object, where: str) -> Qrels:
    """The judgments of a file, a data frame or a dictionary, under the same rules."""
    if isinstance(given, pd.DataFrame):
        return frame_qrels(given, where)
    if isinstance(given, Mapping):
        return dictionary_qrels(given, where)
    if isinstance(given, str | Path):
        return named_qrels(given)
    raise BadInput(f"{where}: {JUDGMENT_KINDS}, got {type(given).__name__}")


def _is_qrels(qrels: Mapping[Any, Any]) -> bool:
    """True if a mapping is {query: {document: relevance}}, and not {query set: judgments}."""
    inner = [values for values in qrels.values() if not isinstance(values, Mapping) or values]
    if not inner or not isinstance(inner[0], Mapping):
        return not inner
    return not isinstance(next(iter(inner[0].values())), Mapping)


def _own_queries(runs: Sequence[SystemRun]) -> list[QuerySet]:
    """The queries of values without judgments, treated as judged, of every query set."""
    queries: dict[str, dict[str, set[str]]] = {}  # {query set: {run: its queries}}
    for name, part in (item for run in runs for item in run.on.items()):
        if part.values is None:
            raise BadInput(
                f"{part.where} is a run and needs judgments: --qrels FILE, qrels= in Python"
            )
        of_set = queries.setdefault(name, {})
        of_set[part.where] = set(part.values["query_id"])
        first = next(iter(of_set))
        if not of_set[part.where] & of_set[first]:
            raise BadInput(f"{first} and {part.where} share no query id")
    every = {name: sorted(set().union(*of_set.values())) for name, of_set in queries.items()}
    return [QuerySet(name, {query_id: {} for query_id in ids}) for name, ids in every.items()]


def _shared_measures(runs: Sequence[SystemRun]) -> list[str]:
    """The measures that all tables of values have, in their order; `MEASURES` for runs."""
    parts = [part for run in runs for part in run.on.values()]
    tables = [part for part in parts if part.values is not None]
    if not tables:
        return list(MEASURES)
    shared = [
        name
        for name in tables[0].measures
        if all(name in part.measures for part in tables)
        and not name.startswith(COUNTS)
        and (len(tables) == len(parts) or parsed(name) is not None)  # there are runs as well
    ]
    if not shared:
        listed = "; ".join(f"{part.where}: {', '.join(part.measures)}" for part in tables[:2])
        raise BadInput(f"all tables need a measure in common, found {listed}")
    return shared if len(shared) <= _MOST_MEASURES else shared[:_TAKEN]


def _not_shown(runs: Sequence[SystemRun], sets: Sequence[QuerySet]) -> Iterator[str]:
    """A note on measures of the values that the columns leave out."""
    given = next((run.first.measures for run in runs if run.first.values is not None), ())
    if left := [name for name in given if name not in sets[0].columns]:
        yield f"Measures not shown (--measures): {names_text(left, _TAKEN)}."


def _rule_for_ties(given: str | None, runs: Sequence[SystemRun]) -> str:
    """The rule for equal scores; refuses one where nothing has scores."""
    if given is None:
        return TREC_EVAL
    _check_names("rule for ties", [given], TIES)
    if all(part.ranking is None for run in runs for part in run.on.values()):
        raise BadInput(f"--ties {given} needs a run: per-query values have no scores that tie")
    return given


def _check_paired(runs: Sequence[SystemRun]) -> None:
    """Refuse to pair the seeds of a sweep whose trials share no randomness."""
    for part in (part for run in runs for part in run.on.values()):
        if part.paired is False and not part.deterministic:
            raise BadInput(
                f"paired seeds: {part.where} shares no randomness with other cells, as its sweep "
                "ran with training.paired_seeds=false"
            )


def _pairs(runs: Sequence[SystemRun]) -> Iterator[str]:
    """A note on the runs that are paired by their places, without seeds of their own. Raises
    `BadInput` where systems have different seeds."""
    _check_paired(runs)
    seeds = seeds_of(runs)
    first = next(iter(seeds), "")
    for name in seeds:
        if seeds[name] != seeds[first]:
            listed = " and ".join(
                f"{', '.join(map(str, seeds[system]))} of {system}" for system in (first, name)
            )
            raise BadInput(f"paired seeds need the same seeds in every system, got {listed}")
    pairs: dict[int, list[TrainingRun]] = {}
    for run in runs:
        pairs.setdefault(run.seed, []).append(run.first)
    if any(run.first.seed is None for run in runs):
        shown = "; ".join(" with ".join(part.name for part in parts) for parts in pairs.values())
        yield f"Seeds paired: {shown}."


def _with_columns(sets: Sequence[QuerySet], measures: Sequence[str]) -> list[QuerySet]:
    """The sets with the columns of each."""
    keys = dict.fromkeys(map(measure_key, measures))  # of NDCG@10, of ndcg_cut_10
    for one in sets:
        if one.name == MEAN and len(sets) > 1:
            raise BadInput(f"the mean over the query sets is called {MEAN}, none of them may be")
        if (count := len(one.qrels)) < 2:
            where = one.where or one.name or "the given values"
            raise BadInput(f"{where}: a test needs two judged queries or more, found {count}")
    prefixed = len(sets) > 1
    return [
        replace(one, columns={key: f"{one.name} {key}" if prefixed else key for key in keys})
        for one in sets
    ]


def _measured(
    runs: Sequence[SystemRun], sets: Sequence[QuerySet], ties: str
) -> tuple[pd.DataFrame, pd.DataFrame, list[str], "Moved"]:
    """The values of every run on the judged queries of every set, a measure under the name of its
    column; a row for every run, with its ties where it is a ranking; notes on queries counted as 0
    or excluded; the means of runs with ties by both rules."""
    ranked = any(part.ranking for run in runs for part in run.on.values())
    for one in sets if ranked else ():
        check_measures(list(one.columns), [one.qrels])
    tables, trials, others = [], [], []
    answered: set[str] = set()
    lost: dict[str, list[str]] = {}  # {note: the runs it is about}
    seen: dict[tuple[str, str], list[tuple[str, Run | str]]] = {}  # of a system on a set
    for run in runs:
        tied = 0
        for part, judged in _parts(run, sets):
            file = None if part.ranking is None else part.ranking()
            ranking = None if file is None else file.run
            _check_differs(part, ranking, seen.setdefault((run.system, judged[0].name), []))
            for one in judged:
                if ranking is None:
                    table = _given_values(part, one)
                else:
                    kept = _ranked(part.where, ranking, one)
                    if note := own_ids(kept, one.qrels):
                        lost.setdefault(note, []).append(part.name)
                    tied += num_tied(kept, ties)
                    table = per_query(one.qrels, ranks_as_scores(kept, ties), list(one.columns))
                    if num_tied(kept, TREC_EVAL):  # in single precision: ties by either rule
                        others.append((run.system, one, kept))
                measure = table["measure"].map(one.columns)
                tables.append(table.assign(measure=measure, cell=run.system, seed=run.seed))
            queries = set(ranking or () if part.values is None else part.values["query_id"])
            answered |= queries
            of_file = order_notes(file) if file else ()
            seen_by = _seen_by(ranking or {}, judged)
            for note in (*seen_by, *_lost(queries, judged), *of_file, *filter(None, [part.note])):
                lost.setdefault(note, []).append(part.name)
        trial = {"cell": run.system, "seed": run.seed, "status": "done"}
        trials.append(trial | ({"ties": tied} if ranked else {}))
    count = sum(len(run.on) for run in runs)
    order = sorted(lost, key=lambda note: not note.startswith(SEEN))  # in doubt, it alone is said
    notes = [f"{f'all {count} runs' if len(where) == count else names_text(where)}: {note}"
             for note in order for where in [lost[note]]]  # fmt: skip
    for one in sets:
        if one.where and (number := num_without_relevant(one.qrels)):
            of_set = f"{one.name}: " if len(sets) > 1 else ""
            notes.append(f"{of_set}{without_relevant_note(number, len(one.qrels))}.")
        if missing := len(one.qrels.keys() - answered):  # most often those of another split
            of_set = f" of {one.name}" if len(sets) > 1 else ""
            notes.append(
                f"No run has {missing} of the {len(one.qrels)} judged queries{of_set}: the zeros "
                "shrink all differences. If these queries are of another split, name the judgments "
                "of this split alone (of a sweep: --qrels DIR/qrels/test.qrels)."
            )
    scores = pd.concat(tables, ignore_index=True).assign(split="judged")
    notes += _other_scale(scores)
    return scores, pd.DataFrame(trials), notes, _moved(others, ties)


Moved = dict[tuple[str, str], tuple[float, float]]
"""{(system, measure): its mean by the rule for ties that is used, and by the other one}."""


def _moved(tied: Iterable[tuple[str, QuerySet, Run]], ties: str) -> Moved:
    """The means of runs with ties: of a system, over these."""
    means: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for system, one, run in tied:
        for measure, pair in means_by_rules(one.qrels, run, list(one.columns), ties).items():
            means.setdefault((system, one.columns[measure]), []).append(pair)
    return {
        name: (float(np.mean([a for a, _ in pairs])), float(np.mean([b for _, b in pairs])))
        for name, pairs in means.items()
    }


def means_by_rules(
    qrels: Qrels, run: Run, measures: Sequence[str], ties: str
) -> dict[str, tuple[float, float]]:
    """{measure: the mean of a run by a rule for ties, and by the other one}."""
    used, other = (
        mean_values(per_query(qrels, ranks_as_scores(run, rule), measures))
        for rule in (ties, _other_rule(ties))
    )
    return {name: (used[name], other[name]) for name in measures}


def _other_rule(ties: str) -> str:
    return next(rule for rule in TIES if rule != ties)


def _seen_by(ranking: Run, sets: Sequence[QuerySet]) -> Iterator[str]:
    """The note on judgments of what a run showed."""
    for one in sets:
        if depth := judged_depth(one.qrels, ranking):
            yield f"{depth_note(depth, 'the run')}."


def _alike(scores: pd.DataFrame, runs: Sequence[SystemRun]) -> Iterator[tuple[str, str]]:
    """(system, note) of each system of which two runs have equal values on all queries: trainings
    may end at one ranking, and a seed may have no effect."""
    named = {(run.system, run.seed): " and ".join(p.name for p in run.on.values()) for run in runs}
    for system, values in scores.groupby("cell", sort=False, observed=True):
        if seeds := identical_seeds(values):
            first, second = (named[str(system), seed] for seed in seeds)
            yield (
                str(system),
                f"{first} and {second} have identical values for all queries. They count as two "
                f"training runs of {system} without a difference between them; if its seed changes "
                f"nothing, name one run of it (--deterministic {shlex.quote(str(system))}).",
            )


def _other_scale(scores: pd.DataFrame) -> Iterator[str]:
    """A note on each column in which two runs differ in scale, such as one in percent. Measures
    with known bounds are checked where they are read."""
    sizes = (
        scores["value"]
        .abs()
        .groupby([scores[name] for name in ("measure", "cell", "seed")], observed=True)
    )
    for measure, of_measure in sizes.mean().groupby("measure", sort=False, observed=True):
        ordered = of_measure[of_measure > 0].sort_values()
        if len(ordered) > 1 and ordered.iloc[-1] > _PLAINLY * ordered.iloc[0]:
            (_, low, low_seed), (_, high, high_seed) = ordered.index[0], ordered.index[-1]
            yield (
                f"Check the scales of {measure}: the mean size of its values is "
                f"{ordered.iloc[0]:.3g} in run {low_seed} of {low} and {ordered.iloc[-1]:.3g} in "
                f"run {high_seed} of {high}; is one in percent?"
            )


def tie_notes(tied: int, ties: str, moved: Moved, digits: int) -> list[str]:
    """The number of tied documents and their order, and the means that differ by the other rule in
    a digit that is shown."""
    notes = []
    if tied:
        tie = "document ties" if tied == 1 else "documents tie"
        notes.append(f"{tied:,} {tie} with another; {TIES[ties]}.")
    by_other = [
        f"{measure} {number(other, digits)}{f' of {system}' if system else ''}, not "
        f"{number(used, digits)}"
        for (system, measure), (used, other) in moved.items()
        if number(used, digits) != number(other, digits)
    ]
    if by_other:
        rule = _other_rule(ties)
        notes.append(f"With --ties {rule}: {names_text(by_other, _MOVED)}.")
    return notes


def _parts(
    run: SystemRun, sets: Sequence[QuerySet]
) -> Iterator[tuple[TrainingRun, list[QuerySet]]]:
    """Every file or table of a run, with the query sets that it is read for. One file for several
    sets that share a query id is refused."""
    for one in sets if "" not in run.on else ():
        if one.name in run.on:
            yield run.on[one.name], [one]
    if "" not in run.on:
        return
    owner: dict[str, str] = {}
    for one in sets:
        for query_id in one.qrels:
            if owner.setdefault(query_id, one.name) != one.name:
                raise BadInput(
                    f"{run.first.where}: {owner[query_id]} and {one.name} both judge {query_id}; "
                    "use a file per set, with {set} in its name"
                )
    yield run.first, list(sets)


def _given_values(part: TrainingRun, judged: QuerySet) -> pd.DataFrame:
    """The values of the judged queries, sorted by query, measure by measure."""
    assert part.values is not None
    values = part.values[part.values["query_id"].isin(judged.qrels)]
    wide = values.pivot(index="query_id", columns="measure", values="value")
    if not len(wide):
        raise BadInput(f"{part.where}: none of its queries is judged")
    absent = sorted(judged.qrels.keys() - set(wide.index))
    if absent and not judged.where:
        raise BadInput(
            f"{part.where} lacks {len(absent)} of {len(judged.qrels)} queries that others have: "
            f"{names_text(absent)}; with --qrels judged queries without values count 0"
        )
    wide = wide.reindex(sorted(judged.qrels), fill_value=0.0)
    for measure in judged.columns:
        _check_names(f"measure of {part.where}", [measure], wide.columns)
        for query_id in wide.index[wide[measure].isna()][:1]:
            raise BadInput(f"{part.where}: query {query_id!r} has no {measure}, others have")
    columns = wide.rename_axis(index="query_id")[list(judged.columns)]
    return columns.melt(var_name="measure", value_name="value", ignore_index=False).reset_index()


def _check_differs(
    part: TrainingRun, ranking: Run | None, seen: list[tuple[str, Run | str]]
) -> None:
    """Refuse a copy of another run of the system. Equal values in files that differ are refused by
    `score_matrix` where chance cannot explain them."""
    is_file = ranking is None and os.path.isfile(part.where)
    content = file_sha256(Path(part.where)) if is_file else ranking
    if content is None:
        return
    if place := next((place for place, other in seen if content == other), ""):
        raise BadInput(
            f"the runs of a system must differ, but {part.where} has the content of {place}"
        )
    seen.append((part.where, content))


def _ranked(where: str, run: Run, judged: QuerySet) -> Run:
    ranked = {query_id: run[query_id] for query_id in judged.qrels if query_id in run}
    if not ranked:
        raise BadInput(f"{where}: {judged.where} judges none of its {len(run)} queries")
    if not any(
        judged.qrels[query_id].keys() & documents.keys() for query_id, documents in ranked.items()
    ):
        raise BadInput(
            f"none of the documents in {where} is judged in {judged.where}: do the document ids "
            "match?"
        )
    return ranked


def ranks_as_scores(ranked: Run, ties: str = TREC_EVAL) -> Run:
    """The run with ranks for scores: evaluation tools break ties in different ways."""
    return {
        query_id: {doc_id: float(-rank) for rank, doc_id in enumerate(_ordered(scores, ties))}
        for query_id, scores in ranked.items()
    }


def _ordered(scores: Mapping[str, float], ties: str) -> list[str]:
    by_id = sorted(scores, reverse=ties == TREC_EVAL)
    return sorted(by_id, key=lambda doc_id: -_compared_score(scores[doc_id], ties))


def _compared_score(score: float, ties: str) -> float:
    """trec_eval keeps scores in single precision: 10 and 10.00000001 tie."""
    return float(np.float32(score)) if ties == TREC_EVAL else score


def num_tied(ranked: Run, ties: str) -> int:
    """The documents that tie with another one that is counted."""
    return sum(
        len(scores) - len({_compared_score(score, ties) for score in scores.values()})
        for scores in ranked.values()
    )


def _lost(answered: set[str], sets: Sequence[QuerySet]) -> Iterator[str]:
    """The notes on queries of a run that were counted as 0, per set, or excluded."""
    for one in sets:
        if missing := len(one.qrels.keys() - answered):
            of_set = f" of {one.name}" if len(sets) > 1 else ""
            yield f"{missing} judged {_queries(missing)}{of_set} without a result, counted as 0."
    if extra := len(answered.difference(*(query_set.qrels for query_set in sets))):
        yield f"{extra} ranked {_queries(extra)} without a judgment, excluded."


def _queries(count: int) -> str:
    return "query" if count == 1 else "queries"
