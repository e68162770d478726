"""Several query sets as one: TREC DL 2019, 2020 and 2021 have one mean over 145 queries. The mean
of a pooled set is over all its queries, so a year counts by its number of judged queries. Papers
print this mean, not the mean of the yearly means.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import pandas as pd

from rank_core.errors import BadInput
from rank_core.stats.matrix import COLUMNS

SEPARATOR = "/"


def pool_query_sets(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """One long per-query table of the same trials on several sets, keyed by (set, query_id).

    `query_id` becomes `set/query_id` and `query_set` is added, so that equal query ids of two years
    remain different queries. Every set must hold the same (cell, seed) pairs, measures and split.
    """
    if not tables:
        raise BadInput("at least one query set must be given")
    for name, table in tables.items():
        _check(name, table)
    first, *others = tables
    for name in others:
        _check_same(tables[first], tables[name], first=first, name=name)
    return pd.concat(
        [
            table.assign(query_id=f"{name}{SEPARATOR}" + table["query_id"].astype(str)).assign(
                query_set=name
            )
            for name, table in tables.items()
        ],
        ignore_index=True,
    )


def query_set_of(query_id: str) -> str:
    """The set that a pooled query belongs to; "" if its id names none."""
    return query_id.rpartition(SEPARATOR)[0]


def queries_per_set(query_ids: Iterable[str]) -> dict[str, int]:
    """{set: number of its queries} by first appearance; empty if a query names no set."""
    counts = Counter(query_set_of(query_id) for query_id in query_ids)
    return {} if "" in counts else dict(counts)


def _check(name: str, table: pd.DataFrame) -> None:
    if not name or SEPARATOR in name:
        raise BadInput(f"a query set needs a name without {SEPARATOR!r}, got {name!r}")
    lacking = [column for column in COLUMNS if column not in table.columns]
    if lacking:
        raise BadInput(
            f"the per-query table of {name} needs the columns {', '.join(COLUMNS)}; "
            f"{', '.join(lacking)} missing, found {', '.join(map(str, table.columns))}"
        )
    if table.empty:
        raise BadInput(f"a query set must have queries, {name} has none")


def _check_same(left: pd.DataFrame, right: pd.DataFrame, *, first: str, name: str) -> None:
    """The same trials, measures and split in both sets; the message names what one side lacks."""
    for what, columns in (
        ("(cell, seed) pairs", ["cell", "seed"]),
        ("measures", ["measure"]),
        ("split", ["split"]),
    ):
        here, there = _kinds(left, columns), _kinds(right, columns)
        sides = ((name, here - there, first), (first, there - here, name))
        for lacking, absent, other in sides:
            if absent:
                shown = "; ".join(" ".join(map(str, kind)) for kind in sorted(absent)[:5])
                more = ", ..." if len(absent) > 5 else ""
                raise BadInput(
                    f"pooled query sets need the same {what}: {lacking} lacks {len(absent)} "
                    f"of {other}: {shown}{more}"
                )


def _kinds(table: pd.DataFrame, columns: list[str]) -> set[tuple[object, ...]]:
    return set(table[columns].drop_duplicates().itertuples(index=False, name=None))
