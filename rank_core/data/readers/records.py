"""Documents, queries and judgments as records, under the field names in common use.

A table is a file (of the `KINDS`) or a folder of files of one kind, its parts in name order. One
record at a time is in memory.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rank_core.data.readers.tables import Record, json_records, parquet_records, tsv_records
from rank_core.data.trec import (
    gathered_qrels,
    gathered_queries,
    qrels_lines,
    query_lines,
    read_lines,
    require_identifier,
)
from rank_core.errors import BadInput, shown
from rank_core.records import Qrels

KINDS = (".jsonl", ".jsonl.gz", ".tsv", ".tsv.gz", ".parquet")
TREC = (".trec", ".qrels", ".txt")
"""Suffixes of judgments in trec_eval's format; a TSV file of four columns has that format too."""

Fields = Mapping[str, str]
"""{name of a field in a file: its name here}, for names other than those below."""

Names = dict[str, tuple[str, ...]]
DOCUMENT: Names = {
    "doc_id": ("doc_id", "_id", "id", "docid", "docno"),
    "text": ("text", "contents"),
    "title": ("title",),
}
QUERY: Names = {"query_id": ("query_id", "_id", "id", "qid"), "text": ("text", "query", "contents")}
JUDGMENT: Names = {
    "query_id": ("query_id", "query-id", "qid"),
    "doc_id": ("doc_id", "corpus-id", "docid", "docno"),
    "relevance": ("relevance", "score", "label", "rel"),
}
"""{field: its names in our layout, BEIR, Pyserini and PyTerrier; the first one present is used}"""

FIELD_NAMES = tuple(dict.fromkeys((*DOCUMENT, *QUERY, *JUDGMENT)))


def table_files(path: Path) -> list[Path]:
    """The files of a table, in order; raises `BadInput` where there is none, and for a folder of
    mixed or unknown kinds."""
    if not path.exists():
        raise BadInput(f"{path} does not exist")
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.name[0] != "." and kind_of(file))
    if not files or len({kind_of(file) for file in files}) > 1:
        names = ", ".join(file.name for file in files[:3]) or "none"
        raise BadInput(f"{path} must have files of one kind ({', '.join(KINDS)}), found {names}")
    return files


def kind_of(path: Path) -> str:
    """The suffix that decides how a file is read; empty if it is no table."""
    return next((kind for kind in KINDS if path.name.endswith(kind)), "")


def documents(path: Path, fields: Fields) -> Iterator[tuple[str, str, str]]:
    """(file and line, doc_id, text) of each document, where the text starts with the title."""
    columns = {2: ("doc_id", "text"), 3: ("doc_id", "title", "text")}
    for place, record in _records(path, DOCUMENT, fields, columns):
        doc_id, text = _texts(record, ("doc_id", "text"), DOCUMENT, fields, place, "document")
        require_identifier(place, "doc_id", doc_id)
        title = _name(record, "title", DOCUMENT, fields)
        # Pyserini's `contents` includes the title.
        titled = _name(record, "text", DOCUMENT, fields) != "contents" or "title" in fields.values()
        if titled and title and record[title] is not None:
            text = f"{_text(record, title, place)}\n{text}"
        if not text.strip():
            raise BadInput(f"{place}: document {doc_id!r} is empty")
        yield place, doc_id, text


def query_rows(path: Path, fields: Fields) -> Iterator[tuple[str, str, str]]:
    """(file and line, query_id, text) of each query."""
    if path.name.endswith((".tsv", ".tsv.gz")):
        yield from query_lines(path)
        return
    for place, record in _records(path, QUERY, fields, {}):
        query_id, text = _texts(record, ("query_id", "text"), QUERY, fields, place, "query")
        yield place, query_id, text


def judgment_rows(path: Path, fields: Fields) -> Iterator[tuple[str, str, str, str]]:
    """(file and line, query_id, doc_id, relevance) of each judgment."""
    if not path.is_dir() and (not kind_of(path) or _is_trec(path)):
        yield from qrels_lines(path)
        return
    for place, record in _records(path, JUDGMENT, fields, {3: tuple(JUDGMENT)}):
        names = ("query_id", "doc_id", "relevance")
        query_id, doc_id, grade = _texts(record, names, JUDGMENT, fields, place, "judgment")
        yield place, query_id, doc_id, grade


def queries_of(path: Path, fields: Fields) -> dict[str, str]:
    """{query_id: text}, in file order."""
    return gathered_queries(query_rows(path, fields))


def qrels_of(path: Path, fields: Fields) -> Qrels:
    """All judgments, in file order."""
    return gathered_qrels(judgment_rows(path, fields))


def parse_fields(text: str) -> dict[str, str]:
    """{their name: our name} from `theirs=ours,...`; raises `BadInput` for anything else."""
    fields: dict[str, str] = {}
    for word in text.split(","):
        theirs, equals, ours = (part.strip() for part in word.partition("="))
        if not equals or not theirs or ours not in FIELD_NAMES:
            raise BadInput(
                f"--fields must be written THEIRS=OURS,... with OURS one of "
                f"{', '.join(FIELD_NAMES)}; got {shown(word)}"
            )
        if theirs in fields:
            raise BadInput(f"--fields has {theirs!r} twice")
        fields[theirs] = ours
    return fields


def _records(
    path: Path, names: Names, fields: Fields, columns: dict[int, tuple[str, ...]]
) -> Iterator[Record]:
    """The records of all files of a table."""
    wanted = {*fields, *(name for known in names.values() for name in known)}
    for file in table_files(path):
        kind = kind_of(file)
        if kind.startswith(".jsonl"):
            yield from json_records(file)
        elif kind.startswith(".tsv"):
            yield from tsv_records(file, columns, wanted)
        else:
            yield from parquet_records(file, wanted)


def _is_trec(path: Path) -> bool:
    """True for a TSV file with the four columns of trec_eval's judgments."""
    if not path.name.endswith((".tsv", ".tsv.gz")):
        return False
    return any(len(line.split()) == 4 for _, line in [next(read_lines(path), (0, ""))])


def _name(record: Mapping[str, Any], field: str, names: Names, fields: Fields) -> str | None:
    """The name of a field in a record; None if it is missing."""
    renamed = [theirs for theirs, ours in fields.items() if ours == field]
    # --fields is about documents; queries may have other names for their text.
    known = renamed if renamed and names is DOCUMENT else (*renamed, *names[field])
    return next((name for name in known if name in record), None)


def _texts(
    record: Mapping[str, Any],
    required: tuple[str, ...],
    names: Names,
    fields: Fields,
    place: str,
    kind: str,
) -> tuple[str, ...]:
    called = {field: _name(record, field, names, fields) for field in required}
    if missing := [field for field, name in called.items() if name is None]:
        raise BadInput(
            f"{place}: a {kind} must have {' and '.join(missing)}, found {shown(list(record))}; "
            f"name others by --fields {','.join(f'THEIRS={field}' for field in missing)}"
        )
    return tuple(
        (_text if field == "text" else _word)(record, name, place)
        for field, name in called.items()
        if name is not None
    )


def _word(record: Mapping[str, Any], field: str, place: str) -> str:
    """An id or a grade; a whole number is its digits."""
    value = record[field]
    if isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1:
        return str(int(value))
    return _text(record, field, place, "a string or a whole number")


def _text(record: Mapping[str, Any], field: str, place: str, expected: str = "a string") -> str:
    value = record[field]
    if not isinstance(value, str):
        # Nested values may be too deep to be printed.
        what = type(value).__name__ if isinstance(value, dict | list) else json.dumps(value)[:80]
        raise BadInput(f"{place}: {field} must be {expected}, found {what}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise BadInput(
            f"{place}: {field} must be valid Unicode; it has half of a surrogate pair "
            f"at character {error.start}"
        ) from None
    return value
