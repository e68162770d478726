"""Which queries of a comparison are not alone: clusters that a user names, relevant documents that
queries share, and queries that several collections have."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rank_core.data.groups import document_clusters, joined, read_clusters
from rank_core.data.trec import read_qrels
from rank_core.errors import BadInput, shown
from rank_core.files import shown_path
from rank_core.records import Qrels
from sweeps.store.queries import QueryFacts, read_query_facts

AUTO, GROUP, NONE = "auto", "group", "none"
SOURCES = {AUTO: "shared relevant documents", GROUP: "groups of the collection"}
"""{value of --clusters: what the clusters are made of}; others are files."""

ClusterOf = Mapping[str, str]
"""{query_id: cluster}."""


@dataclass(frozen=True)
class Clusters:
    """The clusters of the queries of each collection, and what they are made of."""

    source: str
    of: Mapping[str, ClusterOf]  # by collection
    common: bool = False  # whether a name is the same cluster in every collection


@dataclass(frozen=True)
class Queries:
    """What is known of the reported queries of one collection."""

    facts: QueryFacts = field(default_factory=QueryFacts)
    qrels: Qrels = field(default_factory=dict)  # empty where there are none

    @property
    def sharing(self) -> ClusterOf:
        """The clusters of queries with common relevant documents; empty where no two share one."""
        found = document_clusters(self.qrels)
        return found if len({*found.values()}) < len(found) else {}


def queries_of_sweep(folder: Path, split: str) -> Queries:
    """What a sweep's folder knows of its reported queries."""
    path = folder / "qrels" / f"{split}.qrels"
    qrels = read_qrels(path) if path.is_file() else {}
    return Queries(read_query_facts(folder, split), qrels)


def clusters_from(given: str | ClusterOf, queries: Mapping[str, Queries]) -> Clusters:
    """The clusters that `--clusters` names, of the queries of each collection. Raises `BadInput`
    where they are not known."""
    if not isinstance(given, str):
        return Clusters("the given clusters", dict.fromkeys(queries, given), common=True)
    if given not in SOURCES:
        of_file = read_clusters(Path(given))
        return Clusters(shown_path(given), dict.fromkeys(queries, of_file), common=True)
    of: dict[str, ClusterOf] = {}
    for name, stored in queries.items():
        of[name] = document_clusters(stored.qrels) if given == AUTO else stored.facts.group
        if not of[name]:
            needs = "judgments" if given == AUTO else "queries with the field group (split --group)"
            raise BadInput(
                f"--clusters {given} needs {needs}{f', {name} has none' if name else ''}"
            )
    return Clusters(SOURCES[given], of)


def check_clusters(clusters: Clusters, queries: Mapping[str, Sequence[str]]) -> None:
    """Refuse clusters that lack a query of some collection, or put all queries into one."""
    for name, ids in queries.items():
        cluster_of = clusters.of[name]
        if lacking := [query_id for query_id in ids if query_id not in cluster_of]:
            raise BadInput(
                f"--clusters: every query must have a cluster; {clusters.source} has none of "
                f"{len(lacking)} of {len(ids)} queries, such as {shown(lacking[0])}"
            )
        if len({cluster_of[query_id] for query_id in ids}) < 2:
            raise BadInput(
                f"--clusters: a test needs two clusters or more, but {clusters.source} has all "
                f"{len(ids)} queries in one"
            )


def query_keys(queries: Mapping[str, Queries]) -> dict[str, ClusterOf]:
    """{collection: {query_id: key}}: queries of two collections with one key are one query. The
    key is the hash of the text where all collections have it, otherwise the id; empty for the ids.
    """
    if not all(stored.facts.text for stored in queries.values()):
        return {}
    keys: dict[str, ClusterOf] = {}
    for name, stored in queries.items():
        counts = Counter(stored.facts.text.values())
        # Within a collection two queries of one text stay two.
        keys[name] = {
            query_id: text if counts[text] == 1 else f"{name}/{query_id}"
            for query_id, text in stored.facts.text.items()
        }
    return keys


def shared_columns(
    columns: Mapping[str, Sequence[str]], clusters: Clusters | None, keys: Mapping[str, ClusterOf]
) -> tuple[list[str], int]:
    """(the key of each column of a mean over collections, the number of different queries).
    `columns` are the query ids of each collection; with `clusters` the columns are these. Clusters
    that have a query in common are one."""
    of_query: dict[str, list[str]] = {}  # {key of a query: its columns}
    order: list[str] = []
    for name, ids in columns.items():
        names: list[str] = []
        for query_id in ids:
            column = f"query\n{name}\n{query_id}"
            if clusters:
                column = f"{'' if clusters.common else name}\n{clusters.of[name][query_id]}"
            of_query.setdefault(keys.get(name, {}).get(query_id, query_id), []).append(column)
            names.append(column)
        order += dict.fromkeys(names)
    group = joined(of_query)
    of_column = {column: group[key] for key, members in of_query.items() for column in members}
    return [of_column[column] for column in order], len(of_query)
