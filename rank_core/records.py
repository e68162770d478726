"""Records of ranking experiments: runs, judgments, splits of judged queries, collections."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Run = dict[str, dict[str, float]]
"""A TREC run: {query_id: {doc_id: score}}, each query's documents in rank order."""

Qrels = dict[str, dict[str, int]]
"""Judgments: {query_id: {doc_id: relevance}}."""


@dataclass(frozen=True)
class Split:
    """A split: its queries, their judgments and their first-stage candidates."""

    queries: Mapping[str, str]
    qrels: Qrels
    candidates: Run

    def subset(self, query_ids: Iterable[str]) -> "Split":
        """The split restricted to these queries, in this order."""
        query_ids = list(query_ids)
        return Split(
            {query_id: self.queries[query_id] for query_id in query_ids},
            {query_id: self.qrels[query_id] for query_id in query_ids},
            {query_id: self.candidates[query_id] for query_id in query_ids},
        )


@dataclass(frozen=True)
class Collection:
    """A collection. `content_hash` covers everything a trial reads: texts, splits, runs.
    `first_stage` is the name in tables of the ranker of its candidates; empty if unknown."""

    name: str
    content_hash: str
    documents: Mapping[str, str]
    splits: Mapping[str, Split]
    first_stage: str = ""
