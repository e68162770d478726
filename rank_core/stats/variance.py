"""The variance components of a sweep: seeds, queries and the residual.

A score is mu_m + query + (query x system) + seed in system + residual. Every component is a
standard deviation in units of the measure, with a chi-square interval: of three seeds a factor of
0.5 to 6.3.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from rank_core.errors import BadInput, unknown
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.scopes import (
    ScopeTest,
    check_probability,
    paired_scope_test,
    scope_test,
    seed_variances,
)


@dataclass(frozen=True)
class Component:
    """A standard deviation and its interval; NaN for one seed."""

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
    """The factors from an estimated standard deviation to the limits of its interval."""
    check_probability("level", level)
    low = math.sqrt(df / stats.chi2.ppf((1 + level) / 2, df))
    return low, math.sqrt(df / stats.chi2.ppf((1 - level) / 2, df))


def sweep_components(
    matrix: ScoreMatrix, *, baseline: str, level: float = 0.95, paired_seeds: bool = False
) -> SweepComponents:
    """The components pooled over all cells with two seeds or more.

    sigma_D is pooled over the comparisons with `baseline`; they share their queries, so its degrees
    of freedom stay those of one comparison. With `paired_seeds` sigma_S and sigma_E are those of
    the differences of paired runs over sqrt(2), equivalent to independent seeds with the same
    variance of differences. All of them share the runs of the baseline, so their degrees of freedom
    are those of one comparison, too.
    """
    if baseline not in matrix.cells:
        raise unknown("baseline", baseline, matrix.cells)
    check_probability("level", level)
    Q = len(matrix.query_ids)
    seeded = [cell for cell in matrix.cells if len(matrix.scores[cell]) > 1]
    others = [cell for cell in seeded if cell != baseline and baseline in seeded]
    if paired_seeds:
        others = [cell for cell in others if matrix.seeds[cell] == matrix.seeds[baseline]]
        # A difference of two independent runs has twice the variance of one: over sqrt(2) the plan
        # may use the formula of independent seeds.
        tables = [(matrix.scores[cell] - matrix.scores[baseline]) / math.sqrt(2) for cell in others]
    else:
        tables = [matrix.scores[cell] for cell in seeded]
    parts = [seed_variances(score_SQ) for score_SQ in tables]
    df_K = np.array([len(score_SQ) - 1 for score_SQ in tables], dtype=np.float64)
    S_K, total_df = df_K + 1, float(df_K.sum())
    # From variances of means to mean squares, which are pooled by their degrees of freedom.
    means_K = S_K * np.array([V_s for V_s, _ in parts])
    errors_K = Q * S_K * np.array([V_e for _, V_e in parts])
    mean_square_seeds = float(means_K @ df_K) / total_df if total_df else math.nan
    mean_square_error = float(errors_K @ df_K) / total_df if total_df else math.nan
    df = min(total_df, df_K.max(initial=0.0)) if paired_seeds else total_df
    test_of = paired_scope_test if paired_seeds else scope_test
    pairs = [test_of(matrix.scores[cell], matrix.scores[baseline]) for cell in others]
    total = [Q * test.variance_queries for test in pairs]
    noise = [Q * (test.variance_error_a + test.variance_error_b) for test in pairs]
    return SweepComponents(
        measure=matrix.measure,
        baseline=baseline,
        # E[variance of seed means] = sigma_S^2 + sigma_E^2 / Q: the second part is no property of
        # the runs and shrinks with more queries.
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


@dataclass(frozen=True)
class SeedCorrelation:
    """The correlation `r` of the means of runs that share a seed, over all pairs of systems, with
    its 95% interval."""

    r: float
    low: float
    high: float
    num_cells: int
    num_seeds: int


def seed_correlation(matrix: ScoreMatrix, *, level: float = 0.95) -> SeedCorrelation | None:
    """Of the cells with two seeds or more, on the seeds that all of them have: the mean covariance
    of two systems over the mean variance of one, which is the intraclass correlation ICC(3,1) of
    Shrout and Fleiss (1979). Its interval, by F with S - 1 and (S - 1)(K - 1) degrees of freedom,
    is exact where all pairs correlate alike. None of fewer than two cells or seeds, and where
    nothing varies."""
    check_probability("level", level)
    cells = [cell for cell in matrix.cells if len(matrix.seeds[cell]) > 1]
    seeds = sorted(set.intersection(*(set(matrix.seeds[cell]) for cell in cells)) if cells else [])
    K, S = len(cells), len(seeds)
    if K < 2 or S < 2:
        return None
    mean_KS = np.array(
        [
            [matrix.scores[cell][matrix.seeds[cell].index(seed)].mean() for seed in seeds]
            for cell in cells
        ]
    )
    mean_KS = mean_KS - mean_KS.mean(axis=1, keepdims=True)
    shared = K * float(mean_KS.mean(axis=0) @ mean_KS.mean(axis=0)) / (S - 1)
    residual = (float((mean_KS**2).sum()) / (S - 1) - shared) / (K - 1)
    if shared + residual <= 0:
        return None
    df = S - 1, (S - 1) * (K - 1)
    low, high = (
        _correlation(shared, residual * float(stats.f.ppf(tail, *df)), K)
        for tail in ((1 + level) / 2, (1 - level) / 2)
    )
    return SeedCorrelation(_correlation(shared, residual, K), low, high, K, S)


def _correlation(shared: float, residual: float, num_cells: int) -> float:
    """From the mean squares of seeds and of seeds x cells."""
    return (shared - residual) / (shared + (num_cells - 1) * residual)


def homogeneity(matrix: ScoreMatrix) -> float:
    """Bartlett's p that all cells have the same variance of their seed means.

    Cells with one seed are excluded. p = 0 if some cells have variance and others have none: those
    have collapsed or are deterministic.
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
    test: ScopeTest, *, alpha: float = 0.05, power: float = 0.8, family_size: float = 1
) -> float:
    """The smallest true difference that this comparison detects with power `power` (scope `both`).

    The family counts as in Bonferroni, alpha / family_size: Holm's condition for the smallest p.
    NaN where nothing varies between the queries, so that no t-test decides.
    """
    if test.se_queries == 0:
        return math.nan
    df = float(test.welch.at_level(alpha / family_size))
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


# `scipy.stats.nct` is NaN for large effects with few degrees of freedom; here the noncentral t is
# integrated over the distribution of its chi-square, which stays finite for every effect and df.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(400)
_QUANTILES, _WEIGHTS = (_NODES + 1) / 2, _WEIGHTS / 2  # of the unit interval


def detectable_effect(df: float, *, alpha: float = 0.05, power: float = 0.8) -> float:
    """The smallest difference, in standard errors, that is found with probability `power`."""
    check_probability("alpha", alpha)
    check_probability("power", power)
    if power <= alpha:
        raise BadInput(f"alpha < power must hold, got alpha={alpha}, power={power}")
    if math.isnan(df):
        return math.nan
    critical, spread_N = _critical(df, alpha)
    # Any start above the solution will do: power rises with the effect, and the loop doubles it.
    high = 2 * critical + 10
    while _power(high, critical, spread_N) < power:
        high *= 2
    # With less than one degree of freedom the power is nearly flat: older scipys need many steps.
    return float(
        optimize.brentq(lambda x: _power(x, critical, spread_N) - power, 0.0, high, maxiter=1000)
    )


def _critical(df: float, alpha: float) -> tuple[float, np.ndarray]:
    """The critical t and sqrt(chi2 / df) at the quadrature nodes; infinite df is the normal."""
    if math.isinf(df):
        return float(stats.norm.isf(alpha / 2)), np.ones_like(_QUANTILES)
    return float(stats.t.isf(alpha / 2, df)), np.sqrt(stats.chi2.ppf(_QUANTILES, df) / df)


def _power(effect: float, critical: float, spread_N: np.ndarray) -> float:
    both = stats.norm.cdf(effect - critical * spread_N) + stats.norm.cdf(
        -effect - critical * spread_N
    )
    return float(both @ _WEIGHTS)
