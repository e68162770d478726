"""Runs, judgments and texts that a caller of Python gives: dictionaries, data frames, or records
of ir_measures, under the rules of files. They are kinds of `rank_core.arguments`.

What is plain already, {text: {text: float}} in rank order, is looked at and not copied, so that a
call costs no more than before.
"""

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, cast

from rank_core import evaluate
from rank_core.arguments import (
    got,
    is_frame,
    is_series,
    is_unicode,
    items_of,
    names,
    refused,
    takes,
    unwrapped,
)
from rank_core.data.readers import frame_documents, frame_qrels, frame_queries, frame_run
from rank_core.data.trec import (
    MAX_GRADE,
    grade_of,
    has_control,
    identifier,
    in_rank_order,
    score_of,
)
from rank_core.errors import BadInput, shown
from rank_core.records import Qrels, Run

RUN_KINDS = (
    "a run: {query_id: {doc_id: score}}, a data frame with query_id, doc_id, score, or ScoredDocs "
    "of ir_measures (read_run reads a file)"
)
QRELS_KINDS = (
    "judgments: {query_id: {doc_id: relevance}}, a data frame with query_id, doc_id, relevance, or "
    "Qrels of ir_measures (read_qrels reads a file)"
)


def run(name: str, value: Any) -> Run:
    """A run, each query's documents by falling score; equal scores keep their order."""
    value = unwrapped(value)
    if is_frame(value):
        return frame_run(value, name)
    table = _table(name, value, "score", RUN_KINDS)
    plain: Run = {}
    for query_id, scores in table.items():
        known = _is_plain(query_id, scores, float) and math.isfinite(sum(scores.values()))
        if not known:
            query_id = _new_id(name, "query_id", query_id, plain)
            scores = _numbers(f"{name}, query {query_id!r}", scores, score_of)
        if not all(a >= b for a, b in pairwise(scores.values())):
            scores = in_rank_order(scores)
        plain[query_id] = cast(dict[str, float], scores)
    return plain


def qrels(name: str, value: Any) -> Qrels:
    """Judgments, in the given order."""
    value = unwrapped(value)
    if is_frame(value):
        return frame_qrels(value, name)
    table = _table(name, value, "relevance", QRELS_KINDS)
    plain: Qrels = {}
    for query_id, grades in table.items():
        known = _is_plain(query_id, grades, int)
        if not known or max(map(abs, grades.values()), default=0) > MAX_GRADE:
            query_id = _new_id(name, "query_id", query_id, plain)
            grades = _numbers(f"{name}, query {query_id!r}", grades, grade_of)
        plain[query_id] = cast(dict[str, int], grades)
    return plain


def _table(name: str, value: Any, number: str, what: str) -> Mapping[Any, Mapping[Any, Any]]:
    """{query_id: {doc_id: number}} as given, records gathered."""
    if not isinstance(value, Mapping):
        items = items_of(value)
        if items is None:
            raise refused(name, what, value)
        return _gathered(name, items, number, what)
    table = {query_id: _by_label(by_doc) for query_id, by_doc in value.items()}
    for query_id, by_doc in table.items():
        if by_doc is None:
            raise BadInput(
                f"{name} must be {what}, got {got(value[query_id])} for query {shown(query_id)}"
            )
    return table  # type: ignore[return-value]


def _gathered(name: str, records: list[Any], number: str, what: str) -> dict[Any, dict[Any, Any]]:
    """The table of records with a query_id, a doc_id and a number, such as those of ir_measures."""
    table: dict[Any, dict[Any, Any]] = {}
    for place, record in enumerate(records):
        if not is_record(record) or not hasattr(record, number):
            raise refused(f"{name}[{place}]", f"a record of {what}", record)
        by_doc = table.setdefault(record.query_id, {})
        if record.doc_id in by_doc:
            raise BadInput(
                f"{name}[{place}]: query {shown(record.query_id)} has document "
                f"{shown(record.doc_id)} twice"
            )
        by_doc[record.doc_id] = getattr(record, number)
    return table


def is_record(value: object) -> bool:
    """True for an object with a query and a document, such as ir_measures' ScoredDoc and Qrel."""
    return hasattr(value, "query_id") and hasattr(value, "doc_id") and not is_frame(value)


def _by_label(value: Any) -> Mapping[Any, Any] | None:
    """A mapping, or a Series as the mapping of its labels; None for anything else."""
    value = unwrapped(value)
    if is_series(value):
        unique = value.index.is_unique
        return dict(zip(value.index, value.tolist(), strict=True)) if unique else None
    return value if isinstance(value, Mapping) else None


def _is_plain(query_id: Any, by_doc: Mapping[Any, Any], kind: type) -> bool:
    """True for a query with a dictionary of printable ASCII texts to numbers of a kind of
    Python."""
    if type(by_doc) is not dict or not {type(query_id), *map(type, by_doc)} <= {str}:
        return False
    if not {*map(type, by_doc.values())} <= {kind}:
        return False
    ids = (query_id, *by_doc)
    return all(map(str.isascii, ids)) and all(map(str.isprintable, ids))


def _numbers(
    where: str, by_doc: Mapping[Any, Any], number_of: Callable[[str, object], Any]
) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for given, number in by_doc.items():
        doc_id = _new_id(where, "doc_id", given, plain)
        plain[doc_id] = number_of(f"{where}, document {doc_id!r}", unwrapped(number))
    return plain


def _new_id(where: str, kind: str, given: Any, known: Mapping[str, Any]) -> str:
    """An id as text: 301 for 301. Raises `BadInput` for what is none, and where 301 and "301" are
    both given."""
    name = id_text(where, kind, given)
    if name in known:
        raise BadInput(f"{where}: {kind} {name!r} is given twice, as a text and as a number")
    return name


def id_text(where: str, kind: str, given: Any) -> str:
    """An id as text. A text may have spaces: only files cannot hold them."""
    given = unwrapped(given)
    if not isinstance(given, str):
        return identifier(where, kind, given)
    if not is_unicode(given):
        raise BadInput(f"{where}: {kind} must be valid Unicode, got {shown(given)}")
    if has_control(given):  # C programs behind the measures end a text at NUL
        raise BadInput(f"{where}: {kind} must have no control characters, got {shown(given)}")
    return str(given)


def query_texts(name: str, value: Any) -> Mapping[str, str]:
    """{query_id: text} of a dictionary, a Series (its labels are the ids) or a data frame."""
    value = unwrapped(value)
    return frame_queries(value, name) if is_frame(value) else _texts(name, value, "query_id")


def document_texts(name: str, value: Any) -> Mapping[str, str]:
    """{doc_id: text} of a dictionary, a Series (its labels are the ids) or a data frame."""
    value = unwrapped(value)
    return frame_documents(value, name) if is_frame(value) else _texts(name, value, "doc_id")


def _texts(name: str, value: Any, kind: str) -> Mapping[str, str]:
    texts = _by_label(value)
    if texts is None:
        raise refused(name, f"{{{kind}: text}}, a Series of texts by {kind} or a data frame", value)
    # Texts may be millions, and be read from disk: a mapping with a text as its first id is as it
    # must be, or what lacks in it is named where it is looked up.
    if not isinstance(texts, dict) or isinstance(next(iter(texts), ""), str):
        return texts
    plain: dict[str, str] = {}
    for given, text in texts.items():
        plain[_new_id(name, kind, given, plain)] = text
    return plain


def entries(name: str, value: Any) -> dict[str | int, Any]:
    """{id: entry} of a dictionary, a Series (its labels are the ids) or a list, in which a place is
    the id. An id is a text or a whole number. Raises `BadInput` for anything else."""
    labelled = _by_label(value)
    if labelled is None:
        items = items_of(value)
        if items is None or is_series(unwrapped(value)):
            raise BadInput(
                f"{name} must be a list, {{doc_id: ...}} or a Series with a label for each, got "
                f"{got(value)}"
            )
        return dict(enumerate(items))
    found: dict[str | int, Any] = {}
    known: dict[str, Any] = {}
    for given, entry in labelled.items():
        text = _new_id(name, "doc_id", given, known)
        known[text] = found[text if isinstance(given, str) else int(text)] = unwrapped(entry)
    return found


per_query = takes(qrels=qrels, run=run, measures=names(" of measures", unique=False))(
    evaluate.per_query
)
"""`rank_core.evaluate.per_query` for callers from outside, whose runs and judgments may have any
form."""
