"""Documents, queries and judgments: lines of JSON under the field names in common use, or the text
files of queries and judgments. One record at a time is in memory."""

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

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

KINDS = (".jsonl", ".jsonl.gz")

Fields = Mapping[str, str]
"""{name of a field in a file: its name here}, for names other than those below."""

Names = dict[str, tuple[str, ...]]
DOCUMENT: Names = {
    "doc_id": ("doc_id", "_id", "id", "docid", "docno"),
    "text": ("text", "contents"),
    "title": ("title",),
}
QUERY: Names = {
    "query_id": ("query_id", "_id", "id", "qid"),
    "text": ("text", "query", "contents"),
    "group": ("group",),
}
JUDGMENT: Names = {
    "query_id": ("query_id", "query-id", "qid"),
    "doc_id": ("doc_id", "corpus-id", "docid", "docno"),
    "relevance": ("relevance", "score", "label", "rel"),
}
"""{field: its names in our layout, BEIR, Pyserini and PyTerrier; the first one present is used}"""
PAIRS: Names = {
    "query": ("query", "anchor", "text"),
    "pos": ("pos", "positive_passages", "positive"),
    "neg": ("neg", "negative_passages", "negative"),
    "query_id": QUERY["query_id"],
    "doc_id": DOCUMENT["doc_id"],
    "text": DOCUMENT["text"],
    "group": QUERY["group"],
}
"""The same of a query with relevant and other texts: FlagEmbedding, Tevatron and MLDR, triplets of
sentence-transformers."""

FIELD_NAMES = tuple(dict.fromkeys((*DOCUMENT, *QUERY, *JUDGMENT)))


def kind_of(path: Path) -> str:
    """The suffix of a file of JSON lines; empty for others."""
    return next((kind for kind in KINDS if path.name.endswith(kind)), "")


def documents(path: Path, fields: Fields) -> Iterator[tuple[str, str, str]]:
    """(file and line, doc_id, text) of each document, where the text starts with the title."""
    for place, record in _records(path):
        doc_id, text = _texts(place, record, ("doc_id", "text"), DOCUMENT, fields)
        require_identifier(place, "doc_id", doc_id)
        title = _name(record, "title", DOCUMENT, fields)
        # Pyserini's `contents` includes the title.
        titled = _name(record, "text", DOCUMENT, fields) != "contents" or "title" in fields.values()
        if titled and title and record[title] is not None:
            text = f"{_text(place, record, title)}\n{text}"
        if not text.strip():
            raise BadInput(f"{place}: document {doc_id!r} is empty")
        yield place, doc_id, text


def queries_of(path: Path, fields: Fields) -> dict[str, str]:
    """{query_id: text}, in file order."""

    def rows() -> Iterator[tuple[str, str, str]]:
        for place, record in _records(path):
            query_id, text = _texts(place, record, ("query_id", "text"), QUERY, fields)
            yield place, query_id, text

    return gathered_queries(rows() if kind_of(path) else query_lines(path))


GroupRow = tuple[str, str, str | None]
"""(file and line, id, group), where the group is None if the record has none."""


def group_rows(path: Path, fields: Fields) -> Iterator[GroupRow]:
    """The `group` of each query of a file; none of a file without names of fields."""
    return labels(path, "group", QUERY, fields) if kind_of(path) else iter(())


def labels(path: Path, field: str, names: Names, fields: Fields) -> Iterator[GroupRow]:
    """A field of each record of JSON, in any name it has, as the group of the record's id: the
    first of `names`. A missing field and null are None."""
    key = next(iter(names))
    for place, record in _records(path):
        [name] = _texts(place, record, (key,), names, fields)
        yield place, name, _label(place, record, field, {field: (field,), **names}, fields)


def _label(
    place: str, record: Mapping[str, Any], field: str, names: Names, fields: Fields
) -> str | None:
    called = _name(record, field, names, fields)
    if called is None or record[called] is None:
        return None
    return next(_texts(place, record, (called,), {called: (called,)}, {}))


def gathered_groups(rows: Iterable[GroupRow]) -> dict[str, str]:
    """{query_id: group}; empty if no query has one. Raises `BadInput` for a query with two groups,
    and where only some have one."""
    groups: dict[str, str] = {}
    without = ""
    for place, query_id, group in rows:
        if group is None:
            without = without or place
        elif not group.strip():
            raise BadInput(f"{place}: the group of query {shown(query_id)} is empty")
        elif groups.setdefault(query_id, group) != group:
            raise BadInput(f"{place}: query {shown(query_id)} has two groups")
    if groups and without:
        raise BadInput(f"{without}: a query must have a group where other queries have one")
    return groups


def judgment_rows(path: Path, fields: Fields) -> Iterator[tuple[str, str, str, str]]:
    """(file and line, query_id, doc_id, relevance) of each judgment."""
    if not kind_of(path):
        yield from qrels_lines(path)
        return
    for place, record in _records(path):
        query_id, doc_id, grade = _texts(place, record, tuple(JUDGMENT), JUDGMENT, fields)
        yield place, query_id, doc_id, grade


def qrels_of(path: Path, fields: Fields) -> Qrels:
    """All judgments, in file order."""
    return gathered_qrels(judgment_rows(path, fields))


class Passage(NamedTuple):
    """A text of a line of pairs; its id is the file's, or the hash of the text."""

    doc_id: str
    text: str
    score: float | None


class Pairs(NamedTuple):
    """A query with its relevant texts and others, which are not relevant."""

    place: str
    query_id: str
    query: str
    positives: list[Passage]
    negatives: list[Passage]
    group: str | None


def pairs_of(path: Path) -> Iterator[Pairs]:
    """The lines of a file of {query, pos, neg}. Texts are strings, or objects with an id and a
    text; `pos_scores` and `neg_scores` are a teacher's. A query without an id is named by the
    file and the hash of its text, so that lines with the same query are one query."""
    stem = path.name.partition(".")[0]
    for place, record in _records(path):
        [query] = _texts(place, record, ("query",), PAIRS, {})
        if not query.strip():
            raise BadInput(f"{place}: the query is empty")
        query_id = _id(place, record, "query_id") or _hashed(stem, query)
        positives, negatives = (_passages(place, record, kind, stem) for kind in ("pos", "neg"))
        if not positives:
            raise BadInput(f"{place}: a query must have a text in pos, found none")
        group = _label(place, record, "group", PAIRS, {})
        yield Pairs(place, query_id, query, positives, negatives, group)


def _passages(place: str, record: Mapping[str, Any], kind: str, stem: str) -> list[Passage]:
    name = _name(record, kind, PAIRS, {})
    given = record[name] if name else []
    texts = given if isinstance(given, list) else [given]
    scores = record.get(f"{kind}_scores") or [None] * len(texts)
    numbers = isinstance(scores, list) and all(
        score is None or (type(score) in (int, float) and abs(score) <= sys.float_info.max)
        for score in scores
    )
    if not numbers or len(scores) != len(texts):
        raise BadInput(f"{place}: {kind}_scores must be numbers, one for each text")
    passages = []
    for given_text, score in zip(texts, scores, strict=True):
        own = given_text if isinstance(given_text, dict) else {"text": given_text}
        [text] = _texts(place, own, ("text",), PAIRS, {})
        if not text.strip():
            raise BadInput(f"{place}: a text in {kind} is empty")
        doc_id = _id(place, own, "doc_id") or _hashed(stem, text)
        passages.append(Passage(doc_id, text, None if score is None else float(score)))
    return passages


def _id(place: str, record: Mapping[str, Any], field: str) -> str | None:
    """The id in a record of a file of pairs; None if it has none."""
    if _name(record, field, PAIRS, {}) is None:
        return None
    [own] = _texts(place, record, (field,), PAIRS, {})
    require_identifier(place, field, own)
    return own


def _hashed(stem: str, text: str) -> str:
    return f"{stem}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def parse_fields(text: str) -> dict[str, str]:
    """{their name: our name} from `theirs=ours,...`; raises `BadInput` for anything else."""
    fields: dict[str, str] = {}
    for word in text.split(","):
        theirs, _, ours = (part.strip() for part in word.partition("="))
        if not theirs or ours not in FIELD_NAMES or theirs in fields:
            raise BadInput(
                f"--fields must be written THEIRS=OURS,..., each once, with OURS one of "
                f"{', '.join(FIELD_NAMES)}; got {shown(word)}"
            )
        if {*theirs} & {*"|()"} or not theirs.isprintable():
            raise BadInput(
                "--fields cannot name a field with | ( ) or a line break, which an expression of a "
                f"collection cannot hold, got {shown(theirs)}: rename it in the file"
            )
        fields[theirs] = ours
    return fields


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file and line, object) of each line."""
    for number, line in read_lines(path):
        rule = f"{path}:{number}: a line must be one JSON object"
        try:
            record = json.loads(line, object_pairs_hook=_fields)
        except (ValueError, RecursionError) as error:  # also of too large a number
            raise BadInput(f"{rule}: {shown(str(error))}") from None
        if not isinstance(record, dict):
            raise BadInput(f"{rule}, found {type(record).__name__}")
        yield f"{path}:{number}", record


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of an object; raises ValueError for duplicates, which JSON would accept."""
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("it has a duplicate field")
    return record


def _name(record: Mapping[str, Any], field: str, names: Names, fields: Fields) -> str | None:
    """The name of a field in a record; None if it is missing."""
    renamed = [theirs for theirs, ours in fields.items() if ours == field]
    # --fields is about documents; queries may have other names for their text.
    known = renamed if renamed and names is DOCUMENT else (*renamed, *names[field])
    return next((name for name in known if name in record), None)


def _texts(
    place: str, record: Mapping[str, Any], required: tuple[str, ...], names: Names, fields: Fields
) -> Iterator[str]:
    for field in required:
        name = _name(record, field, names, fields)
        if name is None:
            hint = "" if names is PAIRS else f"; name others by --fields THEIRS={field}"
            raise BadInput(
                f"{place}: a record must have {field}, found {shown(list(record))}{hint}"
            )
        value = record[name]
        whole = (
            isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
        )
        yield str(int(value)) if whole and field != "text" else _text(place, record, name)


def _text(place: str, record: Mapping[str, Any], field: str) -> str:
    value = record[field]
    if not isinstance(value, str):
        # Nested values may be too deep to be printed.
        what = type(value).__name__ if isinstance(value, dict | list) else json.dumps(value)[:80]
        raise BadInput(f"{place}: {field} must be a string (an id, a whole number), found {what}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadInput(
            f"{place}: {field} must be valid Unicode; it has half of a surrogate pair"
        ) from None
    return value
