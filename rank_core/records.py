"""Records of ranking experiments: runs, judgments, splits of judged queries, collections."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

from rank_core.arguments import id_or_number, several, takes
from rank_core.errors import unknown

Run = dict[str, dict[str, float]]
"""A TREC run: {query_id: {doc_id: score}}, each query's documents in rank order."""

Qrels = dict[str, dict[str, int]]
"""Judgments: {query_id: {doc_id: relevance}}."""


_MAKER = "rank_core.data.written"
"""What reads frames and the like as a `Collection`; it is above this module, as all readers are."""
SPLITS = ("train", "dev", "test")
EVALUATED = ("dev", "test")
"""The splits whose queries every trial ranks."""


@dataclass(frozen=True)
class Split:
    """A split: its queries, their judgments and their first-stage candidates. `groups` has the
    group of each query, such as the meeting that it is about; it is empty where none are known.

    Examples:
        >>> import ranksweep
        >>> split = ranksweep.Split(
        ...     queries={"q1": "open a file"},
        ...     qrels={"q1": {"d1": 1}},
        ...     candidates={"q1": {"d2": 7.5, "d1": 2.5}},
        ... )
        >>> split.queries["q1"]
        'open a file'
    """

    queries: Mapping[str, str]
    qrels: Qrels
    candidates: Run
    groups: Mapping[str, str] = field(default_factory=dict)

    @takes(query_ids=several(id_or_number, "a list of query ids"))
    def subset(self, query_ids: Iterable[str]) -> "Split":
        """The split restricted to these queries, in this order. Raises `BadInput` for others.

        Examples:
            >>> import ranksweep
            >>> texts = {"q1": "open a file", "q2": "sort a list"}
            >>> qrels = {"q1": {"d1": 1}, "q2": {"d2": 1}}
            >>> split = ranksweep.Split(texts, qrels, candidates={"q1": {}, "q2": {}})
            >>> split.subset(["q2"]).queries
            {'q2': 'sort a list'}
        """
        query_ids = list(query_ids)
        for query_id in query_ids:
            if query_id not in self.queries:
                raise unknown("query", query_id, self.queries)
        return Split(
            {query_id: self.queries[query_id] for query_id in query_ids},
            {query_id: self.qrels[query_id] for query_id in query_ids},
            {query_id: self.candidates[query_id] for query_id in query_ids},
            {query_id: self.groups[query_id] for query_id in query_ids if query_id in self.groups},
        )

    def judged_in(self, documents: Container[str]) -> "Split":
        """The split without judgments of missing documents, which training cannot read.

        Examples:
            >>> import ranksweep
            >>> qrels = {"q1": {"d1": 1, "d9": 1}}
            >>> split = ranksweep.Split({"q1": "open a file"}, qrels, candidates={"q1": {}})
            >>> split.judged_in({"d1"}).qrels
            {'q1': {'d1': 1}}
        """
        qrels = {
            query_id: {doc_id: grade for doc_id, grade in judged.items() if doc_id in documents}
            for query_id, judged in self.qrels.items()
        }
        return replace(self, qrels=qrels)


@dataclass(frozen=True)
class Collection:
    """A collection. `content_hash` covers everything a trial reads: texts, splits, runs.
    `first_stage` is the name in tables of the ranker of its candidates; empty if unknown. The last
    `unranked` documents are texts of training files alone, which no first stage ranks. `language`
    is the code of the language that BM25 reads texts as; empty: English. With `leaves_own_out` a
    query's own document, that of its id, is not ranked for it.

    Examples:
        >>> import ranksweep
        >>> split = ranksweep.Split({"q1": "open a file"}, {"q1": {"d1": 1}}, {"q1": {"d1": 2.5}})
        >>> texts = {"d1": "open(path) opens the file at path"}
        >>> mine = ranksweep.Collection("mine", "version 1", texts, {"test": split}, "BM25")
        >>> mine.documents["d1"]
        'open(path) opens the file at path'
    """

    name: str
    content_hash: str
    documents: Mapping[str, str]
    splits: Mapping[str, Split]
    first_stage: str = ""
    unranked: int = 0
    language: str = ""
    leaves_own_out: bool = False

    @classmethod
    def of(
        cls,
        documents: Any,
        splits: Mapping[str, Mapping[str, Any]],
        *,
        name: str = "mine",
        first_stage: str = "",
        language: str = "",
    ) -> "Collection":
        """A collection of data frames, dictionaries, or datasets of Hugging Face, for `run` and
        `plan`; its contents are hashed. `documents` are {doc_id: text} or a frame of doc_id and
        text, and each split has `queries` (query_id, text), `qrels` (query_id, doc_id, relevance)
        and `candidates` (query_id, doc_id, score), without which BM25 ranks. Raises `BadInput`.

        Examples:
            >>> import ranksweep
            >>> split = {"queries": {"q1": "open a file"}, "qrels": {"q1": {"d1": 1}}}
            >>> mine = ranksweep.Collection.of({"d1": "open(path)"}, {"test": split})
            >>> mine.name, mine.splits["test"].queries
            ('mine', {'q1': 'open a file'})
        """
        made: Collection = import_module(_MAKER).collection_of(
            documents, splits, name=name, first_stage=first_stage, language=language
        )
        return made


def evaluated_splits(collection: Collection) -> tuple[str, ...]:
    """Those of `EVALUATED` that the collection has: a trial that trains nothing needs no dev."""
    return tuple(name for name in EVALUATED if name in collection.splits)


def without_own(query_id: str, ranked: Mapping[str, float]) -> dict[str, float]:
    """A ranking without the document of the query's own id."""
    return {doc_id: score for doc_id, score in ranked.items() if doc_id != query_id}
