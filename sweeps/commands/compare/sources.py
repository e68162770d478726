"""The sources of a comparison: files, folders, tables and MLflow runs, by system.

The kind of a source is recognised by its content: a TREC run, a table of per-query values with any
of the `COLUMNS` below (CSV, TSV, Parquet, JSON, a data frame), the output of `trec_eval -q` or
`ir_measures -q`, the folder of a sweep or of an earlier comparison.
"""

import csv
import json
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import pandas as pd

from rank_core.data.named_files import PREFIX, named_run
from rank_core.data.trec import open_content, read_lines, read_run
from rank_core.errors import BadInput, shown, unknown
from rank_core.records import Qrels, Run
from sweeps.commands.compare.mlflow_runs import is_mlflow, run_tables
from sweeps.report.load import load_sweep
from sweeps.store.checksums import SCORES
from sweeps.store.opened_sweep import opened
from sweeps.store.sweep_file import FILE

Source: TypeAlias = str | Path | pd.DataFrame

COLUMNS = {
    "query": ("query_id", "qid", "q_id", "topic", "query"),
    "document": ("doc_id", "docno", "docid"),
    "score": ("score",),
    "measure": ("measure", "metric"),
    "value": ("value", "score"),
    "relevance": ("relevance", "label", "rel"),
    "system": ("system", "name", "cell"),
    "seed": ("seed",),
    "split": ("split",),
}
"""{content of a column: its names in any case, the preferred name first}."""

KINDS = (
    "a TREC run (query_id Q0 doc_id rank score tag), a table of values with the columns query_id, "
    "measure, value or query_id and a column per measure, a data frame of a run with the columns "
    "query_id, doc_id, score, or what trec_eval -q or ir_measures -q prints"
)
_PARQUET = b"PAR1"
_SUMMARY = "all"  # trec_eval's and ir_measures' query id of the mean
_NO_MEASURES = {"rank", "iteration", "q0", "query_set"}
"""Columns of numbers that are no measures, in a table with a column per measure."""


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """A training run of a system: a ranking, or per-query values."""

    where: str
    ranking: Callable[[], Run] | None = None
    values: pd.DataFrame | None = None  # query_id, measure, value; measures by `measure_key`
    seed: int | None = None  # None where the source has no seeds
    deterministic: bool = False

    @property
    def name(self) -> str:
        """The short form of its place; the label of a sweep's cell (`DIR:MaxP 48/32`) stays
        whole."""
        if "://" in self.where:
            return self.where
        path, colon, label = self.where.partition(":")
        return f"{Path(path).name or path}{colon}{label}"

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures of its values, in their order."""
        return () if self.values is None else tuple(dict.fromkeys(self.values["measure"]))


def training_runs(
    source: Source, *, where: str = "the table", tracking_uri: str | None = None
) -> dict[str, list[TrainingRun]]:
    """{system that the source names, "" where it names none: its training runs}.

    A text may end in `:NAME`, one of the systems of the source. `where` names a data frame in
    messages; `tracking_uri` is MLflow's, for `mlflow:EXPERIMENT` and `runs:/ID`.
    """
    if isinstance(source, pd.DataFrame):
        return _of_frame(source, where, lambda row: f"{where}, row {row}")
    text = str(source)
    systems = _of_text(text, tracking_uri)
    if systems is not None:
        return systems
    base, _, name = text.rpartition(":")
    inside = _of_text(base, tracking_uri) if base else None
    if inside is None:
        return _of_file(Path(text))  # raises: it does not exist
    if name not in inside:
        raise unknown(f"system of {base}", name, filter(None, inside))
    return {name: inside[name]}


def _of_text(text: str, tracking_uri: str | None) -> dict[str, list[TrainingRun]] | None:
    """The training runs that a text names; None if it names nothing."""
    if is_mlflow(text):
        return _of_mlflow(text, tracking_uri)
    if text.startswith(PREFIX):
        return {"": [TrainingRun(text, ranking=lambda: dict(named_run(text)))]}
    path = Path(text)
    if "://" in text or (path / FILE).exists():
        return _of_sweep(text)
    if path.is_dir():
        if not (path / SCORES).is_file():
            raise BadInput(
                f"a folder is compared if it is a sweep's ({FILE}) or a comparison's ({SCORES}); "
                f"{path} has neither"
            )
        path /= SCORES
    return _of_file(path) if path.exists() else None


def _of_sweep(where: str) -> dict[str, list[TrainingRun]]:
    """The cells of a sweep by their labels, on its reported split."""
    if "://" in where and where.partition("://")[2].count(":"):
        return _chosen_cell(where)
    with opened(where) as store:
        sweep = load_sweep(store.folder)
    order = [sweep.primary, *(measure for measure in sweep.measures if measure != sweep.primary)]
    runs: dict[str, list[TrainingRun]] = {}
    for (cell, seed), rows in sweep.scores.groupby(["cell", "seed"], observed=True):
        by_measure = dict(list(rows.groupby("measure", observed=True)))
        values = pd.concat([by_measure[name] for name in order])[["query_id", "measure", "value"]]
        label = sweep.label(str(cell))
        runs.setdefault(label, []).append(
            TrainingRun(
                f"{where}:{label}, seed {seed}",
                values=_keyed(values.astype({"query_id": str, "measure": str})),
                seed=int(seed),
                deterministic=str(cell) in sweep.deterministic,
            )
        )
    return {cell.label: runs[cell.label] for cell in sweep.cells if cell.label in runs}


def _chosen_cell(where: str) -> dict[str, list[TrainingRun]]:
    """The runs of one cell of a sweep at a URI: `s3://bucket/sweeps/DIR:LABEL`."""
    scheme, _, rest = where.partition("://")
    path, _, label = rest.partition(":")
    systems = _of_sweep(f"{scheme}://{path}")
    if label not in systems:
        raise unknown(f"system of {scheme}://{path}", label, systems)
    return {label: systems[label]}


def _of_mlflow(where: str, tracking_uri: str | None) -> dict[str, list[TrainingRun]]:
    """The runs by system. A table of ranksweep names a cell by its hash, so the name of the MLflow
    run is used."""
    systems: dict[str, list[TrainingRun]] = {}
    with TemporaryDirectory() as folder:
        for table in run_tables(where, tracking_uri, Path(folder)):
            own = _of_file(table.path, named=table.where)
            for name, runs in own.items():
                systems.setdefault(table.system if len(own) == 1 else name, []).extend(runs)
    return systems


def _of_file(path: Path, named: str = "") -> dict[str, list[TrainingRun]]:
    """The training runs of a file; `named` is the origin of a copy."""
    where = named or str(path)
    with open_content(path) as content:
        begins = content.read(len(_PARQUET))
    if begins == _PARQUET:
        frame = _parquet(path)
        return _of_frame(frame, where, lambda row: f"{where}, row {row}")
    number, line = next(read_lines(path), (0, ""))
    if not number:
        raise BadInput(f"{path} is empty")
    if line.lstrip().startswith(("{", "[")):
        return _of_frame(_json(path), where, lambda row: f"{where}, row {row}")
    separator = next((mark for mark in "\t,;" if mark in line), "\t")
    header = [name.strip() for name in next(csv.reader([line], delimiter=separator))]
    if {name.lower() for name in header} & set(COLUMNS["query"]):
        frame = _delimited(path, separator, header)
        return _of_frame(frame, where, lambda row: f"{where}:{row}")
    fields = line.split()
    if len(fields) == 6:
        return {"": [TrainingRun(where, ranking=partial(read_run, path))]}
    if len(fields) == 3:
        return {"": [TrainingRun(where, values=_tool_output(path))]}
    raise BadInput(f"{path}:{number}: a source must be {KINDS}; found: {shown(line)}")


def _parquet(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except Exception as error:  # pyarrow has many kinds
        raise BadInput(f"{path} must be a whole Parquet file: {error}") from None


def _json(path: Path) -> pd.DataFrame:
    """{"columns": [...], "data": [...]} as MLflow writes tables, a list of records, or a record a
    line."""
    lines = list(read_lines(path))
    try:
        whole = json.loads("\n".join(line for _, line in lines))
    except ValueError:
        whole = None
    try:
        if isinstance(whole, dict) and {"columns", "data"} <= whole.keys():
            return pd.DataFrame(whole["data"], columns=whole["columns"])
        records = whole if isinstance(whole, list) else [json.loads(line) for _, line in lines]
        return pd.DataFrame(records)
    except (ValueError, TypeError) as error:
        raise BadInput(f"{path}: not a table in JSON: {error}") from None


def _delimited(path: Path, separator: str, header: Sequence[str]) -> pd.DataFrame:
    """All texts of a CSV or TSV file, its line numbers as the index."""
    rows = []
    numbers = []
    for number, line in read_lines(path):
        fields = next(csv.reader([line], delimiter=separator))
        if len(fields) != len(header):
            raise BadInput(
                f"{path}:{number}: a line must have the {len(header)} columns of the first one "
                f"({', '.join(header)}), found {len(fields)}: {shown(line)}"
            )
        rows.append(fields)
        numbers.append(number)
    return pd.DataFrame(rows[1:], columns=list(header), index=numbers[1:])


def _tool_output(path: Path) -> pd.DataFrame:
    """The values of `trec_eval -q` (measure, query, value) or `ir_measures -q` (query, measure,
    value)."""
    rows: list[tuple[str, str, float]] = []
    seen = set()
    place: dict[str, int] = {}
    for number, line in read_lines(path):
        fields = line.split()
        if not place:
            place = _places(fields, f"{path}:{number}", line)
        if len(fields) != 3:
            raise BadInput(
                f"{path}:{number}: a line must have 3 columns (a query, a measure, its value), "
                f"found {len(fields)}: {shown(line)}"
            )
        query_id, measure = fields[place["query"]], fields[place["measure"]]
        if query_id == _SUMMARY:
            continue
        if (query_id, measure) in seen:
            raise BadInput(f"{path}:{number}: {measure} of query {query_id!r} occurs twice")
        seen.add((query_id, measure))
        rows.append((query_id, measure, _number(fields[2], f"{path}:{number}")))
    return _keyed(pd.DataFrame(rows, columns=["query_id", "measure", "value"]))


def _places(fields: Sequence[str], place: str, line: str) -> dict[str, int]:
    """{query, measure: column} of a tool's first line."""
    if len(fields) == 3 and _is_measure(fields[1], ours=True):
        return {"query": 0, "measure": 1}
    if len(fields) == 3 and _is_measure(fields[0], ours=False):
        return {"query": 1, "measure": 0}
    raise BadInput(f"{place}: a source must be {KINDS}; found: {shown(line)}")


def _is_measure(name: str, *, ours: bool) -> bool:
    import ir_measures

    try:
        (ir_measures.parse_measure if ours else ir_measures.parse_trec_measure)(name)
    except (NameError, ValueError, TypeError, SyntaxError) as error:
        return "known trec name" in str(error)  # of which ir_measures has no measure
    return True


@cache
def measure_key(name: str) -> str:
    """The spelling of ir_measures: `nDCG@10` for `ndcg_cut_10`; unknown names are unchanged."""
    import ir_measures

    try:
        return str(ir_measures.parse_measure(name))
    except (NameError, ValueError, TypeError, SyntaxError):
        pass
    try:
        measures = ir_measures.parse_trec_measure(name)
    except ValueError:
        return name
    return str(measures[0]) if len(measures) == 1 else name


def _keyed(values: pd.DataFrame) -> pd.DataFrame:
    names = {name: measure_key(name) for name in values["measure"].unique()}
    return values.assign(measure=values["measure"].map(names)).reset_index(drop=True)


def _columns(frame: pd.DataFrame) -> dict[str, Hashable]:
    """{content: the column} of a frame."""
    by_name = {str(name).strip().lower(): name for name in frame.columns}
    return {
        kind: by_name[next(name for name in names if name in by_name)]
        for kind, names in COLUMNS.items()
        if any(name in by_name for name in names)
    }


def _of_frame(
    frame: pd.DataFrame, where: str, place: Callable[[Any], str]
) -> dict[str, list[TrainingRun]]:
    """The training runs of a table; `place` names a row in messages, by its index."""
    column = _columns(frame)
    if "query" not in column or frame.empty:
        what = "has no row" if "query" in column else f"has {', '.join(map(str, frame.columns))}"
        raise BadInput(f"{where}: a source must be {KINDS}; the table {what}")
    frame = _one_split(frame, column, where)
    query_ids = _texts(frame[column["query"]])
    for row in frame.index[query_ids.str.strip() == ""][:1]:
        raise BadInput(f"{place(row)}: a query must have an id, found an empty one")
    frame = frame.assign(**{str(column["query"]): query_ids})
    return {
        system: [
            TrainingRun(
                f"{where}:{system}, seed {seed}" if seed is not None else where,
                **_content(part, column, place),
                seed=seed,
            )
            for seed, part in _parts(of_system, column.get("seed"), place)
        ]
        for system, of_system in _systems(frame, column.get("system"))
    }


def _one_split(frame: pd.DataFrame, column: Mapping[str, Hashable], where: str) -> pd.DataFrame:
    """The rows of split test where the table has several splits."""
    splits = list(map(str, frame[column["split"]].unique())) if "split" in column else []
    if len(splits) < 2:
        return frame
    if "test" not in splits:
        raise BadInput(f"{where}: the splits must be one, or one of them test; found {splits}")
    return frame[frame[column["split"]].astype(str) == "test"]


def _systems(frame: pd.DataFrame, column: Hashable | None) -> Iterator[tuple[str, pd.DataFrame]]:
    if column is None:
        yield "", frame
        return
    names = _texts(frame[column])
    for name in names.unique():
        yield name, frame[names == name]


def _parts(
    frame: pd.DataFrame, column: Hashable | None, place: Callable[[Any], str]
) -> Iterator[tuple[int | None, pd.DataFrame]]:
    if column is None:
        yield None, frame
        return
    seeds = pd.to_numeric(frame[column], errors="coerce")
    for row in frame.index[seeds.isna() | (seeds % 1 != 0)][:1]:
        raise BadInput(
            f"{place(row)}: a seed must be a whole number, found {shown(frame[column][row])}"
        )
    for seed in sorted(seeds.unique()):
        yield int(seed), frame[seeds == seed]


def _content(
    frame: pd.DataFrame, column: Mapping[str, Hashable], place: Callable[[Any], str]
) -> dict[str, Any]:
    """The ranking or the values of one training run."""
    if {"document", "score"} <= column.keys():
        run = _run(frame, column, place)
        return {"ranking": lambda: run}
    return {"values": _values(frame, column, place)}


def _run(frame: pd.DataFrame, column: Mapping[str, Hashable], place: Callable[[Any], str]) -> Run:
    run: Run = {}
    scores = _numbers(frame[column["score"]], place)
    documents = _texts(frame[column["document"]])
    for row, query_id, doc_id, score in zip(
        frame.index, frame[column["query"]], documents, scores, strict=True
    ):
        ranked = run.setdefault(query_id, {})
        if doc_id in ranked:
            raise BadInput(
                f"{place(row)}: a document may be ranked once for a query, found {doc_id!r} twice "
                f"for query {query_id!r}"
            )
        ranked[doc_id] = score
    return {
        query_id: dict(sorted(ranked.items(), key=lambda item: (-item[1], item[0])))
        for query_id, ranked in run.items()
    }


def _values(
    frame: pd.DataFrame, column: Mapping[str, Hashable], place: Callable[[Any], str]
) -> pd.DataFrame:
    """query_id, measure, value of a long table, or of a table with a column per measure."""
    query = column["query"]
    if {"measure", "value"} <= column.keys():
        values = pd.DataFrame(
            {
                "query_id": frame[query],
                "measure": _texts(frame[column["measure"]]),
                "value": frame[column["value"]],
            }
        )
    else:
        values = _melted(frame, column, place)
    values = values[values["query_id"] != _SUMMARY]
    values = values.assign(value=_numbers(values["value"], place))
    twice = values[values.duplicated(["query_id", "measure"])]
    for row, query_id, measure in zip(
        twice.index[:1], twice["query_id"], twice["measure"], strict=False
    ):
        raise BadInput(
            f"{place(row)}: {measure} of query {query_id!r} occurs twice; runs and systems of one "
            "table are distinguished by the columns seed and system"
        )
    return _keyed(values)


def _melted(
    frame: pd.DataFrame, column: Mapping[str, Hashable], place: Callable[[Any], str]
) -> pd.DataFrame:
    roles = {column[kind] for kind in ("query", "system", "seed", "split") if kind in column}
    measures = [
        name
        for name in frame.columns
        if name not in roles
        and str(name).strip()
        and not str(name).startswith("Unnamed:")
        and str(name).lower() not in (*_NO_MEASURES, *COLUMNS["query"])
        and not pd.isna(pd.to_numeric(frame[name].iloc[:1], errors="coerce")).any()
    ]
    if not measures:
        raise BadInput(
            f"{place(frame.index[0])}: a table must have the columns measure and value or a column "
            f"of numbers per measure, found {', '.join(map(str, frame.columns))}"
        )
    parts = [
        pd.DataFrame(
            {"query_id": frame[column["query"]], "measure": str(name), "value": frame[name]}
        )
        for name in measures
    ]
    return pd.concat(parts)


def _texts(values: "pd.Series[Any]") -> "pd.Series[str]":
    """Ids as texts: 301 for the 301.0 that pandas makes of a column with a hole."""
    if pd.api.types.is_float_dtype(values) and (values % 1 == 0).all():
        values = values.astype("int64")
    return values.astype(str)


def _numbers(values: "pd.Series[Any]", place: Callable[[Any], str]) -> "pd.Series[float]":
    numbers = pd.to_numeric(values, errors="coerce").astype("float64")
    bad = ~numbers.map(math.isfinite)
    for row, value in zip(values.index[bad][:1], values[bad], strict=False):
        raise BadInput(f"{place(row)}: a value must be a finite number, found {shown(value)}")
    return numbers


def _number(text: str, place: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadInput(f"{place}: a value must be a finite number, found {shown(text)}")
    return value


def judgments_of(frame: pd.DataFrame, where: str = "the judgments") -> Qrels:
    """Judgments of a data frame: query_id, doc_id, relevance, or PyTerrier's qid, docno, label."""
    column = _columns(frame)
    if not {"query", "document", "relevance"} <= column.keys():
        raise BadInput(
            f"{where}: judgments must have the columns query_id, doc_id, relevance (or qid, docno, "
            f"label), found {', '.join(map(str, frame.columns))}"
        )
    qrels: Qrels = {}
    for query_id, doc_id, relevance in zip(
        _texts(frame[column["query"]]),
        _texts(frame[column["document"]]),
        _numbers(frame[column["relevance"]], lambda row: f"{where}, row {row}"),
        strict=True,
    ):
        qrels.setdefault(query_id, {})[doc_id] = int(relevance)
    return qrels
