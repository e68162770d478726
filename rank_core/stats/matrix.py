"""From a long table of per-query values to one seeds x queries matrix per cell.

A missing value is an error: a test on the remaining queries would answer another question.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rank_core.errors import BadInput, unknown

COLUMNS = ("cell", "seed", "split", "query_id", "measure", "value")

QUERIES_THAT_PROVE = 30
"""On fewer queries two different training runs may agree on every value."""


@dataclass(frozen=True)
class ScoreMatrix:
    """One measure of several cells on the same queries; `scores[cell]` is float64, (S, Q). Rows
    follow `seeds[cell]`, columns follow `query_ids`. Cells may differ in their seeds."""

    measure: str
    cells: tuple[str, ...]
    query_ids: tuple[str, ...]
    seeds: dict[str, tuple[int, ...]]
    scores: dict[str, NDArray[np.float64]]


def score_matrix(
    per_query: pd.DataFrame, *, measure: str, cells: Sequence[str], may_agree: Collection[str] = ()
) -> ScoreMatrix:
    """The values of `measure` as one (S, Q) matrix per cell, seeds and queries in sorted order.

    Raises `BadInput` for several splits, holes, duplicates, values that are not finite, and seeds
    of a cell that agree on every query and every measure of the table without being constant,
    except cells of `may_agree`, which are derived from different runs.
    """
    matrices = score_matrices(per_query, measures=[measure], cells=cells, may_agree=may_agree)
    return matrices[measure]


def score_matrices(
    per_query: pd.DataFrame,
    *,
    measures: Sequence[str],
    cells: Sequence[str],
    may_agree: Collection[str] = (),
) -> dict[str, ScoreMatrix]:
    """{measure: its `score_matrix`}; the table is split once for all of them."""
    for measure in measures:
        _check_request(per_query, measure=measure, cells=cells)
    rows = _Rows.of(per_query)
    of_cell = {cell: rows.of_cell(cell) for cell in cells}
    for cell, own in of_cell.items():
        if cell not in may_agree:
            _refuse_identical_seeds(own, cell=cell)
    return {measure: _matrix(of_cell, measure) for measure in measures}


@dataclass(frozen=True)
class _Rows:
    """Rows of the table by column; texts as numbers, which sort as the texts do."""

    cell: NDArray[np.int32]
    seed: NDArray[np.int64]
    query: NDArray[np.int32]
    measure: NDArray[np.int32]
    value: NDArray[np.float64]
    cells: tuple[str, ...]
    queries: tuple[str, ...]
    measures: tuple[str, ...]

    @classmethod
    def of(cls, table: pd.DataFrame) -> "_Rows":
        """The rows of a table, sorted by cell."""
        cell, cells = pd.factorize(table["cell"], sort=True)
        order = np.argsort(cell, kind="stable")
        query, queries = pd.factorize(table["query_id"], sort=True)
        measure, measures = pd.factorize(table["measure"], sort=True)
        seed = table["seed"].to_numpy(dtype=np.int64)
        value = table["value"].to_numpy(dtype=np.float64)
        return cls(
            cell=cell[order].astype(np.int32),
            seed=seed[order],
            query=query.astype(np.int32)[order],
            measure=measure.astype(np.int32)[order],
            value=value[order],
            cells=tuple(map(str, cells)),
            queries=tuple(map(str, queries)),
            measures=tuple(map(str, measures)),
        )

    def of_cell(self, cell: str) -> "_Rows":
        """The rows of one cell."""
        first, last = np.searchsorted(self.cell, self.cells.index(cell) + np.array([0, 1]))
        return self.kept(slice(first, last))

    def of_measure(self, measure: str) -> "_Rows":
        """The rows of one measure."""
        return self.kept(self.measure == self.measures.index(measure))

    def kept(self, rows: Any) -> "_Rows":
        """Some of the rows."""
        names = ("cell", "seed", "query", "measure", "value")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})


def _matrix(of_cell: Mapping[str, _Rows], measure: str) -> ScoreMatrix:
    of_measure = {cell: rows.of_measure(measure) for cell, rows in of_cell.items()}
    names = next(iter(of_measure.values())).queries
    queries = np.unique(np.concatenate([np.unique(rows.query) for rows in of_measure.values()]))
    query_ids = tuple(names[query] for query in queries)
    parts = {}
    for cell, rows in of_measure.items():
        if not len(rows.value):
            raise BadInput(f"every cell needs values of {measure}, cell {cell} has none")
        parts[cell] = _cell_scores(rows, cell=cell, measure=measure, queries=queries)
    return ScoreMatrix(
        measure=measure,
        cells=tuple(of_cell),
        query_ids=query_ids,
        seeds={cell: seeds for cell, (seeds, _) in parts.items()},
        scores={cell: score_SQ for cell, (_, score_SQ) in parts.items()},
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
    known = [str(name) for name in per_query["cell"].unique()]
    for cell in cells:
        if cell not in known:
            raise unknown("cell", cell, known)
    measures = [str(name) for name in per_query["measure"].unique()]
    if measure not in measures:
        raise unknown("measure", measure, measures)


def _cell_scores(
    rows: _Rows, *, cell: str, measure: str, queries: NDArray[np.int32]
) -> tuple[tuple[int, ...], NDArray[np.float64]]:
    """The seeds of one cell and its (S, Q) values; every (seed, query) exactly once and finite."""
    if not np.isfinite(rows.value).all():
        bad = int(np.flatnonzero(~np.isfinite(rows.value))[0])
        raise BadInput(
            f"values must be finite, got {rows.value[bad]} for cell {cell}, "
            f"seed {rows.seed[bad]}, query {rows.queries[rows.query[bad]]}, {measure}"
        )
    seeds, row_of_value = np.unique(rows.seed, return_inverse=True)
    shape = (len(seeds), len(queries))
    flat = np.ravel_multi_index((row_of_value, np.searchsorted(queries, rows.query)), shape)
    counts_SQ = np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape)
    for row, column in zip(*np.nonzero(counts_SQ > 1), strict=True):
        raise BadInput(
            f"a (cell, seed, query) must have one value, got {counts_SQ[row, column]} "
            f"for cell {cell}, seed {seeds[row]}, query {rows.queries[queries[column]]}"
        )
    for row in np.flatnonzero((counts_SQ == 0).any(axis=1)):
        absent = [rows.queries[queries[column]] for column in np.flatnonzero(counts_SQ[row] == 0)]
        shown = ", ".join(absent[:5]) + (", ..." if len(absent) > 5 else "")
        raise BadInput(
            "every (cell, seed) needs a value for every query: "
            f"cell {cell}, seed {seeds[row]} lacks {len(absent)} of {len(queries)}: {shown}"
        )
    score_SQ = np.empty(shape, dtype=np.float64)
    score_SQ.flat[flat] = rows.value
    return tuple(int(seed) for seed in seeds), score_SQ


def _refuse_identical_seeds(rows: _Rows, *, cell: str) -> None:
    """Refuse seeds with equal values on every measure: copies of a run would only shrink p.

    RR@10 alone may agree by chance, and so may all measures on few queries, which are not checked.
    Nor is a constant cell: a collapsed ranker gives 0 on every query with every seed.
    """
    if len(np.unique(rows.query)) < QUERIES_THAT_PROVE:
        return
    order = np.lexsort((rows.query, rows.measure, rows.seed))
    seeds, starts = np.unique(rows.seed[order], return_index=True)
    values = dict(zip(seeds, np.split(rows.value[order], starts[1:]), strict=True))
    for first, second in combinations(values, 2):
        same = np.array_equal(values[first], values[second])
        if same and np.ptp(values[first]) > 0:
            raise BadInput(
                f"training runs must differ, but seeds {first} and {second} of {cell} have "
                "identical values for all queries: the seed has no effect, training changes "
                "nothing, or a run was copied"
            )


__all__ = ["COLUMNS", "ScoreMatrix", "score_matrices", "score_matrix"]
