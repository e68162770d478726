"""Several query sets as one: TREC DL 2019, 2020 and 2021 have one mean over 145 queries.

The mean of a pooled set is that over all its queries, so a year counts as much as it has judged
queries. The mean of the yearly means is another number, and not the one that papers print.
"""

from collections.abc import Mapping

import pandas as pd

from rank_core.errors import BadInput
from rank_core.stats.matrix import COLUMNS

SEPARATOR = "/"


def pool_query_sets(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """One long per-query table of the same trials on several sets, keyed by (set, query_id).

    `query_id` becomes `set/query_id` and `query_set` is added, so that equal numbers of two years
    stay two queries. Every set must hold the same (cell, seed) pairs, measures and split.
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


def queries_per_set(pooled: pd.DataFrame) -> dict[str, int]:
    """{set: number of its queries} of a pooled table, in the order of the sets."""
    counts = pooled.groupby("query_set", sort=False)["query_id"].nunique()
    return {str(name): int(count) for name, count in counts.items()}


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
                shown = "; ".join(" ".join(map(str, one)) for one in sorted(absent)[:5])
                more = ", ..." if len(absent) > 5 else ""
                raise BadInput(
                    f"pooled query sets need the same {what}: {lacking} lacks {len(absent)} "
                    f"of {other}: {shown}{more}"
                )


def _kinds(table: pd.DataFrame, columns: list[str]) -> set[tuple[object, ...]]:
    return set(table[columns].drop_duplicates().itertuples(index=False, name=None))
