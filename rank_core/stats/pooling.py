"""Several query sets as one: TREC DL 2019, 2020 and 2021 have one mean over 145 queries. The mean
of a pooled set is over all its queries, named `set/query_id`, so a year counts by its number of
judged queries. Papers print this mean, not the mean of the yearly means.
"""

from collections import Counter
from collections.abc import Iterable

SEPARATOR = "/"


def query_set_of(query_id: str) -> str:
    """The set that a pooled query belongs to; "" if its id names none."""
    return query_id.rpartition(SEPARATOR)[0]


def queries_per_set(query_ids: Iterable[str]) -> dict[str, int]:
    """{set: number of its queries} by first appearance; empty if a query names no set."""
    counts = Counter(query_set_of(query_id) for query_id in query_ids)
    return {} if "" in counts else dict(counts)
