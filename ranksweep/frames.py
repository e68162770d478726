"""Scores for the rows of a result frame of PyTerrier; `ranksweep.pt` makes a transformer of it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from rank_core.data.trec import gathered_run, grade_of, identifier, noted
from rank_core.errors import BadInput, shown
from rank_core.export.reranker import Reranker
from rank_core.records import Run

if TYPE_CHECKING:
    import pandas as pd

Texts = dict[str, str]


def row_scores(reranker: Reranker, frame: "pd.DataFrame", text_field: str = "text") -> list[float]:
    """The model's score of each row, from the columns qid, query, docno and `text_field`; where it
    needs the first stage's, from score. A text is that of its row: queries may have other texts of
    the same docno. The order of the rows has no effect. Raises `BadInput` for a query with two
    texts, and for a document twice in a query."""
    places = [f"row {index}" for index in frame.index]
    qids, docnos = (
        [identifier(place, name, value) for place, value in zip(places, frame[name], strict=True)]
        for name in ("qid", "docno")
    )
    queries: Texts = {}
    for place, qid, text in zip(places, qids, frame["query"], strict=True):
        _require_text(place, "query", text)
        if queries.setdefault(qid, text) != text:
            raise BadInput(
                f"{place}: query {qid!r} must have one text, found {shown(queries[qid])} and "
                f"{shown(text)}; give each text a qid of its own"
            )
    none = [0] * len(frame)
    first_stage, ranks = (frame.get(name, none) for name in ("score", "rank"))
    ranked = gathered_run(
        zip(
            places,
            qids,
            docnos,
            first_stage,
            map(grade_of, places, ranks, ["rank"] * len(frame)),
            strict=True,
        )
    )
    run = noted("the frame", ranked)
    texts: dict[str, Texts] = {}
    for place, qid, docno, text in zip(places, qids, docnos, frame[text_field], strict=True):
        _require_text(place, text_field, text)
        texts.setdefault(qid, {})[docno] = text
    scores: Run = {}
    for some, documents in _in_parts(sorted(run), texts):
        part = {qid: run[qid] for qid in some}
        scores |= reranker.rerank(part, queries, documents, depth=max(map(len, part.values())))
    return [scores[qid][docno] for qid, docno in zip(qids, docnos, strict=True)]


def _require_text(place: str, column: str, text: object) -> None:
    if not isinstance(text, str):
        raise BadInput(f"{place}: {column} must be a text, found {shown(text)}")


def _in_parts(qids: Iterable[str], texts: Mapping[str, Texts]) -> Iterator[tuple[list[str], Texts]]:
    """(queries, their texts) in parts in which no document has two texts."""
    some: list[str] = []
    documents: Texts = {}
    for qid in qids:
        if any(documents.get(docno, text) != text for docno, text in texts[qid].items()):
            yield some, documents
            some, documents = [], {}
        some.append(qid)
        documents |= texts[qid]
    if some:
        yield some, documents
