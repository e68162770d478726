"""From a long table of per-query values to one seeds x queries matrix per cell.

Nothing is repaired here: a hole in the table is an error, because a test on the queries that happen
to be there answers another question.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rank_core.errors import BadInput, unknown

COLUMNS = ("cell", "seed", "split", "query_id", "measure", "value")


QUERIES_THAT_PROVE = 30
"""On fewer queries two different training runs may well agree on every value."""


@dataclass(frozen=True)
class ScoreMatrix:
    """One measure of several cells on the same queries; `scores[cell]` is float64, (S, Q).

    Rows follow `seeds[cell]`, columns follow `query_ids`. Cells may differ in their seeds.
    """

    measure: str
    cells: tuple[str, ...]
    query_ids: tuple[str, ...]
    seeds: dict[str, tuple[int, ...]]
    scores: dict[str, NDArray[np.float64]]


def score_matrix(per_query: pd.DataFrame, *, measure: str, cells: Sequence[str]) -> ScoreMatrix:
    """The values of `measure` as one (S, Q) matrix per cell, seeds and queries in sorted order.

    Raises `BadInput` for several splits, holes, duplicates, values that are not finite, and seeds
    of a cell that agree on every query and every measure of the table without being constant.
    """
    _check_request(per_query, measure=measure, cells=cells)
    table = per_query[per_query["cell"].isin(list(cells))]
    query_ids = tuple(sorted(table.loc[table["measure"] == measure, "query_id"].unique()))
    seeds: dict[str, tuple[int, ...]] = {}
    scores: dict[str, NDArray[np.float64]] = {}
    for cell, rows in table.groupby("cell", sort=False):
        wanted = rows[rows["measure"] == measure]
        if wanted.empty:
            raise BadInput(f"every cell needs values of {measure}, cell {cell} has none")
        name = str(cell)
        seeds[name], scores[name] = _cell_scores(wanted, cell=name, query_ids=query_ids)
        _refuse_identical_seeds(rows, cell=name)
    return ScoreMatrix(
        measure=measure,
        cells=tuple(cells),
        query_ids=tuple(str(query_id) for query_id in query_ids),
        seeds={cell: seeds[cell] for cell in cells},
        scores={cell: scores[cell] for cell in cells},
    )


def _check_request(per_query: pd.DataFrame, *, measure: str, cells: Sequence[str]) -> None:
    lacking = [name for name in COLUMNS if name not in per_query.columns]
    if lacking:
        raise BadInput(
            f"the per-query table needs the columns {', '.join(COLUMNS)}; "
            f"{', '.join(lacking)} missing, found {', '.join(map(str, per_query.columns))}"
        )
    if not cells:
        raise BadInput("at least one cell must be named")
    if len(set(cells)) < len(cells):
        repeated = next(cell for cell in cells if list(cells).count(cell) > 1)
        raise BadInput(f"cells must be named once, got {repeated} several times")
    splits = sorted(map(str, per_query["split"].unique()))
    if len(splits) > 1:
        raise BadInput(f"the per-query table must hold one split, got {', '.join(splits)}")
    for cell in cells:
        if not (per_query["cell"] == cell).any():
            raise unknown("cell", cell, map(str, per_query["cell"].unique()))
    if not (per_query["measure"] == measure).any():
        raise unknown("measure", measure, map(str, per_query["measure"].unique()))


def _cell_scores(
    rows: pd.DataFrame, *, cell: str, query_ids: tuple[str, ...]
) -> tuple[tuple[int, ...], NDArray[np.float64]]:
    """The seeds of one cell and its (S, Q) values; every (seed, query) exactly once and finite."""
    values = rows["value"].to_numpy(dtype=np.float64)
    if not np.isfinite(values).all():
        bad = rows.iloc[int(np.flatnonzero(~np.isfinite(values))[0])]
        raise BadInput(
            f"values must be finite, got {bad['value']} for cell {cell}, seed {bad['seed']}, "
            f"query {bad['query_id']}, {bad['measure']}"
        )
    row_of_value, seeds = pd.factorize(rows["seed"], sort=True)
    column_of_value = pd.Index(query_ids).get_indexer(pd.Index(rows["query_id"]))
    shape = (len(seeds), len(query_ids))
    flat = np.ravel_multi_index((row_of_value, column_of_value), shape)
    counts_SQ = np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape)
    for row, column in zip(*np.nonzero(counts_SQ > 1), strict=True):
        raise BadInput(
            f"a (cell, seed, query) must have one value, got {counts_SQ[row, column]} "
            f"for cell {cell}, seed {seeds[row]}, query {query_ids[column]}"
        )
    for row in np.flatnonzero((counts_SQ == 0).any(axis=1)):
        absent = [query_ids[column] for column in np.flatnonzero(counts_SQ[row] == 0)]
        shown = ", ".join(map(str, absent[:5])) + (", ..." if len(absent) > 5 else "")
        raise BadInput(
            "every (cell, seed) needs a value for every query: "
            f"cell {cell}, seed {seeds[row]} lacks {len(absent)} of {len(query_ids)}: {shown}"
        )
    score_SQ = np.empty(shape, dtype=np.float64)
    score_SQ.flat[flat] = values
    return tuple(int(seed) for seed in seeds), score_SQ


def _refuse_identical_seeds(rows: pd.DataFrame, *, cell: str) -> None:
    """A seed that changes no value of no measure is not wired; S copies would only shrink p.

    All measures of the table are looked at, because RR@10 alone may agree by chance; so may all
    of them on a handful of queries, which prove nothing and are let through. So is a constant
    cell: a collapsed ranker gives 0 on every query under every seed.
    """
    if rows["query_id"].nunique() < QUERIES_THAT_PROVE:
        return
    for first, second, same in _seed_pairs(rows):
        if same:
            raise BadInput(
                f"training runs must differ, but seeds {first} and {second} of {cell} have "
                "identical values for all queries: the seed is not wired, training changes "
                "nothing, or a run was copied"
            )


def _seed_pairs(rows: pd.DataFrame) -> Iterator[tuple[int, int, bool]]:
    """Every pair of seeds and whether they agree on all values without being constant."""
    ordered = rows.sort_values(["measure", "query_id"], kind="stable")
    values = {
        int(str(seed)): group["value"].to_numpy(dtype=np.float64)
        for seed, group in ordered.groupby("seed")
    }
    for first, second in combinations(values, 2):
        same = np.array_equal(values[first], values[second])
        yield first, second, same and np.ptp(values[first]) > 0


__all__ = ["COLUMNS", "ScoreMatrix", "score_matrix"]
