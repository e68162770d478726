"""Records of ranking experiments: runs, judgments, splits of judged queries, collections."""

from collections.abc import Mapping
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


@dataclass(frozen=True)
class Collection:
    """A collection. `content_hash` covers everything a trial reads: texts, splits, runs.
    `first_stage` is the name in tables of the ranker of its candidates; empty if unknown."""

    name: str
    content_hash: str
    documents: Mapping[str, str]
    splits: Mapping[str, Split]
    first_stage: str = ""
