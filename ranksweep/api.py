"""Sweeps, comparisons and measures from Python: `run`, `plan`, `load`, `compare`, `measure`."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Unpack, cast

import pandas as pd

from rank_core.arguments import (
    Kind,
    by_name,
    flag,
    got,
    id_or_number,
    is_frame,
    is_number,
    items_of,
    names,
    number,
    one_text,
    optional,
    path,
    path_text,
    probability,
    refused,
    several,
    takes,
    unwrapped,
    whole,
)
from rank_core.data import given
from rank_core.data.groups import frame_clusters
from rank_core.data.named_files import named_qrels
from rank_core.data.readers import gathered_groups
from rank_core.data.trec import RankedFile
from rank_core.data.written import folder_of
from rank_core.errors import BadInput, shown, unknown
from rank_core.home import lend_home
from rank_core.records import Collection, Qrels
from rank_core.settings.config import setting_type
from rank_core.stats.corrections import CORRECTION_NAMES
from ranksweep.by_value import is_object, reference_of
from ranksweep.flags import SweepFlags
from ranksweep.results import Comparison, Sweep
from sweeps.commands.compare.command import SET, sources_of, systems_of
from sweeps.commands.run import sweep_of
from sweeps.findings.analysis import analyse
from sweeps.launch.command import dry_run, launch
from sweeps.plan.experiment import Experiment
from sweeps.plan.flags import FLAGS, written
from sweeps.plan.options import TOLD
from sweeps.plan.samplers import text_of
from sweeps.report.comparison import compare_runs
from sweeps.report.measured import MeasuredRun, measured_run
from sweeps.store.sweep_file import opened
from sweeps.store.test_options import CORRECT_OVER, TestOptions, TestWords
from sweeps.systems.access import record_access
from sweeps.systems.derived import with_interpolated
from sweeps.systems.load import load_sweep, with_clusters
from sweeps.systems.runs import MEASURES, TIES, TREC_EVAL, query_set_names
from sweeps.systems.sources import ranking_of, training_runs
from sweeps.terminal.command_line import INTERPOLATE

if TYPE_CHECKING:
    from ranksweep.planned import SweepPlan


def _clusters(name: str, value: Any) -> str | dict[str, str]:
    """Clusters of queries: a file, `auto`, `group`, {query_id: cluster}, or a table of both."""
    value = unwrapped(value)
    if isinstance(value, str | PathLike):
        return path_text(name, value)
    if isinstance(value, pd.DataFrame):
        return frame_clusters(value, name)
    if not isinstance(value, Mapping) or not value:
        what = "{query_id: cluster}, a data frame of query_id and cluster, a file, auto or group"
        raise refused(name, what, value)
    rows: list[tuple[str, str, str | None]] = []
    for query, cluster in value.items():
        query_id, own = (id_or_number(f"an id in {name}", one) for one in (query, cluster))
        rows.append((name, query_id, own))
    return gathered_groups(rows)


@takes(
    where=path,
    interpolate=one_text("which systems to interpolate", ("", *INTERPOLATE)),
    clusters=_clusters,
)
def load(
    where: str | Path, *, interpolate: str = "", clusters: str | Mapping[str, str] = ""
) -> Sweep:
    """The sweep in a folder or under a URI. `interpolate` names the systems with a row "+BM25":
    best, all or none, `clusters` the clusters of queries as in `compare`, or none; empty: as in the
    sweep's command. Raises `BadInput` without a sweep or a finished trial.

    Examples:
        >>> import ranksweep
        >>> sweep = ranksweep.load("results/window_stride/woods")
        >>> list(sweep.per_query["measure"].unique())
        ['RR@10', 'nDCG@10']
    """
    where = str(where)
    with opened(where) as records:
        sweep = load_sweep(records)
        sweep = with_clusters(sweep, clusters) if clusters else sweep
        sweep = with_interpolated(sweep, interpolate)
        record_access(sweep, f"ranksweep.load({where!r})")
    return Sweep(analyse(sweep))


def _seeds(name: str, value: Any) -> int | tuple[int, ...]:
    """The number of seeds, or their list."""
    if items_of(value) is None:
        if not is_number(unwrapped(value)):
            raise refused(name, "a number of seeds or a list of seeds", value)
        return int(whole(least=1)(name, value))
    return tuple(several(whole(), "a list of seeds", least=1)(name, value))


OBJECTS = ("model.name", "training.loss", "evaluation.measures")
"""Settings that a class or a function can be given for."""


def _collection(name: str, value: Any) -> str | Path:
    """A collection's name or folder. A `Collection` becomes a folder in the cache: the words of a
    command name a collection, and trials in other processes read it by that name."""
    if isinstance(value, Collection):
        return folder_of(value)
    if is_frame(value) or isinstance(value, Mapping):
        raise BadInput(
            f"{name} must be a name, a folder or a Collection: Collection.of(documents=..., "
            f"splits={{'test': {{'queries': ..., 'qrels': ...}}}}) makes one, got {got(value)}"
        )
    return path(name, value)


def _settings(name: str, value: Any) -> dict[str, str]:
    """{dotted setting: its value, or the values of a list, as on a command line}."""
    named = by_name("{setting: a value, or a list of values to sweep}")(name, value)
    for setting in named:
        setting_type(setting)  # raises for an unknown one
    return {setting: _word(setting, own) for setting, own in named.items()}


def _word(setting: str, value: Any) -> str:
    """A setting's value, or the values of a list, as on a command line."""
    items = items_of(value)
    if items is not None and not items:
        raise refused(setting, "a value or a list of values", value)
    if setting in OBJECTS:
        value = reference_of(value, setting) if is_object(value) else value
        items = items and [reference_of(o, setting) if is_object(o) else o for o in items]
    for item in [unwrapped(value)] if items is None else items:
        if not isinstance(item, str | bool | int | float | PathLike):
            raise refused(setting, "a text, a number, True or False, or a list of these", item)
    return str(unwrapped(value)) if items is None else ",".join(map(str, items))


_OF_FLAGS: dict[type, Kind] = {bool: flag, int: whole(), float: number(), str: path_text}


def _flags(name: str, flags: Mapping[str, Any]) -> dict[str, Any]:
    """The values of flags by their kinds."""
    for one in flags:
        if one not in FLAGS:
            raise unknown("flag of a sweep", one, FLAGS)
    given = {one: _named(one, own) for one, own in flags.items()}
    return {one: optional(_OF_FLAGS[FLAGS[one].kind])(one, own) for one, own in given.items()}


LISTED = ("objective", "at_most", "cost_weight", "search_from")
"""Flags whose text has parts, which Python may give as a list or a mapping."""


def _named(name: str, value: Any) -> Any:
    """A flag's value; of a class and of a sampler of Optuna, the text that names it."""
    if name == "model" and is_object(value):
        return reference_of(value, name)
    if name == "search" and callable(getattr(value, "sample_relative", None)):
        return text_of(value)
    if name in LISTED and isinstance(value, Mapping):
        return ",".join(f"{cost}={amount}" for cost, amount in value.items())
    if name in LISTED and isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if name == "num_workers" and not isinstance(value, str | None):
        return str(whole()(name, value))
    return value


def _callbacks(name: str, value: Any) -> tuple[object, ...]:
    """Objects with a method of `TOLD`."""
    found = tuple(value) if isinstance(value, list | tuple) else (value,)
    for one in found:
        if not any(callable(getattr(one, told, None)) for told in TOLD):
            raise refused(name, f"objects with a method {', '.join(TOLD)}", one)
    return found


@takes(
    sweep=path,
    collection=optional(_collection),
    backbone=optional(path),
    seeds=optional(_seeds),
    settings=optional(_settings),
    flags=_flags,
)
def plan(
    sweep: str | Path,
    *,
    collection: str | Path | Collection | None = None,
    backbone: str | Path | None = None,
    seeds: int | Sequence[int] | None = None,
    settings: Mapping[str, Any] | None = None,
    **flags: Unpack[SweepFlags],
) -> "SweepPlan":
    """The plan of `run` with the same arguments, as frames: its cells with their tokens and time,
    its cost, and what it says and warns of. Nothing is launched or written; a batch of each kind of
    trial is measured, or none with `machines="8xH100@2.5"`, which models their time. Raises
    `BadInput` where `run` would.

    Examples:
        >>> import ranksweep
        >>> planned = ranksweep.plan("my_sweep.toml", engine="local", seeds=2)
        >>> planned.cells[["cell", "trials"]]
             cell  trials
        0  random       2
        1    BM25       1
    """
    from rank_core.process_state import kept  # PyTorch, which the other doors do not need
    from ranksweep.planned import SweepPlan

    given = cast(Any, flags)
    with kept():
        experiment, words, more = _words(str(sweep), collection, backbone, seeds, settings, given)
        return SweepPlan(dry_run(experiment, [*words, "--dry-run"], **more))


@takes(
    sweep=path,
    collection=optional(_collection),
    backbone=optional(path),
    seeds=optional(_seeds),
    settings=optional(_settings),
    callbacks=_callbacks,
    flags=_flags,
)
def run(
    sweep: str | Path,
    *,
    collection: str | Path | Collection | None = None,
    backbone: str | Path | None = None,
    seeds: int | Sequence[int] | None = None,
    settings: Mapping[str, Any] | None = None,
    callbacks: object = (),
    **flags: Unpack[SweepFlags],
) -> Sweep:
    """The sweep of this name or file, after `ranksweep run` has trained what is missing: the same
    call resumes. `seeds` are their number or a list, `settings` {dotted setting: a value, or a list
    of values to sweep}, `flags` those of the command: `engine="local"`, `num_workers=2`,
    `confirm=True`. `collection` is a name, a folder or a `Collection`; `model` and the settings
    model.name, training.loss and evaluation.measures take a class or a function, also of a
    notebook, which workers get by value. `search` is a name or a sampler of Optuna, which draws by
    `search_seed` and not by its own. `callbacks` are objects whose methods started(name, config),
    reported(name, {metric: value}, step), finished(name, config) and failed(name, config) are
    called. Trials that failed are named in the lines it prints, and in `trials`. Raises `BadInput`,
    also where no trial has finished.

    Examples:
        >>> import ranksweep
        >>> sweep = ranksweep.run("my_sweep.toml", engine="local", seeds=2)
        Does BM25 rank better than chance?
        ...
        >>> list(sweep.table().frame["system"].unique())
        ['random', 'BM25']
    """
    from rank_core.process_state import kept  # PyTorch, which the other doors do not need

    given = cast(Any, flags)
    with kept():
        if given.get("dry_run"):
            raise BadInput("a dry run has no trials to return: ranksweep.plan has its plan")
        experiment, words, more = _words(str(sweep), collection, backbone, seeds, settings, given)
        told = cast(tuple[object, ...], callbacks)
        return load(str(launch(experiment, words, callbacks=told, **more).where))


def _words(
    sweep: str,
    collection: str | Path | Collection | None,
    backbone: str | Path | None,
    seeds: int | Sequence[int] | None,
    settings: Mapping[str, Any] | None,
    flags: dict[str, Any],
) -> tuple[Experiment, list[str], dict[str, Any]]:
    """The experiment of a sweep, the words of its command line, and what else `launch` takes."""
    lend_home()
    found = sweep_of(sweep)
    if isinstance(found, ModuleType) or flags.get("prepare"):
        raise BadInput(f"this has no trials to return: call `ranksweep run {sweep}` in a shell")
    if seeds is not None and flags.get("num_seeds") is not None:
        raise BadInput(
            f"seeds are given twice, by seeds={seeds!r} and num_seeds={flags['num_seeds']!r}; "
            "give one of them"
        )
    if isinstance(seeds, int):
        flags["num_seeds"] = seeds
    elif seeds is not None:
        flags["seeds"] = ",".join(map(str, seeds))
    words = written({"collection": collection, "backbone": backbone} | flags)
    words += [f"{name}={word}" for name, word in (settings or {}).items()]
    experiment, doc, preset = found
    call = f"ranksweep.run({sweep!r})"
    return experiment, words, {"doc": doc, "prog": call, "preset": preset}


def _one_run(name: str, value: Any) -> RankedFile:
    """A run: a source of `ranksweep measure`, a data frame, a dictionary or ScoredDocs."""
    value = unwrapped(value)
    if isinstance(value, str | PathLike):
        return ranking_of(path(name, value))
    if isinstance(value, pd.DataFrame):
        return ranking_of(value, where=name)
    return RankedFile(given.run(name, value))


def _one_qrels(name: str, value: Any) -> Qrels:
    """Judgments: a file, `ir:ID`, a data frame, a dictionary or Qrels of ir_measures."""
    value = unwrapped(value)
    if isinstance(value, str | PathLike):
        return named_qrels(path(name, value))
    return given.qrels(name, value)


@takes(
    run=_one_run,
    qrels=_one_qrels,
    measures=names(" of measures", unique=False),
    ties=one_text("a rule for ties", TIES),
)
def measure(
    run: Any, qrels: Any, measures: str | Sequence[str] = MEASURES, *, ties: str = TREC_EVAL
) -> MeasuredRun:
    """The measures of one run: {query: {document: score}}, a data frame, or a source of `ranksweep
    measure` (a TREC run, `ir:ID`, `DIR:LABEL` of a sweep with one seed). `qrels` are a file,
    `ir:ID`, a data frame or {query: {document: relevance}}; `measures` are names of ir_measures.
    Equal scores rank as `ties` says, trec_eval or doc_id, as in `compare`. Raises `BadInput`.

    Examples:
        >>> import ranksweep
        >>> run = {"q1": {"d1": 2.0, "d2": 1.0}, "q2": {"d1": 2.0, "d2": 1.0}}
        >>> qrels = {"q1": {"d1": 1}, "q2": {"d2": 1}}
        >>> ranksweep.measure(run, qrels, ["RR", "P@1"]).means
        {'RR': 0.75, 'P@1': 0.5}
    """
    ranked, judged = cast(RankedFile, run), cast(Qrels, qrels)
    return measured_run(ranked, judged, tuple(measures) or MEASURES, ties)


def _systems(name: str, value: Any) -> dict[str, Any]:
    """{system: its sources}. A frame holds all systems; in a list, sweeps have their cells, files
    their names, and what has no name its place."""
    value = unwrapped(value)
    if isinstance(value, pd.DataFrame):
        return {**training_runs(value)}
    if isinstance(value, Mapping):
        found = {}
        for system, sources in value.items():
            called = id_or_number(f"a name in {name}", system)
            if not called.strip():
                raise BadInput(
                    f"a name in {name} must have a letter or a digit, got {shown(called)}"
                )
            if called in found:
                raise BadInput(f"{name} must name a system once, got {shown(called)} twice")
            found[called] = _sources(called, sources)
        return found
    items = items_of(value)
    if items is None:
        raise refused(name, "{name: its runs or values}, a data frame or a list of sweeps", value)
    if all(isinstance(one, str | Path) for one in items):
        return {**systems_of([str(path(name, one)) for one in items])}
    systems: dict[str, Any] = {}
    for place, one in enumerate(items, start=1):
        for system, sources in _held(f"system {place}", one).items():
            if system in systems:
                raise BadInput(
                    f"{name} must name a system once, got {shown(system)} twice: several runs of "
                    "a system are {name: [run, run]}"
                )
            systems[system] = sources
    return systems


def _held(called: str, one: Any) -> Mapping[str, Any]:
    """{system: its sources} of an item of a list; a source without a name is `called` so."""
    if isinstance(one, str | Path):
        return systems_of([str(path("systems", one))])
    if isinstance(one, pd.DataFrame):
        held = training_runs(one, where=called)
        return {name or called: runs for name, runs in held.items()}
    return {called: _sources(called, one)}


def _sources(system: str, source: Any) -> tuple[Any, ...]:
    """The sources of a system: one or several, patterns and dictionaries resolved."""
    source = unwrapped(source)
    name = f"systems, a run of {shown(system)}"
    if isinstance(source, str):
        text = str(path(name, source))
        # With a file per query set: `compare` knows the names of these.
        return (text,) if SET in text else tuple(sources_of(text))
    if isinstance(source, PathLike):
        return (str(source) if SET in str(source) else path(name, source),)
    if isinstance(source, Mapping):
        inner = unwrapped(next(iter(source.values()), None))
        scores = next(iter(inner.values()), None) if isinstance(inner, Mapping) else None
        # {query set: a source}, which may be a run as a dictionary.
        if isinstance(inner, str | PathLike | pd.DataFrame) or isinstance(scores, Mapping):
            on = {str(key): _sources(f"{system} on {key}", own) for key, own in source.items()}
            if many := [key for key, own in on.items() if len(own) != 1]:
                raise BadInput(f"{name} must be one on each query set, got several on {many[0]}")
            return ({key: one for key, (one,) in on.items()},)
        return (_run_frame(name, source),)
    if isinstance(source, pd.DataFrame):
        return (source,)
    items = items_of(source)
    if items is None:
        raise refused(name, f"{given.RUN_KINDS}, or a list of runs", source)
    if not items:
        raise BadInput(f"{name} must be there, got an empty list of runs")
    if all(map(given.is_record, items)):
        return (_run_frame(name, items),)
    return tuple(resolved for part in items for resolved in _sources(system, part))


def _run_frame(name: str, source: Any) -> pd.DataFrame:
    run = given.run(name, source)
    rows = [(query, *pair) for query, scores in run.items() for pair in scores.items()]
    return pd.DataFrame(rows, columns=["query_id", "doc_id", "score"])


def _qrels(name: str, value: Any) -> Any:
    """Judgments, or {query set: judgments}: what `compare_runs` reads."""
    value = unwrapped(value)
    if isinstance(value, Mapping):
        return {key: _judgments(f"{name} of {shown(key)}", own) for key, own in value.items()}
    return _judgments(name, value)


def _judgments(name: str, value: Any) -> Any:
    value = unwrapped(value)
    if isinstance(value, str | PathLike):
        return path(name, value)
    if isinstance(value, Mapping | pd.DataFrame):
        return value
    return value.to_dict() if isinstance(value, pd.Series) else given.qrels(name, value)


_OF_TESTS: dict[str, Kind] = {
    "correction": one_text("the name of a correction", CORRECTION_NAMES),
    "correct_over": one_text("what p is corrected over", CORRECT_OVER),
    "alpha": probability,
    "margin": number("0 < {} <= 1", lambda margin: 0 < margin <= 1),
    "paired_seeds": flag,
    "separate_runs": flag,
    "ties": optional(one_text("a rule for ties", TIES)),
    "clusters": _clusters,
}


def _tests(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the tests by their kinds."""
    for one in options:
        if one not in _OF_TESTS:
            raise unknown("option of the tests", one, _OF_TESTS)
    return {one: _OF_TESTS[one](one, value) for one, value in options.items()}


@takes(
    systems=_systems,
    qrels=optional(_qrels),
    baseline=names(" of systems"),
    measures=names(" of measures", unique=False),
    deterministic=names(" of systems", unordered=True),
    digits=whole(1, 6),
    tracking_uri=optional(path_text),
    tests=_tests,
)
def compare(
    systems: Mapping[str, Any] | pd.DataFrame | Sequence[str | Path],
    qrels: Any = None,
    *,
    baseline: str | Sequence[str] = (),
    measures: str | Sequence[str] = (),
    deterministic: str | Sequence[str] = (),
    digits: int = 3,
    tracking_uri: str | None = None,
    **tests: Unpack[TestWords],
) -> Comparison:
    """The tested table of any systems: {name: its runs or per-query values}, several for seeds.
    Each is a source of `ranksweep compare` (a pattern too), a data frame (a run: query_id, doc_id,
    score, or qid, docno, score; values: query_id, measure, value), or a run as {query: {document:
    score}}. One frame of values with a column `name` or `system` holds all systems, and a list of
    sweeps their cells, on several collections too. `qrels` are the judgments that runs need: a
    file, a data frame or a dictionary, or {query set: judgments}; `{set}` in the path of a run
    stands for the name of each set. Raises `BadInput`.

    Args:
        baseline: system to compare with, or several; default: the first.
        measures: names of ir_measures; default: nDCG@10 and RR@10 for runs, all shared ones of
            values.
        deterministic: systems without training, such as BM25.
        digits: decimals of means and differences in tables.
        tracking_uri: MLflow's, for mlflow: and runs:/ sources.

    Keyword Args:
        correction (str): of p, over all comparisons of a measure: max-t, holm, bh or none.
        correct_over (str): measure, or table: all measures and baselines share alpha (Bonferroni).
        alpha (float): level of the tests; intervals have the level 1 - alpha.
        margin (float): a difference up to this size counts as practically equal.
        paired_seeds (bool): run i of every system shares its randomness with run i of the others.
        separate_runs (bool): systems were trained on each query set, so that their runs there are
            independent.
        ties (str): rank of equal scores of runs: as trec_eval sorts them (the default), or doc_id.
        clusters (str or mapping): of queries whose scores may be correlated: {query_id: cluster}, a
            data frame or a file of both, auto (queries that share relevant documents), or group (a
            sweep's own).

    Examples:
        >>> import ranksweep
        >>> runs = {"A": "runs/a.*.run", "B": "runs/b.*.run"}  # each has three seeds
        >>> compared = ranksweep.compare(runs, "test.qrels", measures="RR@10")
        >>> compared.frame[["system", "seeds"]]
          system  seeds
        0      A      3
        1      B      3
    """
    sets = query_set_names(qrels)
    given = {
        name: tuple(run for source in own for run in _on_sets(source, sets))
        for name, own in cast(dict[str, tuple[Any, ...]], systems).items()
    }
    found = compare_runs(
        given,
        qrels,
        TestOptions(**tests),
        baselines=tuple(baseline),
        measures=tuple(measures),
        deterministic=tuple(deterministic),
        digits=digits,
        tracking_uri=tracking_uri,
    )
    return Comparison(found)


def _on_sets(source: Any, sets: Sequence[str]) -> Sequence[Any]:
    """The runs of a source; of a path with `{set}` the k-th file of every query set."""
    return sources_of(source, sets) if isinstance(source, str) and SET in source else [source]
