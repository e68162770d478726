"""Records of files and data frames: a dictionary of named fields for each line or row, with its
place. One record at a time is in memory; a JSON list is read whole."""

import csv
import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rank_core.bounds import check_parquet
from rank_core.data.trec import content_lines, lone_return, read_lines
from rank_core.errors import BadInput, shown
from rank_core.parsing import parsed_json

if TYPE_CHECKING:
    import pandas as pd

KINDS = (
    *(".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz", ".json", ".json.gz"),
    *(".csv", ".csv.gz", ".parquet"),
)
"""Files whose records have named fields."""
TABS = (".tsv", ".tsv.gz")
"""Files with or without a line of names."""
_NO_TEXT = (".pkl", ".feather", ".gz", ".xz", ".zst", ".bz2", ".zip", ".lz4", ".tar", ".tgz")
MAX_COLUMNS = 1000

SEPARATOR = re.compile(r"sep=([,;\t|])", re.IGNORECASE)
"""The first line of a file of Excel."""

Record = Mapping[str, Any]

csv.field_size_limit((1 << 31) - 1)  # the module's own limit is shorter than a long document


def kind_of(path: Path, kinds: Sequence[str] = (*KINDS, *TABS)) -> str:
    """The ending of a file of records; empty for other files."""
    return next((kind for kind in kinds if path.name.lower().endswith(kind)), "")


def check_run_name(what: str, path: Path) -> None:
    """Refuses a name by which readers would not read a written run, which is text, plain or
    gzipped."""
    text = path.with_suffix("") if path.suffix == ".gz" else path
    if kind_of(text, KINDS) or text.suffix.lower() in _NO_TEXT:
        raise BadInput(f"{what} must be a text file, plain or gzipped (.run, .run.gz), got {path}")


def records(path: Path, part: str = "") -> Iterator[tuple[str, Record]]:
    """(place, record) of each line or row of a file; of one that holds a whole test set, those of
    its `part`. Raises `BadInput` with the place."""
    for place, record in _records(path):
        if part and record.keys() >= TEST_SET:
            yield from _of_test_set(place, record, part)
        else:
            yield place, record


TEST_SET = {"queries", "corpus", "relevant_docs"}
"""The keys of the one JSON file in which llama_index and evaluators of sentence-transformers keep
texts and judgments."""


def _of_test_set(place: str, whole: Record, part: str) -> Iterator[tuple[str, Record]]:
    """The records of a part: {id: text}, or {query: its relevant documents}."""
    if not isinstance(whole[part], dict):
        raise BadInput(f"{place}: {part} must be an object, found {type(whole[part]).__name__}")
    key = {"corpus": "doc_id", "queries": "query_id"}.get(part, "")
    for name, value in whole[part].items():
        where = f"{place}, {part} {shown(name)}"
        if key:
            yield where, {key: name, **(value if isinstance(value, dict) else {"text": value})}
        elif isinstance(value, dict):
            for doc_id, grade in value.items():
                yield where, {"query_id": name, "doc_id": doc_id, "relevance": grade}
        elif isinstance(value, list):
            for doc_id in value:
                yield where, {"query_id": name, "doc_id": doc_id, "relevance": 1}
        else:
            raise BadInput(f"{where}: must be a list of documents, found {type(value).__name__}")


def _records(path: Path) -> Iterator[tuple[str, Record]]:
    kind = kind_of(path).removesuffix(".gz")
    if kind == ".parquet":
        yield from _parquet(path)
    elif kind in (".csv", ".tsv"):
        yield from _delimited(path, "\t" if kind == ".tsv" else "")
    else:
        first = next(read_lines(path), (0, ""))[1].strip()
        if kind == ".json" and first.startswith("{") and not first.endswith("}"):
            text = "\n".join(line for _, line in read_lines(path))  # an object over several lines
            whole = parsed_json(text, path, "one JSON object", object_pairs_hook=unique_fields)
            yield from hits_in(str(path), whole)
            return
        yield from json_records(path, as_list=kind == ".json" and first.startswith("["))


def json_records(path: Path, *, as_list: bool) -> Iterator[tuple[str, Record]]:
    """(place, record) of each object of a JSON list, or of each line with one."""
    return _documents_of(_json_list(path) if as_list else _json_lines(path))


def frame_records(frame: "pd.DataFrame", where: str) -> Iterator[tuple[str, Record]]:
    """(place, record) of each row of a data frame, which `where` names in messages."""
    names = [str(name) for name in frame.columns]
    check_columns(where, names)
    for index, row in zip(frame.index, frame.itertuples(index=False, name=None), strict=True):
        yield f"{where}, row {index}", dict(zip(names, row, strict=True))


def check_columns(place: str, names: Sequence[str]) -> None:
    """Raise `BadInput` for too many columns, and for two of one name."""
    if len(names) > MAX_COLUMNS:
        raise BadInput(
            f"{place}: a table must have at most {MAX_COLUMNS} columns, found {len(names):,}"
        )
    for name, count in Counter(names).items():
        if name and count > 1:
            raise BadInput(f"{place}: the columns must differ, found {shown(name)} twice")


def _json_lines(path: Path) -> Iterator[tuple[str, Record]]:
    for number, line in read_lines(path):
        rule = f"{path}:{number}: a line"
        record = parsed_json(line, rule, "one JSON object", object_pairs_hook=unique_fields)
        if not isinstance(record, dict):
            raise BadInput(f"{rule} must be one JSON object, found {type(record).__name__}")
        yield f"{path}:{number}", record


_ACTIONS = ("index", "create")
_ENVELOPE = (
    "took timed_out _shards hits status aggregations _scroll_id terminated_early profile suggest "
    "pit_id num_reduce_phases _clusters"
).split()
"""Fields of a response of Elasticsearch or OpenSearch around its hits."""


_MTEB = "mteb_model_meta"
"""The key in the files of predictions that mteb writes, beside {subset: {split: {query_id: {doc_id:
score}}}}."""
_EVALUATOR = {"query_id", "query", "results"}
"""The keys of a line of the predictions that evaluators of sentence-transformers write."""
WRAPPERS = {"hits", "responses", "response", "results", _MTEB}
"""The keys of one JSON object that holds the ranked documents of a whole file (`hits_in`)."""


def _predictions(place: str, record: Record) -> Iterator[tuple[str, Record]]:
    """The ranked documents of mteb's predictions. Raises `BadInput` where they are of several
    subsets or splits, whose queries may have the same ids, or of a task that does not rank."""
    runs = {
        f"{subset} {split}": run
        for subset, splits in record.items()
        if subset != _MTEB
        for split, run in (splits.items() if isinstance(splits, dict) else [("", None)])
    }
    if len(runs) != 1:
        raise BadInput(
            f"{place}: mteb's predictions must be of one subset and one split, found "
            f"{', '.join(map(shown, runs)) or 'none'}; keep one of them in a file of its own"
        )
    [(where, run)] = runs.items()
    if not isinstance(run, dict) or not all(isinstance(ranked, dict) for ranked in run.values()):
        raise BadInput(
            f"{place}: mteb's predictions must be {{subset: {{split: {{query_id: {{doc_id: score}}"
            "}}}}, as its tasks of retrieval and reranking write them"
        )
    for query_id, ranked in run.items():
        named = f"{place}, {where}, query {shown(query_id)}"
        for doc_id, score in ranked.items():
            yield named, {"query_id": query_id, "doc_id": doc_id, "score": score}


def hits_in(place: str, record: Record) -> Iterator[tuple[str, Record]]:
    """(place, record) of what a record of Elasticsearch or OpenSearch holds: the hits of a
    response, of each response of a multi-search, a document with its `_source`; the ranked
    documents in predictions of mteb and of evaluators of sentence-transformers; of any other the
    record itself. A hit has the fields that stand beside the response, such as query_id."""
    if _MTEB in record:
        yield from _predictions(place, record)
    elif record.keys() == _EVALUATOR and isinstance(record["results"], list):
        for number, hit in enumerate(record["results"]):
            if not isinstance(hit, dict) or hit.keys() != {"corpus_id", "score"}:
                raise BadInput(f"{place}, result {number}: must have corpus_id and score")
            ids = {"query_id": record["query_id"], "doc_id": hit["corpus_id"]}
            yield f"{place}, result {number}", {**ids, "score": hit["score"]}
    elif isinstance(responses := record.get("responses"), list):
        for number, response in enumerate(responses):
            if isinstance(response, dict):
                yield from hits_in(f"{place}, response {number}", response)
    elif isinstance(record.get("hits"), dict) and isinstance(record["hits"].get("hits"), list):
        fields = {name: value for name, value in record.items() if name not in _ENVELOPE}
        for number, hit in enumerate(record["hits"]["hits"]):
            if not isinstance(hit, dict):
                raise BadInput(
                    f"{place}, hit {number}: a hit must be an object, found {shown(hit)}"
                )
            yield f"{place}, hit {number}", {**fields, **_hit(hit)}
    elif isinstance(record.get("response"), dict) and "hits" in record["response"]:
        fields = {name: value for name, value in record.items() if name != "response"}
        yield from hits_in(place, {**fields, **record["response"]})
    else:
        yield place, _hit(record)


def _hit(record: Record) -> Record:
    """The fields of a hit's document, its id and its score."""
    if "_id" not in record or not ("_score" in record or isinstance(record.get("_source"), dict)):
        return record
    source, score = record.get("_source") or {}, record.get("_score")
    return {**source, "doc_id": record["_id"], **({} if score is None else {"score": score})}


def _documents_of(rows: Iterator[tuple[str, Record]]) -> Iterator[tuple[str, Record]]:
    """The records with what Elasticsearch wraps them in: `hits_in`, and the lines of a bulk
    request, where a line of an action has the id of the document on the next one."""
    for place, record in rows:
        action = next(iter(record), "")
        if len(record) == 1 and action in _ACTIONS and isinstance(record[action], dict):
            if (document := next(rows, None)) is None or "_id" not in record[action]:
                raise BadInput(f"{place}: an action of a bulk request needs _id and a document")
            yield document[0], {**document[1], "doc_id": record[action]["_id"]}
        else:
            yield from hits_in(place, record)


def _json_list(path: Path) -> Iterator[tuple[str, Record]]:
    text = "\n".join(line for _, line in read_lines(path))
    rows = parsed_json(text, path, "one JSON list of objects", object_pairs_hook=unique_fields)
    for number, record in enumerate(rows):
        if not isinstance(record, dict):
            raise BadInput(f"{path}, row {number}: a row must be a JSON object, found {record!r}")
        yield f"{path}, row {number}", record


def unique_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of an object; raises ValueError for duplicates, which JSON would accept."""
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("it has a duplicate field")
    return record


def _delimited(path: Path, mark: str) -> Iterator[tuple[str, Record]]:
    """The lines of CSV or TSV below a line of names."""
    rows = delimited_rows(path, mark)
    names = next(rows, (0, []))[1]
    for number, row in rows:
        yield f"{path}:{number}", dict(zip(names, row, strict=True))


def delimited_rows(
    path: Path, mark: str = "", *, spaced: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """(the line on which it ends, its cells) of each row of CSV or TSV, the line of names first,
    without blank rows. `mark` separates cells; without one, the line of names tells it. Quoted
    texts may have several lines, and with `spaced` stand behind a space. Raises `BadInput` for rows
    of unequal length."""
    lines = content_lines(path, returns=True)
    first = next((pair for pair in lines if pair[1].strip()), None)
    if first is None:
        return
    if separator := SEPARATOR.fullmatch(first[1].strip()):  # of Excel
        mark, first = separator[1], next((pair for pair in lines if pair[1].strip()), None)
    if first is None:
        return
    number, header = first
    if "\r" in header:
        raise lone_return(path, *first)
    mark = mark or next((mark for mark in ",;\t" if mark in header), ",")
    if header.count(mark) >= MAX_COLUMNS:
        check_columns(f"{path}:{number}", header.split(mark))
    names: list[str] = []
    for number, row in _rows(path, chain([first], lines), mark, spaced):
        place = f"{path}:{number}"
        if not names:
            names = [name.strip() for name in row]
            check_columns(place, names)
            yield number, names
        elif any(cell.strip() for cell in row):
            if len(row) != len(names):
                hint = " (a decimal comma, or a text without quotes?)" * (mark == ",")
                raise BadInput(
                    f"{place}: a line must have {len(names)} columns, found {len(row)}{hint}"
                )
            yield number, row


def _rows(
    path: Path, lines: Iterator[tuple[int, str]], mark: str, spaced: bool
) -> Iterator[tuple[int, list[str]]]:
    """(the line on which it ends, its cells) of each row. A quote is a letter where it would make
    one row of lines that are rows by themselves: lines with tabs, as many as the first has."""
    ahead: deque[tuple[int, str]] = deque()
    taken: list[tuple[int, str]] = []
    tabs = -1

    def text() -> Iterator[str]:
        while pair := ahead.popleft() if ahead else next(lines, None):
            taken.append(pair)
            # NUL, which no line has, stands for CR: pandas writes it without quotes.
            yield f"{pair[1]}\n".replace("\r", "\0")

    def is_row(line: str) -> bool:
        return mark == "\t" and line.count("\t") == tabs > 0

    content = text()
    while line := next(content, ""):
        tabs = line.count("\t") if tabs < 0 else tabs
        row = taken[-1][1].split(mark)
        if '"' in line:
            error = ""
            cells = csv.reader(
                chain([line], content), delimiter=mark, strict=True, skipinitialspace=spaced
            )
            try:
                row = next(cells)
            except csv.Error as problem:
                error = str(problem)
            lone = is_row(taken[0][1])
            if error and not lone:
                raise BadInput(
                    f"{path}:{taken[-1][0]}: no line of CSV with quotes in pairs: {error}"
                )
            if error or (len(taken) > 1 and all(is_row(line) for _, line in taken)):
                ahead.extendleft(reversed(taken[1:]))
                del taken[1:]
                row = [_unquoted(cell) for cell in taken[0][1].split(mark)]
                content = text()  # the old one has ended where the file has
        yield taken[-1][0], [cell.replace("\0", "\r") for cell in row]
        taken.clear()


def _unquoted(cell: str) -> str:
    """The text of a cell whose quotes are in pairs; others keep theirs."""
    quoted = re.fullmatch(r'"((?:[^"]|"")*)"', cell)
    return quoted[1].replace('""', '"') if quoted else cell


def _parquet(path: Path) -> Iterator[tuple[str, Record]]:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            check_parquet(file, path, path.stat().st_size)
            check_columns(str(path), file.schema_arrow.names)
            number = 0
            for batch in file.iter_batches(batch_size=1000):
                for record in batch.to_pylist():
                    yield f"{path}, row {number}", record
                    number += 1
    except (pyarrow.ArrowException, OSError) as error:
        what = " ".join(str(error).split())
        raise BadInput(f"{path} must be a whole Parquet file: {shown(what)}") from None
