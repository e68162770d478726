"""Groups of queries, such as the meeting that they are about: read from a file or from a field of
the queries or the documents. All queries of a group belong in the same split, and may be a cluster
of the tests."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rank_core.data.named_files import source_of
from rank_core.data.readers import (
    GroupRow,
    gathered_groups,
    has_names,
    labels,
    labels_of,
)
from rank_core.data.tables import frame_records
from rank_core.data.trec import query_lines
from rank_core.data.vocabulary import CLUSTER, DOCUMENT, QUERY, Fields, Schema
from rank_core.errors import BadInput, shown
from rank_core.files import shown_path
from rank_core.records import Qrels

if TYPE_CHECKING:
    import pandas as pd

OF_DOCUMENT = "doc_id"
"""The field of documents that is different in each: its groups share relevant documents."""
SHARED = 0.1
"""The share of queries that share a relevant document with another above which commands warn."""
LARGEST = 0.5
"""A cluster with a larger share of the queries says nothing: where each query has many relevant
documents, nearly all are connected through others."""


def read_groups(
    name: str, *, queries: Sequence[str], docs: str, qrels: Qrels, fields: Fields
) -> dict[str, str]:
    """{query_id: group} of all judged queries.

    `name` is a file of groups (`query_id TAB group`, or JSON lines with both), or a field: of the
    files of queries if they have it, otherwise of the documents. With a field of the documents a
    query has the groups of its relevant ones, and queries that share one are in one group; `doc_id`
    puts queries with a common relevant document together. Raises `BadInput` for a judged query
    without a group, and for a field that no record has.
    """
    if os.path.isfile(name):
        return _of_every(name, _from_file(Path(name), fields), qrels)
    given = [row for source in queries for row in _rows(source, "queries", name, QUERY, fields)]
    if any(group is not None for _, _, group in given):
        judged = (row for row in given if row[1] in qrels)
        return _of_every(f"field {name} of the queries", gathered_groups(judged), qrels)
    if name == OF_DOCUMENT or fields.get(name) == OF_DOCUMENT:
        return document_clusters(qrels)
    rows = _rows(docs, "docs", name, DOCUMENT, fields)
    of_document = {doc_id: group for _, doc_id, group in rows if group is not None}
    if not of_document:
        raise BadInput(
            f"--group must be a file of query and group, or a field of the queries or documents; "
            f"{shown(name)} is neither. `--group {OF_DOCUMENT}` keeps queries together that have a "
            "relevant document in common"
        )
    return joined(
        {query_id: _groups_of(query_id, judged, of_document, name)
         for query_id, judged in qrels.items()}
    )  # fmt: skip


def read_clusters(path: Path) -> dict[str, str]:
    """{query_id: cluster} of a file: lines `query_id TAB cluster`, or records (TSV, CSV, JSON,
    Parquet) with the fields query_id and cluster, or group as `ranksweep split --group` writes it.
    Raises `BadInput` for a query with two clusters."""
    if not os.path.isfile(path):
        raise BadInput(f"clusters of queries must be a file, and {shown_path(path)} is not one")
    named = has_names(path, CLUSTER, {})
    rows = labels(path, "group", CLUSTER, {}) if named else query_lines(path, "cluster")
    if not (clusters := gathered_groups(rows)):
        raise BadInput(f"{path} must have the fields query_id and cluster (or group)")
    return clusters


def frame_clusters(frame: "pd.DataFrame", where: str) -> dict[str, str]:
    """The same of a data frame."""
    rows = labels_of(frame_records(frame, where), where, "group", CLUSTER, {})
    if not (clusters := gathered_groups(rows)):
        raise BadInput(f"{where} must have the columns query_id and cluster (or group)")
    return clusters


def document_clusters(qrels: Qrels) -> dict[str, str]:
    """{query_id: cluster} where queries with a common relevant document are in one cluster, be it
    through others; a query without a relevant document is alone.

    Examples:
        >>> from rank_core.data.groups import document_clusters
        >>> qrels = {"q1": {"d1": 1}, "q2": {"d1": 2, "d2": 1}, "q3": {"d2": 0}}
        >>> document_clusters(qrels)
        {'q1': 'd1', 'q2': 'd1', 'q3': 'query q3'}
    """
    return joined({query_id: _relevant(judged) for query_id, judged in qrels.items()})


def share_documents(clusters: Mapping[str, str]) -> int:
    """The number of queries that share a relevant document with another one, of
    `document_clusters`; 0 where these are few, or where nearly all queries are in one cluster."""
    sizes = Counter(clusters.values())
    together = sum(size for size in sizes.values() if size > 1)
    few = together < SHARED * len(clusters)
    return 0 if few or max(sizes.values(), default=0) > LARGEST * len(clusters) else together


def _groups_of(
    query_id: str, judged: Mapping[str, int], of_document: Mapping[str, str], field: str
) -> list[str]:
    relevant = _relevant(judged)
    if lacking := [doc_id for doc_id in relevant if doc_id not in of_document]:
        raise BadInput(
            f"--group {field}: document {shown(lacking[0])}, relevant to query {shown(query_id)}, "
            "has no such field"
        )
    return [of_document[doc_id] for doc_id in relevant]


def _from_file(path: Path, fields: Fields) -> dict[str, str]:
    if has_names(path, QUERY, fields):
        return gathered_groups(labels(path, "group", QUERY, fields))
    return gathered_groups(query_lines(path, "group"))


def _rows(
    source: str, entity: str, field: str, schema: Schema, fields: Fields
) -> Iterator[GroupRow]:
    """The field of each record; none where a source has no names of fields."""
    if source_of(source, entity) is None and has_names(Path(source), schema, fields):
        yield from labels(Path(source), field, schema, fields)


def _of_every(source: str, groups: Mapping[str, str], qrels: Qrels) -> dict[str, str]:
    if lacking := next((query_id for query_id in qrels if query_id not in groups), None):
        raise BadInput(f"{source} has no group of query {shown(lacking)}, which is judged")
    return {query_id: groups[query_id] for query_id in qrels}


def _relevant(judged: Mapping[str, int]) -> list[str]:
    return [doc_id for doc_id, grade in judged.items() if grade > 0]


def joined(labels_of: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The group of each query where queries with a common label are in one group, directly or
    through others: its first label in alphabetic order. A query without labels is alone."""
    parent: dict[str, str] = {}

    def root(label: str) -> str:
        while parent.setdefault(label, label) != label:
            parent[label] = label = parent[parent[label]]
        return label

    for found in labels_of.values():
        roots = sorted({root(label) for label in found})
        for other in roots[1:]:
            parent[other] = roots[0]
    return {
        query_id: root(found[0]) if found else f"query {query_id}"
        for query_id, found in labels_of.items()
    }
