"""Records of a ranking experiment: runs, judgments, splits of judged queries, collections."""

from collections.abc import Mapping
from dataclasses import dataclass

Run = dict[str, dict[str, float]]
"""A TREC run: {query_id: {doc_id: score}}, the documents of a query in rank order."""

Qrels = dict[str, dict[str, int]]
"""Judgments: {query_id: {doc_id: relevance}}."""


@dataclass(frozen=True)
class Split:
    """The queries of one split, their judgments and the first stage's candidates."""

    queries: Mapping[str, str]
    qrels: Qrels
    candidates: Run


@dataclass(frozen=True)
class Collection:
    """A named collection. `content_hash` covers everything a trial reads: texts, splits, runs.
    `first_stage` is what tables call the ranker of its candidates; empty where it is not known."""

    name: str
    content_hash: str
    documents: Mapping[str, str]
    splits: Mapping[str, Split]
    first_stage: str = ""
