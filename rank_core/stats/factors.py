"""Tests of the factors of a grid, before cells are compared with each other.

The means of the cells are projected on the part of the design that only the factor explains; the
length of that projection is compared with its distribution over new queries and training runs.
It is Brunner, Dette and Munk's (1997) ANOVA-type statistic (Box's epsilon on the left,
Satterthwaite on the right) with the variance of scope `both`: for two cells F = t^2.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from rank_core.arrays import Floats
from rank_core.errors import BadInput
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.scopes import seed_variances, without_rounding

INTERACTION = "interaction"
ANY = "any difference"


@dataclass(frozen=True)
class FactorTest:
    """A line of an analysis of variance over the cells of a grid.

    `rank` is the number of contrasts; the degrees of freedom are smaller where the variances of the
    contrasts differ. NaN if a cell has one seed, or if the grid does not identify the effect (rank
    0).
    """

    factor: str
    rank: int
    df: float
    df_error: float
    statistic: float
    p: float


def factor_tests(
    matrix: ScoreMatrix, *, levels: Mapping[str, Mapping[str, object]]
) -> list[FactorTest]:
    """The tests of every factor given the others, of their interaction, and of any difference.

    `levels` maps each cell to {factor: level}; cells may be missing from the grid. A factor has
    rank 0 if the other factors determine its levels, the interaction if the factors' sum
    explains all cells.
    """
    cells = list(levels)
    factors = list(next(iter(levels.values()), {}))
    if len(cells) < 2 or not factors:
        raise BadInput(f"a factor test needs two cells and a factor, got {len(cells)} cells")
    for cell in cells:
        if list(levels[cell]) != factors:
            raise BadInput(f"every cell needs the factors {', '.join(factors)}, but {cell} differs")
    columns: dict[str, Floats] = {}  # of each factor, one per level
    for name in factors:
        own = [levels[cell][name] for cell in cells]
        of_levels = list(dict.fromkeys(own))
        columns[name] = np.array([[float(value == level) for level in of_levels] for value in own])
    additive_KK = _projection(columns.values(), len(cells))
    mean_KK = _projection((), len(cells))
    tests = []
    for name in factors:
        rest_KK = _projection((columns[other] for other in factors if other != name), len(cells))
        # What the factor explains beyond the others: in an incomplete grid factors are not
        # orthogonal, and the order of their names must not matter (type II sums of squares).
        tests.append(_test(matrix, cells, name, additive_KK - rest_KK))
    if len(factors) > 1:
        tests.append(_test(matrix, cells, INTERACTION, np.eye(len(cells)) - additive_KK))
    tests.append(_test(matrix, cells, ANY, np.eye(len(cells)) - mean_KK))
    return tests


def _projection(parts: Iterable[Floats], num_cells: int) -> Floats:
    """Onto the span of a constant and the given columns, (K, K)."""
    design = np.hstack([np.ones((num_cells, 1)), *parts])
    left, singular, _ = np.linalg.svd(design, full_matrices=False)
    # Indicator columns of a factor sum to the constant: the design is rank deficient by
    # construction.
    basis = left[:, singular > 1e-9 * singular[0]]
    return basis @ basis.T


def _test(matrix: ScoreMatrix, cells: Sequence[str], name: str, space_KK: Floats) -> FactorTest:
    # The trace of a projection is the dimension that it projects onto.
    rank = round(float(np.trace(space_KK)))
    nan = float("nan")
    if rank == 0 or any(len(matrix.scores[cell]) < 2 for cell in cells):
        return FactorTest(name, rank, nan, nan, nan, nan)
    Q = len(matrix.query_ids)
    query_KQ = np.stack([matrix.scores[cell].mean(axis=0) for cell in cells])
    parts = np.array([seed_variances(matrix.scores[cell]) for cell in cells])  # V_s, V_e
    df_K = np.array([len(matrix.scores[cell]) - 1.0 for cell in cells])
    # Without the common mean, whose rounding is as large as a difference.
    contrast_KQ = space_KK @ (query_KQ - query_KQ.mean(axis=0))
    queries_KK = np.cov(contrast_KQ) / Q
    runs_K = np.maximum(parts[:, 0] - parts[:, 1], 0)
    weight_K = np.diag(space_KK)
    rounding = math.sqrt(len(cells)) * max(
        float(np.abs(matrix.scores[cell]).max()) for cell in cells
    )
    total = without_rounding(float(np.trace(queries_KK) + weight_K @ runs_K), rounding)
    length = without_rounding(float((contrast_KQ.mean(axis=1) ** 2).sum()), rounding)
    if total == 0:
        return FactorTest(name, rank, float(rank), nan, nan, 1.0 if length == 0 else 0.0)
    whole_KK = queries_KK + space_KK @ np.diag(runs_K) @ space_KK
    spread = float((queries_KK**2).sum()) / (Q - 1)
    spread += float((weight_K**2 * parts[:, 0] ** 2 / df_K).sum())
    spread += float((weight_K**2 * parts[:, 1] ** 2 / (df_K * (Q - 1))).sum())
    # Box (1954): a quadratic form with covariance W behaves as chi-square with tr(W)^2 / tr(W^2)
    # degrees of freedom.
    df = total**2 / float((whole_KK**2).sum())
    df_error = total**2 / spread
    statistic = length / total
    return FactorTest(
        name, rank, df, df_error, statistic, float(stats.f.sf(statistic, df, df_error))
    )
