"""From a long table of per-query values to one seeds x queries matrix per cell. A missing value is
an error: a test on the remaining queries would answer another question."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rank_core.arguments import frame, names, takes, text
from rank_core.errors import BadInput, unknown
from rank_core.stats.scopes import Strata, strata_df

COLUMNS = ("cell", "seed", "split", "query_id", "measure", "value")

QUERIES_THAT_PROVE = 30
"""On fewer queries two different training runs may agree on every value."""


@dataclass(frozen=True)
class ScoreMatrix:
    """One measure of several cells on the same queries; `scores[cell]` is float64, (S, Q). Rows
    follow `seeds[cell]`, columns follow `query_ids`. Cells may differ in their seeds. Strata are of
    a mean over collections (`over_collections`); columns may be clusters of queries
    (`rank_core.stats.clusters`)."""

    measure: str
    cells: tuple[str, ...]
    query_ids: tuple[str, ...]
    seeds: dict[str, tuple[int, ...]]
    scores: dict[str, NDArray[np.float64]]
    query_strata: Strata = ()
    query_df: tuple[float, ...] = ()  # of V_q in each stratum, where they are not its size minus 1
    run_strata: Mapping[str, Strata] = field(default_factory=dict)
    by_query: "ScoreMatrix | None" = None  # of single queries, where the columns are clusters
    cluster_of: tuple[int, ...] = ()  # the column of each query of `by_query`
    counted: int = 0  # the queries behind the columns of a mean over collections that share some

    @property
    def of_queries(self) -> "ScoreMatrix":
        """The matrix with a column per query: plain scores, which wins are counted on."""
        return self.by_query or self

    @property
    def num_queries(self) -> int:
        """The number of queries, in whatever clusters they are."""
        return self.counted or len(self.of_queries.query_ids)

    def only(self, cells: Iterable[str]) -> "ScoreMatrix":
        """The matrix of some of its cells, in this order."""
        names = tuple(cells)
        seeds = {cell: self.seeds[cell] for cell in names}
        return replace(self, cells=names, seeds=seeds, scores={c: self.scores[c] for c in names})

    def num_runs(self, cell: str) -> float:
        """The runs of a cell by the degrees of freedom of their means."""
        strata = self.run_strata.get(cell, ())
        return float(1 + strata_df(self.scores[cell].mean(axis=1), strata))

    def fewest_runs(self, cell: str) -> int:
        """The runs of a cell, of several collections the smallest number."""
        return min(self.run_strata.get(cell) or (len(self.scores[cell]),))


@takes(
    per_query=frame,
    measure=text,
    cells=names(" of cells"),
    may_agree=names(" of cells", unordered=True),
)
def score_matrix(
    per_query: pd.DataFrame, *, measure: str, cells: Sequence[str], may_agree: Collection[str] = ()
) -> ScoreMatrix:
    """The values of `measure` as one (S, Q) matrix per cell, seeds and queries in sorted order.

    Raises `BadInput` for several splits, holes, duplicates, values that are not finite, and seeds
    of a cell that agree on every query and every measure of the table without being constant,
    except cells of `may_agree`, whose runs are known to be different ones.

    Examples:
        >>> import pandas as pd
        >>> from rank_core.stats.matrix import score_matrix
        >>> values = pd.DataFrame({"cell": "A", "seed": [1, 1, 2, 2], "split": "test"})
        >>> values = values.assign(query_id=["q1", "q2"] * 2, measure="RR")
        >>> values["value"] = [0.2, 0.5, 0.3, 0.4]
        >>> score_matrix(values, measure="RR", cells=["A"]).scores["A"]
        array([[0.2, 0.5],
               [0.3, 0.4]])
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
    texts = {name: _coded(per_query[name]) for name in ("cell", "measure", "query_id")}
    try:
        table = per_query.assign(**texts).astype({"seed": np.int64, "value": np.float64})
    except (ValueError, TypeError, OverflowError) as error:
        raise BadInput(
            f"the per-query table needs whole numbers as seeds and numbers as values: {error}"
        ) from None
    groups = dict(iter(table.groupby("cell", observed=True)))
    of_cell = {cell: groups[cell] for cell in cells}
    for cell, rows in of_cell.items():
        if cell not in may_agree:
            _refuse_identical_seeds(rows, cell=cell)
    return {measure: _matrix(of_cell, measure) for measure in measures}


def _coded(column: "pd.Series[Any]") -> pd.Categorical:
    """The column as numbers, which sort as its texts do."""
    # Categories of sorted texts: groups come in one order on every machine, and comparisons are of
    # small numbers.
    codes, names = pd.factorize(column, sort=True)
    return pd.Categorical.from_codes(codes, np.asarray(names))


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


def _matrix(of_cell: Mapping[str, pd.DataFrame], measure: str) -> ScoreMatrix:
    """Every (seed, query) exactly once and finite, the queries those of any cell."""
    tables = {cell: _seeds_by_queries(rows, cell, measure) for cell, rows in of_cell.items()}
    names = next(iter(of_cell.values()))["query_id"].cat.categories
    # A query that any cell has is a query of the comparison; a cell that lacks it has a hole.
    known = np.any([(~np.isnan(table)).any(axis=0) for _, table in tables.values()], axis=0)
    queries, scores = names[known], {}
    for cell, (seeds, table) in tables.items():
        scores[cell] = np.ascontiguousarray(table[:, known])
        for seed, row in zip(seeds, np.isnan(scores[cell]), strict=True):
            if absent := list(map(str, queries[row])):
                shown = ", ".join(absent[:5]) + (", ..." if len(absent) > 5 else "")
                raise BadInput(
                    "every (cell, seed) needs a value for every query: "
                    f"cell {cell}, seed {seed} lacks {len(absent)} of {len(queries)}: {shown}"
                )
    return ScoreMatrix(
        measure=measure,
        cells=tuple(of_cell),
        query_ids=tuple(map(str, queries)),
        seeds={cell: tuple(map(int, seeds)) for cell, (seeds, _) in tables.items()},
        scores=scores,
    )


def _seeds_by_queries(
    values: pd.DataFrame, cell: str, measure: str
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The seeds of a cell, and its values on a measure: a row per seed, a column per query of the
    whole table, NaN where it has none."""
    rows = np.flatnonzero(values["measure"] == measure)
    if not len(rows):
        raise BadInput(f"every cell needs values of {measure}, but cell {cell} has none")
    value, names = values["value"].to_numpy()[rows], values["query_id"].cat.categories
    seed, query = values["seed"].to_numpy()[rows], values["query_id"].cat.codes.to_numpy()[rows]
    if (query < 0).any():
        raise BadInput(f"every value needs a query, but cell {cell} has one of {measure} without")
    for i in np.flatnonzero(~np.isfinite(value)):
        raise BadInput(
            f"values must be finite, got {value[i]} for cell {cell}, seed {seed[i]}, query "
            f"{names[query[i]]}, {measure}"
        )
    seeds, row = np.unique(seed, return_inverse=True)
    table, times = np.full((len(seeds), len(names)), np.nan), np.zeros((len(seeds), len(names)))
    table[row, query] = value
    np.add.at(times, (row, query), 1)
    for i, j in np.argwhere(times > 1):
        raise BadInput(
            f"a (cell, seed, query) must have one value, got {times[i, j]:.0f} for cell {cell}, "
            f"seed {seeds[i]}, query {names[j]}"
        )
    return seeds, table


def identical_seeds(table: pd.DataFrame) -> tuple[int, int] | None:
    """Two seeds of a cell with equal values on every measure, of which copies of a run are the
    usual cause; None without any.

    RR@10 alone may agree by chance, and so may all measures on few queries, which are not checked.
    Nor is a constant cell: a collapsed ranker gives 0 on every query with every seed.
    """
    if table["query_id"].nunique() < QUERIES_THAT_PROVE:
        return None
    rows = table.sort_values(["measure", "query_id"]).groupby("seed", observed=True)["value"]
    values = {int(seed): of_seed.to_numpy() for seed, of_seed in rows}
    for first, second in combinations(values, 2):
        if np.array_equal(values[first], values[second]) and np.ptp(values[first]) > 0:
            return first, second
    return None


def _refuse_identical_seeds(values: pd.DataFrame, *, cell: str) -> None:
    if seeds := identical_seeds(values):
        raise BadInput(
            f"training runs must differ, but seeds {seeds[0]} and {seeds[1]} of {cell} have "
            "identical values for all queries: the seed has no effect, training changes "
            "nothing, or a run was copied"
        )


def copies(matrices: Sequence[ScoreMatrix], cells: Iterable[str]) -> dict[str, str]:
    """{cell: an earlier one with the same runs, in any order, on every matrix}."""
    first: dict[Any, str] = {}
    same = {}
    for cell in cells:
        scores = (matrix.scores[cell] for matrix in matrices)
        key = tuple(
            (len(score_SQ), score_SQ[np.lexsort(score_SQ.T)].tobytes()) for score_SQ in scores
        )
        same[cell] = first.setdefault(key, cell)
    return {cell: other for cell, other in same.items() if cell != other}


def proven_copies(matrices: Sequence[ScoreMatrix], cells: Iterable[str]) -> dict[str, str]:
    """The copies that are no accident: on few queries values agree by chance, as those of constant
    cells do."""
    return {
        cell: first
        for cell, first in copies(matrices, cells).items()
        if any(
            len(matrix.query_ids) >= QUERIES_THAT_PROVE and np.ptp(matrix.scores[cell]) > 0
            for matrix in matrices
        )
    }


SEPARATOR = "/"
"""Between set and query in the ids of pooled query sets: TREC DL 2019, 2020 and 2021 have one mean
over 145 queries, as papers print it, so that a year counts by its number of judged queries."""


def query_set_of(query_id: str) -> str:
    """The set that a pooled query belongs to; "" if its id names none."""
    return query_id.rpartition(SEPARATOR)[0]


def queries_per_set(query_ids: Iterable[str]) -> dict[str, int]:
    """{set: number of its queries} by first appearance; empty if a query names no set."""
    counts = Counter(query_set_of(query_id) for query_id in query_ids)
    return {} if "" in counts else dict(counts)


__all__ = ["COLUMNS", "ScoreMatrix", "copies", "proven_copies", "score_matrices", "score_matrix"]
