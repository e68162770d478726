"""Where the variance of a sweep comes from: seeds, queries, and what is left.

A score is mu_m + query + (query x system) + seed in system + residual. Every component is given as
a standard deviation in units of the measure, with a chi-square interval: three seeds know their
own standard deviation no better than within a factor of [0.5, 6.3].
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from rank_core.errors import BadInput, unknown
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.power import check_probability, detectable_effect
from rank_core.stats.scopes import ScopeTest, scope_test, seed_variances


@dataclass(frozen=True)
class Component:
    """A standard deviation and its interval; NaN where one seed cannot tell."""

    sd: float
    low: float
    high: float
    df: float


@dataclass(frozen=True)
class SweepComponents:
    """The components of one measure pooled over the cells of a sweep.

    `seed` (sigma_S) is between training runs, `residual` (sigma_E) between training runs on one
    query, `difference` (sigma_D) between the true per-query differences of two systems.
    """

    measure: str
    baseline: str
    seed: Component
    residual: Component
    difference: Component
    num_cells: int
    num_queries: int


def chi_square_factors(df: float, level: float = 0.95) -> tuple[float, float]:
    """What to multiply an estimated standard deviation with to get its interval."""
    check_probability("level", level)
    low = math.sqrt(df / stats.chi2.ppf((1 + level) / 2, df))
    return low, math.sqrt(df / stats.chi2.ppf((1 - level) / 2, df))


def sweep_components(matrix: ScoreMatrix, *, baseline: str, level: float = 0.95) -> SweepComponents:
    """The components pooled over all cells with two seeds or more.

    sigma_D is pooled over the comparisons with `baseline`; they share their queries, so its degrees
    of freedom stay those of one comparison.
    """
    if baseline not in matrix.cells:
        raise unknown("baseline", baseline, matrix.cells)
    check_probability("level", level)
    Q = len(matrix.query_ids)
    parts = {cell: seed_variances(matrix.scores[cell]) for cell in matrix.cells}
    seeded = [cell for cell in matrix.cells if len(matrix.scores[cell]) > 1]
    df_K = np.array([len(matrix.scores[cell]) - 1 for cell in seeded], dtype=np.float64)
    S_K = df_K + 1
    df = float(df_K.sum())
    means_K = S_K * np.array([parts[cell][0] for cell in seeded])
    errors_K = Q * S_K * np.array([parts[cell][1] for cell in seeded])
    mean_square_seeds = float(means_K @ df_K) / df if df else math.nan
    mean_square_error = float(errors_K @ df_K) / df if df else math.nan
    pairs = [
        scope_test(matrix.scores[cell], matrix.scores[baseline])
        for cell in seeded
        if cell != baseline and baseline in seeded
    ]
    total = [Q * test.variance_queries for test in pairs]
    noise = [Q * (test.variance_error_a + test.variance_error_b) for test in pairs]
    return SweepComponents(
        measure=matrix.measure,
        baseline=baseline,
        seed=_component(mean_square_seeds, df=df, level=level, noise=mean_square_error / Q),
        residual=_component(mean_square_error, df=df * (Q - 1), level=level),
        difference=_component(
            float(np.mean(total)) if pairs else math.nan,
            df=Q - 1,
            level=level,
            noise=float(np.mean(noise)) if pairs else math.nan,
        ),
        num_cells=len(matrix.cells),
        num_queries=Q,
    )


def homogeneity(matrix: ScoreMatrix) -> float:
    """Bartlett's p that all cells have the same variance of their seed means.

    Cells with one seed are left out. A cell without any variance beside cells with some is not the
    same (p = 0): it has collapsed or is deterministic.
    """
    seeded = [score_SQ for score_SQ in matrix.scores.values() if len(score_SQ) > 1]
    if len(seeded) < 2:
        raise BadInput(
            f"comparing seed variances needs two cells with two seeds or more, got {len(seeded)}"
        )
    variances = np.array([len(score_SQ) * seed_variances(score_SQ)[0] for score_SQ in seeded])
    if variances.max() == 0:
        return 1.0
    if variances.min() == 0:
        return 0.0
    return float(stats.bartlett(*(score_SQ.mean(axis=1) for score_SQ in seeded)).pvalue)


def detectable_difference(
    test: ScopeTest, *, alpha: float = 0.05, power: float = 0.8, family_size: int = 1
) -> float:
    """The smallest true difference this very comparison would find (scope `both`).

    The family enters as Bonferroni, alpha / family_size: what Holm asks of the smallest p.
    """
    df = float(test.welch.at_level(alpha / family_size)) if test.se_both else test.df_both
    return test.se_both * detectable_effect(df, alpha=alpha / family_size, power=power)


def _component(mean_square: float, *, df: float, level: float, noise: float = 0.0) -> Component:
    """sqrt(mean square - noise), the interval of the mean square carried through; never below 0."""
    if df == 0 or math.isnan(mean_square) or math.isnan(noise):
        return Component(sd=math.nan, low=math.nan, high=math.nan, df=float(df))
    low, high = chi_square_factors(df, level)
    return Component(
        sd=math.sqrt(max(mean_square - noise, 0)),
        low=math.sqrt(max(mean_square * low**2 - noise, 0)),
        high=math.sqrt(max(mean_square * high**2 - noise, 0)),
        df=float(df),
    )
