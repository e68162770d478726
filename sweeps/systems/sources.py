"""The sources of a comparison: files, folders, tables and MLflow runs, by system.

The kind of a source is recognised by its content: a TREC run, a table of per-query values with any
of the `COLUMNS` below (CSV, TSV, JSON, Parquet, a data frame, or the three columns that `trec_eval
-q` and `ir_measures -q` print), the folder of a sweep, of an earlier comparison or of mteb's
results.
"""

import math
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd

from rank_core.bounds import check_parquet
from rank_core.checkpoints.weights import SEED, WEIGHTS, stored_cell
from rank_core.data.ir_collections import PREFIX
from rank_core.data.named_files import named_run
from rank_core.data.tables import (
    SEPARATOR,
    WRAPPERS,
    check_columns,
    delimited_rows,
    hits_in,
    json_records,
    unique_fields,
)
from rank_core.data.trec import (
    RankedFile,
    gathered_run,
    identifier,
    is_ranked,
    open_content,
    point_hint,
    rank_of,
    read_lines,
    read_ranked,
    record_lines,
    unicode_text,
)
from rank_core.errors import BadInput, shown, unknown
from rank_core.evaluate import bounds_of
from rank_core.files import is_there, shown_path
from rank_core.parsing import parsed_json
from sweeps.store.records import SCORES, trial_name
from sweeps.store.storage import reason
from sweeps.store.sweep_file import FILE, FIRST_STAGE, opened
from sweeps.systems.choice import left_out
from sweeps.systems.clusters import Queries, queries_of_sweep
from sweeps.systems.derived import with_interpolated
from sweeps.systems.interpolation import first_stage_scores, missing_input
from sweeps.systems.load import Sweep, load_sweep
from sweeps.systems.mteb_results import mteb_results
from sweeps.systems.system import System
from sweeps.terminal.escape import from_csv
from sweeps.terminal.notation import names_text
from sweeps.tracking.client import check_tracking_uri, connect, every_page, sqlite_file

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as MlflowRun

Source: TypeAlias = str | Path | pd.DataFrame

COLUMNS = {
    "query": ("query_id", "qid", "q_id", "topic", "query"),
    "document": ("doc_id", "docno", "docid"),
    "score": ("score",),
    "rank": ("rank",),
    "measure": ("measure", "metric"),
    "value": ("value",),
    "relevance": ("relevance", "label", "rel"),
    "system": ("system", "name", "cell"),
    "seed": ("seed",),
    "split": ("split",),
}
"""{content of a column: its names in any case, the preferred name first}."""
_ONE_MEANING = {
    "query": ("query_id", "qid", "q_id"),  # topic and query may have a text
    "document": COLUMNS["document"],
    "measure": COLUMNS["measure"],
}
"""{content: names of which two columns in a table must have the same values}."""

KINDS = (
    "a TREC run (query_id Q0 doc_id rank score tag), a table of values with the columns query_id, "
    "measure, value or query_id and a column per measure, a data frame of a run with the columns "
    "query_id, doc_id, score, or what trec_eval -q or ir_measures -q prints"
)
EXPERIMENT, RUN = "mlflow:", "runs:/"
TABLES = tuple(
    f"{folder}per_query.{kind}" for folder in ("eval/", "") for kind in ("parquet", "json", "csv")
)
"""The possible paths of an MLflow run's table, unless its path follows the run's id."""
_SUMMARY = ("all", "amean")  # the query id of the mean: trec_eval, ir_measures; gdeval, ndeval
_MEANS = (*_SUMMARY, "mean", "average", "avg")  # and those that a person may have given it
_MEANS_ALONE = (
    "there are means over all queries alone, and no value of a query; trec_eval and ir_measures "
    "print those with -q"
)
_PARTS = ("model", "method", "run", "run_id", "runid", "run_name", "dataset", "collection")
"""Columns that are not read and whose values would tell systems or query sets apart."""
_CUTOFFS = ("k", "cutoff", "cut_off")  # of a measure whose name must have it
_NO_MEASURES = {"query", "system", "seed", "split", "rank", "iteration", "q0", "query_set"}
_NO_MEASURES |= {*COLUMNS["query"]}
"""Columns of numbers that are not measures, in a table with a column per measure."""


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """A training run of a system: a ranking, or per-query values."""

    where: str
    ranking: Callable[[], RankedFile] | None = None
    values: pd.DataFrame | None = None  # query_id, measure, value; measures by `measure_key`
    seed: int | None = None  # None where the source has no seeds
    deterministic: bool = False
    collection: str = ""  # a sweep's
    trained: bool = False  # on that collection, by a sweep
    weights: str = ""  # the trained trial of a sweep whose weights it has; empty: none is trained
    cell: str = ""  # of a sweep; its name has the hash of all settings and contents
    paired: bool | None = None  # training.paired_seeds of its sweep
    queries: Queries | None = None  # what its sweep knows of them
    dev: pd.DataFrame | None = None
    """Its query_id, measure, value on dev, of a sweep that has a dev split; empty where the sweep
    left its system out of the choice."""
    look: int = 1  # of how many at its sweep
    note: str = ""  # on rows of its table that are not read

    @property
    def name(self) -> str:
        """The short form of its place; the label of a sweep's cell (`DIR:MaxP 48/32`) stays
        whole."""
        if "://" in self.where:
            return self.where
        path, colon, label = shown_path(self.where).partition(":")
        return f"{Path(path).name or path}{colon}{label}"

    @cached_property
    def measures(self) -> tuple[str, ...]:
        """The measures of its values, in their order; of a table with hundreds they are asked for
        hundreds of times."""
        return () if self.values is None else tuple(self.values["measure"].unique())


Held: TypeAlias = dict[str, list[TrainingRun]]
"""{system that a source names, "" where it names none: its training runs}."""


def is_mlflow(source: str) -> bool:
    """True for `mlflow:EXPERIMENT`, `runs:/ID` and `runs:/ID/path/of/the/table.csv`."""
    return source.startswith((EXPERIMENT, RUN))


def training_runs(
    source: Source, *, where: str = "the table", tracking_uri: str | None = None
) -> Held:
    """The training runs of a source.

    A text may end in `:NAME`, one of the systems of the source. `where` names a data frame in
    messages; `tracking_uri` is MLflow's, for `mlflow:EXPERIMENT` and `runs:/ID`.
    """
    if isinstance(source, pd.DataFrame):
        return _held(source, where, f"{where}, row ")
    text = str(source)
    cell_at_uri = "://" in text and ":" in text.partition("://")[2]
    held = None if cell_at_uri else _of_text(text, tracking_uri)
    if held is not None:
        return held
    base, _, name = text.rpartition(":")
    inside = _of_text(base, tracking_uri) if base else None
    if inside is None:
        return _of_file(Path(text))  # raises: it does not exist
    if name not in inside:
        inside |= _first_stage(base)
    if not any(inside):
        raise BadInput(f"{base} names no systems, so {text} is none of them; give {base} alone")
    if name not in inside:
        raise unknown(f"system of {base}", name, filter(None, inside))
    return {name: inside[name]}


def ranking_of(source: Source, *, where: str = "the table") -> RankedFile:
    """The one run of a source. Raises `BadInput` for several runs, and for values of measures."""
    named = where if isinstance(source, pd.DataFrame) else str(source)
    held = training_runs(source, where=where)
    [*runs] = (run for group in held.values() for run in group)
    if len(runs) > 1:
        raise BadInput(f"{named} holds {len(runs)} runs: `ranksweep compare` reads them")
    if runs[0].ranking is None:
        raise BadInput(f"{named} must be a run, but it has per-query values")
    return runs[0].ranking()


def _of_text(text: str, tracking_uri: str | None) -> Held | None:
    """The training runs that a text names; None if it names nothing."""
    if is_mlflow(text):
        return _of_mlflow(text, tracking_uri)
    if text.startswith(PREFIX):
        return {"": [TrainingRun(text, ranking=lambda: RankedFile(dict(named_run(text))))]}
    path = Path(text)
    if _is_sweep(text):
        return _of_sweep(text)
    if os.path.isdir(path):
        if results := mteb_results(path):
            return _of_mteb(results)
        path /= SCORES
        if not path.is_file():
            raise BadInput(
                f"{text} has neither {FILE} of a sweep nor {SCORES} of a comparison nor results "
                "of mteb"
            )
    return _of_file(path) if is_there(path) else None


def _of_mteb(results: Mapping[str, tuple[Path, pd.DataFrame]]) -> Held:
    """Published models, each with one run."""
    return {
        name: [TrainingRun(str(place), values=_keyed(table), seed=1, deterministic=True)]
        for name, (place, table) in results.items()
    }


def _is_sweep(text: str) -> bool:
    return "://" in text or is_there(Path(text) / FILE)


def _first_stage(where: str) -> Held:
    """The candidates of a sweep in their order, under the name of its first stage; empty for what
    is not a sweep, and for one that has none."""
    if not _is_sweep(where):
        return {}
    with opened(where) as records:
        sweep = load_sweep(records)
        if missing := missing_input(sweep):
            raise BadInput(f"{where}: {missing}")
        if not (sweep.folder / FIRST_STAGE).is_dir():
            return {}
        values, dev = (
            _keyed(
                table[["query_id", "measure", "value"]].astype({"query_id": str, "measure": str})
            )
            for table in (first_stage_scores(sweep), first_stage_scores(sweep, "dev"))
        )
    name = sweep.first_stage_name
    run = TrainingRun(
        f"{where}:{name}",
        values=values,
        dev=None if sweep.dev_scores.empty else dev,
        look=sweep.look,
        seed=1,
        deterministic=True,
        collection=str(sweep.about.collection.get("name", "")),
        queries=queries_of_sweep(sweep.folder, sweep.split),
    )
    return {name: [run]}


def _of_sweep(where: str) -> Held:
    """The cells of a sweep by their labels, on its reported split."""
    with opened(where) as records:
        sweep = load_sweep(records)
        if sweep.aggregates:
            sweep = with_interpolated(sweep, "none")  # its rows are aggregations
    return runs_of(sweep, where)


def runs_of(sweep: Sweep, where: str, *, all_rows: bool = False) -> Held:
    """The cells of a sweep by their labels, with `all_rows` also its first stage, which comes
    first, and the systems interpolated with it."""
    further = [sweep.first_stage, *sweep.interpolated] if all_rows else []
    rows = {row.name: row for row in further if row is not None}
    labels = {cell.cell: cell.label for cell in sweep.cells}
    labels = {row.name: row.label for row in rows.values() if not row.of} | labels
    labels |= {row.name: row.label for row in rows.values() if row.of}
    runs: Held = {label: [] for label in labels.values()}
    queries = queries_of_sweep(sweep.folder, sweep.split)
    out = left_out(sweep)
    on_dev = (
        sweep.dev_scores.groupby(["cell", "seed"], observed=True) if len(sweep.dev_scores) else ()
    )
    dev_of = {key: rows[["query_id", "measure", "value"]] for key, rows in on_dev}
    for table in (sweep.scores, *(row.scores for row in rows.values())):
        for (name, seed), values in table.groupby(["cell", "seed"], observed=True):
            label = labels[str(name)]
            facts = _trained_on(sweep, str(name), int(seed), rows.get(str(name)))
            place = f"{where}:{label}, seed {seed}"
            facts |= {"queries": queries, "dev": _dev(dev_of, str(name), int(seed), out)}
            runs[label].append(TrainingRun(place, values=_in_order(values, sweep), **facts))
    return {label: group for label, group in runs.items() if group}


def _in_order(values: pd.DataFrame, sweep: Sweep) -> pd.DataFrame:
    """The values of a run, the primary measure first."""
    order = [sweep.primary, *(name for name in sweep.measures if name != sweep.primary)]
    by_measure = dict(list(values.groupby("measure", observed=True)))
    table = pd.concat([by_measure[name] for name in order])[["query_id", "measure", "value"]]
    return _keyed(table.astype({"query_id": str, "measure": str}))


def _trained_on(sweep: Sweep, name: str, seed: int, row: System | None) -> dict[str, Any]:
    """Where the weights of a cell come from, or those of a row that is none."""
    cell = row.of if row else name
    config = next((known.config for known in sweep.about.cells if known.cell == cell), {})
    untrained = not cell or config.get("training.num_epochs") == 0
    return {
        "seed": seed,
        "deterministic": row.deterministic if row else name in sweep.deterministic,
        "collection": str(sweep.about.collection.get("name", "")),
        "trained": not untrained,
        "weights": trained_trial(cell, seed, config) if cell else "",
        "cell": "" if row else name,
        "paired": None if untrained else sweep.tests.paired_seeds,
        "look": sweep.look,
    }


def _dev(
    dev_of: Mapping[Any, pd.DataFrame], cell: str, seed: int, out: Collection[str]
) -> pd.DataFrame | None:
    found = dev_of.get((cell, seed))
    if found is None:
        return None
    found = found[:0] if cell in out else found
    return _keyed(found.astype({"query_id": str, "measure": str}))


def trained_trial(cell: str, seed: int, config: Mapping[str, Any]) -> str:
    """The name of the trial that trained the weights of a sweep's trial: its own, or that of
    `training.init_from`; empty where nothing was trained."""
    if config.get("training.num_epochs") != 0:
        return trial_name(cell, seed)
    start = str(config.get("training.init_from") or "")
    path = Path(stored_cell(start) or start.removesuffix(f"/{WEIGHTS}"))
    named = SEED.fullmatch(path.name)
    return path.name if named or not start else trial_name(path.name, seed)


def _of_mlflow(where: str, tracking_uri: str | None) -> Held:
    """The finished runs of an experiment that have a table, oldest first, or one run, by system:
    the name of the MLflow run, as a table of ranksweep names a cell by its hash. Names that differ
    only in a number at the end (`#2`) are of one system; cells of one name are not, and are told
    apart by their hash."""
    uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI", "")
    if not uri:
        raise BadInput(f"{where} needs --tracking-uri, or MLFLOW_TRACKING_URI")
    check_tracking_uri(uri)
    if uri.startswith("sqlite:") and not sqlite_file(uri).is_file():
        raise BadInput(f"--tracking-uri must name a database, but {uri} does not exist")
    systems: dict[tuple[str, str], list[TrainingRun]] = {}
    try:
        client = connect(uri)
        for run, artifact in _runs_with_tables(client, where):
            place, run_id = f"{RUN}{run.info.run_id}/{artifact}", run.info.run_id
            with TemporaryDirectory() as folder:
                copy = Path(client.download_artifacts(run_id, artifact, folder))
                held = _of_file(copy, named=place)
            for name, runs in held.items():
                system = _system_of(run) if len(held) == 1 else (name, "")
                systems.setdefault(system, []).extend(runs)
    except BadInput:
        raise
    except Exception as error:  # MLflow, its database and the network have many kinds
        text = f"{where}: MLflow does not have it or does not answer: {reason(error)}"
        raise BadInput(text) from None
    names = [name for name, _ in systems]
    return {
        name if names.count(name) == 1 else f"{name} ({cell})": runs
        for (name, cell), runs in systems.items()
    }


def _runs_with_tables(client: "MlflowClient", where: str) -> Iterator[tuple["MlflowRun", str]]:
    """(run, path of its table) of `runs:/ID[/PATH]` or `mlflow:EXPERIMENT`."""
    if where.startswith(RUN):
        run_id, _, artifact = where.removeprefix(RUN).partition("/")
        if not (artifact := artifact or _table_of(client, run_id)):
            raise BadInput(f"{where} has no {', '.join(TABLES)}; name its table: {where}/PATH")
        yield client.get_run(run_id), artifact
        return
    name = where.removeprefix(EXPERIMENT)
    if (experiment := client.get_experiment_by_name(name)) is None:
        raise unknown("experiment", name, [known.name for known in client.search_experiments()])
    finished = partial(
        client.search_runs,
        [experiment.experiment_id],
        filter_string="attributes.status = 'FINISHED'",
        order_by=["attributes.start_time"],
    )
    tables = [(run, _table_of(client, run.info.run_id)) for run in every_page(finished)]
    if not any(artifact for _, artifact in tables):
        raise BadInput(f"{where}: none of its finished runs has {', '.join(TABLES)}")
    yield from ((run, artifact) for run, artifact in tables if artifact)


def _system_of(run: "MlflowRun") -> tuple[str, str]:
    """The name of a run's system, and its cell; "" for a run that is not a trial of ranksweep."""
    tags = run.data.tags
    name = tags.get("config.id") or re.sub(r"\s*#\d+$", "", run.info.run_name or "")
    return name or str(run.info.run_id), tags.get("config.hash", "")


def _table_of(client: "MlflowClient", run_id: str) -> str:
    """The path of a run's table; "" where it has none."""
    listed = [*client.list_artifacts(run_id), *client.list_artifacts(run_id, "eval")]
    paths = {artifact.path for artifact in listed}
    return next((name for name in TABLES if name in paths), "")


def _of_file(path: Path, named: str = "") -> Held:
    """The training runs of a file; `named` is the origin of a copy."""
    where = named or str(path)
    with open_content(path) as content:
        is_parquet = content.read(4) == b"PAR1"
    lines = iter(()) if is_parquet else record_lines(path)
    number, line = next(lines, (0, ""))
    if SEPARATOR.fullmatch(line.strip()):
        number, line = next(lines, (0, ""))
    if is_ranked(line.split()):  # whatever its query id begins with
        return {"": [TrainingRun(where, ranking=partial(read_ranked, path))]}
    if is_parquet or line.lstrip().startswith(("{", "[")):
        return _held(_parquet(path) if is_parquet else _json(path), where, f"{where}, row ")
    separator = next((mark for mark in "\t,;" if mark in line), "\t")
    header = [name.strip(' "').lower() for name in line.split(separator)]
    if {*header} & {*COLUMNS["query"]}:
        check_columns(f"{path}:{number}", header)
        return _held(_delimited(path, separator), where, f"{where}:")
    fields = line.split()
    if len(fields) == 6:  # with a bad rank or score, which its reader names
        return {"": [TrainingRun(where, ranking=partial(read_ranked, path))]}
    found = f"{path}:{number}: found {shown(line)}" if number else f"{path} is empty"
    named_text = len(fields) == 3 and (fields[0] == "runid" or _TEXT_VALUE.fullmatch(fields[2]))
    if len(fields) != 3 or not (named_text or _is_number(fields[2])):
        raise BadInput(f"{found}; a source must be {KINDS}")
    printed, note = _as_printed(path, found)
    return _held(printed, where, f"{where}:", note)


_TEXT_VALUE = re.compile("'.*'")  # of trec_eval's relstring


def _is_number(text: str) -> bool:
    return bool(pd.notna(pd.to_numeric(text, errors="coerce")))


def _as_printed(path: Path, found: str) -> tuple[pd.DataFrame, str]:
    """What trec_eval -q prints (measure, query, value), or ir_measures -q (query, measure, value),
    without the means, and a note on lines that have a text for a value, such as the relstring of
    `-m all_trec`."""
    lines: dict[int, list[str]] = {}
    for number, line in read_lines(path):
        if len(fields := line.split()) != 3:
            raise BadInput(f"{path}:{number}: a line must have 3 columns, found {len(fields)}")
        lines[number] = fields
    frame = _with_names(pd.DataFrame.from_dict(lines, "index", columns=[*"abc"]), found)
    is_text = frame["value"].str.fullmatch(_TEXT_VALUE) | (frame["measure"] == "runid")
    frame, left = frame[~is_text], frame.loc[is_text & ~frame["query_id"].isin(_SUMMARY), "measure"]
    note = ""
    if unread := [*dict.fromkeys(left)]:
        note = f"Lines whose value is a text are not read: {names_text(unread)}."
    # Both programs end with the means, behind a query of this name.
    is_mean = frame["query_id"].isin(_SUMMARY) & ~frame.duplicated(["query_id", "measure"], "last")
    if is_mean.all():
        raise BadInput(f"{path}:{frame.index[0]}: {_MEANS_ALONE}")
    return frame[~is_mean], note


def _with_names(frame: pd.DataFrame, found: str) -> pd.DataFrame:
    """The three columns with names: the first line with a measure says which is which, else the
    query id of the means."""
    frame = frame.set_axis(["first", "second", "value"], axis=1)
    by_query = frame.rename(columns={"first": "query_id", "second": "measure"})
    by_measure = frame.rename(columns={"first": "measure", "second": "query_id"})
    for first, second in zip(frame["first"], frame["second"], strict=True):
        if _is_measure(first):
            return by_measure
        if _is_measure(second):
            return by_query
    for named in (by_measure, by_query):
        if named["query_id"].isin(_SUMMARY).any():
            return named
    raise BadInput(
        f"{found}; three columns without names must be what trec_eval -q or ir_measures -q prints, "
        "and none of these is a measure. Values of another measure need a first line `query_id "
        "measure value`, separated by tabs or commas; a run needs the columns of a TREC run, also "
        "where it has ranks alone (MS MARCO's query_id, doc_id, rank)"
    )


def _is_measure(name: str) -> bool:
    """True for a name of ir_measures, and for one of trec_eval that stands for one of them."""
    return parsed(name) is not None or measure_key(name) != name


def _parquet(path: Path) -> pd.DataFrame:
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as file:
            check_parquet(file, path, path.stat().st_size)
        return pd.read_parquet(path)
    except BadInput:
        raise
    except Exception as error:  # pyarrow has many kinds
        raise BadInput(f"{path} must be a whole Parquet file: {error}") from None


def _json(path: Path) -> pd.DataFrame:
    """{"columns": [...], "data": [...]} as MLflow writes tables, or records, in a list or in a line
    each."""
    first = next(read_lines(path))[1].lstrip()
    if first.startswith("{") and (whole := _one_object(path)) is not None:
        return _of_object(path, whole)
    rows = []
    for place, record in json_records(path, as_list=first.startswith("[")):
        if any(isinstance(value, list | dict) for value in record.values()):
            raise BadInput(f"{place}: values must be texts and numbers, not lists and objects")
        for name, value in record.items():
            unicode_text(place, name, value if isinstance(value, str) else name)
        rows.append(record)
    return pd.DataFrame(rows)


def _one_object(path: Path) -> dict[str, Any] | None:
    """The object that a whole file is; None for anything else, such as several lines with one."""
    with suppress(ValueError):
        text = "\n".join(line for _, line in read_lines(path))
        return dict(parsed_json(text, object_pairs_hook=unique_fields))
    return None


def _of_object(path: Path, whole: dict[str, Any]) -> pd.DataFrame:
    """The table of one JSON object: MLflow's, or the only record of its file."""
    if not {"columns", "data"} <= whole.keys():
        if WRAPPERS & whole.keys():
            return pd.DataFrame([record for _, record in hits_in(str(path), whole)])
        if any(isinstance(value, list | dict) for value in whole.values()):
            raise BadInput(
                f"{path}: not a table in JSON, which is a list of records with query_id, measure, "
                'value, a record per line, or {"columns": [...], "data": [[...]]}'
            )
        for name, value in whole.items():
            unicode_text(str(path), name, value if isinstance(value, str) else name)
        return pd.DataFrame([whole])
    try:
        return pd.DataFrame(whole["data"], columns=whole["columns"])
    except (ValueError, TypeError) as error:
        raise BadInput(f"{path}: not a table in JSON: {error}") from None


def _delimited(path: Path, separator: str) -> pd.DataFrame:
    """All texts of a CSV or TSV file, with the numbers of its lines as the index."""
    rows = delimited_rows(path, separator, spaced=True)
    _, names = next(rows)
    lines = {number: [from_csv(cell.strip()) for cell in row] for number, row in rows}
    return pd.DataFrame.from_dict(lines, "index", columns=names, dtype=object)


def parsed(name: str) -> Any:
    """The measure that ir_measures knows by this name, or None."""
    import ir_measures

    with suppress(NameError, ValueError, TypeError, SyntaxError):
        return ir_measures.parse_measure(name)
    return None


_OF_TREC_EVAL = re.compile(r"[A-Za-z_]+([._]\d+(\.\d+)?)?")


@cache
def measure_key(name: str) -> str:
    """The spelling of ir_measures: `nDCG@10` for `ndcg_cut_10`; unknown names are unchanged."""
    import ir_measures

    if (measure := parsed(name)) is not None:
        return str(measure)
    if not _OF_TREC_EVAL.fullmatch(name):  # ir_measures reads the beginning of ndcg_cut_10_std
        return name
    with suppress(ValueError):
        measures = ir_measures.parse_trec_measure(name)
        return str(measures[0]) if len(measures) == 1 else name
    return name


def _keyed(values: pd.DataFrame) -> pd.DataFrame:
    names = {name: measure_key(name) for name in values["measure"].unique()}
    return values.assign(measure=values["measure"].map(names)).reset_index(drop=True)


def _named(frame: pd.DataFrame) -> pd.DataFrame:
    """A table whose columns have the names of `COLUMNS`, as far as they are known."""
    by_name = {str(name).strip().lower(): name for name in frame.columns}
    if "docno" in by_name and "docid" in by_name:  # the number of its row in a PyTerrier index
        frame = frame.drop(columns=by_name.pop("docid"))
    kinds = {
        next(by_name[name] for name in names if name in by_name): kind
        for kind, names in COLUMNS.items()
        if any(name in by_name for name in names)
    }
    for kind, names in _ONE_MEANING.items():
        _check_agree(frame, kind, [by_name[name] for name in names if name in by_name])
    others = [name for name in frame.columns if name in COLUMNS and name not in kinds]
    return frame.drop(columns=others).rename(columns=kinds)


def _check_agree(frame: pd.DataFrame, kind: str, columns: list[str]) -> None:
    """Refuse two columns of one content with different values."""
    for other in columns[1:]:
        if (frame[columns[0]].astype(str) != frame[other].astype(str)).any():
            raise BadInput(
                f"{columns[0]} and {other} are both names of the {kind} and differ; remove one of "
                "the columns"
            )


def _held(frame: pd.DataFrame, where: str, row: str, note: str = "") -> Held:
    """The training runs of a table, of several splits those of test; `row` and the index of a row
    name its place in messages, `note` says what of it is not read."""
    check_columns(where, [str(name) for name in frame.columns])
    levels = [name for name in frame.index.names if name is not None and name not in frame]
    if levels:  # pandas and its Parquet files may have the ids there
        frame = frame.reset_index(level=levels)
    try:
        frame = _named(frame)
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from None
    if "query" not in frame or frame.empty:
        what = f"has {', '.join(map(str, frame.columns))}" if len(frame) else "has no row"
        raise BadInput(f"{where}: a source must be {KINDS}; the table {what}")
    frame, other_splits = _of_test(frame, where)
    note = " ".join(filter(None, (note, other_splits)))
    frame = frame.assign(query=_ids(frame["query"], row))
    if "seed" in frame:
        seeds = pd.to_numeric(frame["seed"], errors="coerce")
        bad = seeds.isna() | (seeds % 1 != 0)
        _refuse(bad, frame, row, "a seed must be a whole number, found {seed!r}")
        frame = frame.assign(seed=seeds.astype("int64"))
    systems = _texts(frame["system"], row) if "system" in frame else pd.Series("", frame.index)
    return {
        str(system): [
            _content(part, f"{where}:{system}, seed {seed}", int(seed), row, note)
            for seed, part in rows.groupby("seed", observed=True)
        ]
        if "seed" in frame
        else [_content(rows, where, None, row, note)]
        for system, rows in frame.groupby(systems, sort=False, observed=True)
    }


def _of_test(frame: pd.DataFrame, where: str) -> tuple[pd.DataFrame, str]:
    """The rows of split test where a table has several splits, and a note on the others."""
    if "split" not in frame:
        return frame, ""
    splits = frame["split"].astype(object).where(frame["split"].notna(), "").astype(str)
    splits = splits.replace("", "(empty)")
    if splits.nunique() == 1:
        return frame, ""
    if "test" not in {*splits}:
        raise BadInput(f"{where}: the splits must be one, or one of them test")
    others = names_text(sorted({*splits} - {"test"}))
    return frame[splits == "test"], f"Only the rows of split test are read, not those of {others}."


def _refuse(bad: "pd.Series[bool]", frame: pd.DataFrame, row: str, law: str) -> None:
    """Raise `BadInput` for the first bad row of a table; `law` may show values: {column!r}."""
    for number, values in frame[bad.to_numpy()].iloc[:1].iterrows():
        raise BadInput(f"{row}{number}: {law.format_map(values)}")


def _content(frame: pd.DataFrame, where: str, seed: int | None, row: str, note: str) -> TrainingRun:
    """A training run from the rows of its ranking or of its values."""
    _check_undivided(frame, where)
    if {"document", "score"} <= set(frame.columns):
        run = _run(frame, row)
        return TrainingRun(where, ranking=lambda: run, seed=seed, note=note)
    if "document" in frame and "measure" not in frame:
        raise BadInput(
            f"{where}: a run needs the column score, also where it has ranks or distances; found "
            f"{', '.join(map(str, frame.columns))}"
        )
    values, as_query = _values(frame, row)
    note = " ".join(filter(None, (note, as_query)))
    return TrainingRun(where, values=_keyed(values), seed=seed, note=note)


def _check_undivided(frame: pd.DataFrame, where: str) -> None:
    """Refuse a column that is not read and says that the rows are of several systems, query sets or
    cutoffs."""
    for name in frame.columns:
        low = str(name).lower()
        if low in _PARTS and frame[name].nunique() > 1:
            raise BadInput(
                f"{where}: {name} has {frame[name].nunique()} values and is not read; name the "
                "column system or seed if these are such, else give each its own file"
            )
        if low in _CUTOFFS and "measure" in frame:
            raise BadInput(
                f"{where}: {name} is not read; the name of a measure must have its cutoff, such as "
                "nDCG@10"
            )


def _run(frame: pd.DataFrame, row: str) -> RankedFile:
    places = [f"{row}{number}" for number in frame.index]
    given = frame["rank"] if "rank" in frame else pd.Series(0, frame.index)
    ranks = [rank_of(place, rank) for place, rank in zip(places, given, strict=True)]
    columns = (frame["query"], frame["document"], frame["score"], ranks)
    return gathered_run(zip(places, *columns, strict=True))


def _values(frame: pd.DataFrame, row: str) -> tuple[pd.DataFrame, str]:
    """query_id, measure, value of a long table, or of a table with a column per measure, without
    means, and a note on a query that is called as they are."""
    value = "value" if "value" in frame else "score"
    if {"measure", value} <= set(frame.columns):
        parts = [(_texts(frame["measure"], row), frame[value])]
    else:
        parts = [(name, frame[name]) for name in _measures_of(frame, row)]
    values = pd.concat(
        pd.DataFrame({"query_id": frame["query"], "measure": measure, "value": column})
        for measure, column in parts
    )
    if values["query_id"].isin(_SUMMARY).all():
        raise BadInput(f"{row}{frame.index[0]}: {_MEANS_ALONE}")
    values, note = _without_means(values.assign(value=_numbers(values["value"], row)))
    _check_bounds(values, row)
    law = "{measure} of query {query_id!r} occurs twice; runs and systems of one table are "
    law += "distinguished by the columns seed and system"
    _refuse(values.duplicated(["query_id", "measure"]), values, row, law)
    keys = values["measure"].map(measure_key)
    twice = values.assign(measure=keys).duplicated(["query_id", "measure"])
    law = "{measure} of query {query_id!r} occurs twice, under two names of the measure"
    _refuse(twice, values, row, law)
    return values, note


def _without_means(values: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The values without rows that are called means, and are: of all measures from 0 to 1, as tools
    print a sum for the counts. A note on such a name that is of a query."""
    called = values["query_id"].str.lower()
    queries: list[str] = []
    for name in sorted({*called} & {*_MEANS}):
        stated, others = values[called == name], values[~called.isin(_MEANS) | called.isin(queries)]
        means = others.groupby("measure", observed=True)["value"].mean()
        expected = stated["measure"].map(means).astype(float)
        shares = [bounds_of(measure_key(str(measure))) == (0, 1) for measure in stated["measure"]]
        compared = expected.notna() & (np.array(shares) | ~np.any(shares))
        if np.isclose(stated["value"], expected, atol=1e-3)[compared].all():
            values = values[called != name]
            called = called[called != name]
        else:
            queries.append(name)
    named = sorted({*values.loc[called.isin(queries), "query_id"]})
    if not named:
        return values, ""
    return values, f"Read as a query, as its values are not the means: {names_text(named)}."


_LAST_DIGITS = 1e-6  # of a value in single precision


def _check_bounds(values: pd.DataFrame, row: str) -> None:
    """Refuse a value that its measure cannot have, such as one in percent."""
    for name, rows in values.groupby("measure", sort=False, observed=True):
        low, high = bounds_of(measure_key(str(name)))
        outside = (rows["value"] < low - _LAST_DIGITS) | (rows["value"] > high + _LAST_DIGITS)
        law = f"a value of {name} must be {low:g} or more, found {{value:g}}"
        if math.isfinite(high):
            law = f"a value of {name} must be from {low:g} to {high:g}, found {{value:g}}"
            if rows["value"].between(low, 100 * high).all():
                law += "; are the values in percent? Divide them by 100"
        _refuse(outside, rows, row, law)


def _measures_of(frame: pd.DataFrame, row: str) -> list[str]:
    """The measures of a table with a column for each: the columns that are called as a measure, and
    those of whose values, empty ones aside, half or more are numbers."""

    def has_numbers(values: "pd.Series[Any]") -> bool:
        given = values[values.astype(str).str.strip().ne("") & values.notna()]
        numbers = pd.to_numeric(given, errors="coerce").notna().sum()
        return bool(0 < len(given) <= 2 * numbers)

    names = [str(name) for name in frame.columns if str(name).lower() not in _NO_MEASURES]
    names = [name for name in names if name.strip() and not name.startswith("Unnamed:")]
    names = [name for name in names if _is_measure(name) or has_numbers(frame[name])]
    if not names:
        raise BadInput(
            f"{row}{frame.index[0]}: a table must have the columns measure and value or a "
            f"column of numbers per measure, found {', '.join(map(str, frame.columns))}"
        )
    return names


def _numbers(values: "pd.Series[Any]", row: str) -> "pd.Series[float]":
    """The values as finite numbers."""
    numbers = pd.to_numeric(values, errors="coerce").astype("float64")
    bad = ~np.isfinite(numbers)
    hint = "".join(point_hint(value) for value in values[bad.to_numpy()].iloc[:1])
    law = f"a value must be a finite number, found {{value!r}}{hint}"
    _refuse(bad, values.astype(object).to_frame("value"), row, law)
    return numbers


def _ids(values: "pd.Series[Any]", row: str) -> list[str]:
    """The ids of queries as texts."""
    return [identifier(f"{row}{number}", "query_id", value) for number, value in values.items()]


def _texts(values: "pd.Series[Any]", row: str) -> "pd.Series[str]":
    """Names as texts: 301 for the 301.0 that pandas makes of a column with a hole. Raises
    `BadInput` for a missing one."""
    empty = values.isna() | (values.astype(str).str.strip() == "")
    _refuse(empty, values.to_frame("name"), row, f"{values.name} must have a name, found none")
    if pd.api.types.is_float_dtype(values) and (values % 1 == 0).all():
        values = values.astype("int64")
    return values.astype(str)
