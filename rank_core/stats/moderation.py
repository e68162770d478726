"""Moderated seed variances: the second test of a large table.

Over many comparisons with few seeds the smallest p-value belongs to the system whose seed variance
is the most underestimated one. Smyth (2004, SAGMB 3:3) shrinks every variance towards a prior that
is fitted to all of them. The moderated test alone is too liberal where true variances differ, the
unmoderated one where they are equal and the baseline is stable: a letter needs both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

from rank_core.stats.scopes import two_sided_p

LEAST_POOL = 8  # trained tables of scores, enough to estimate the spread of variances
LEAST_POOL_MAX_T = 4  # in a family corrected by max-t: fewer than four cannot be told apart
_FLOOR = 1e-5  # of the median variance, as the logarithm of 0 would dominate; and of its variance


@dataclass(frozen=True)
class Prior:
    """A scaled inverse chi-square: `df` d_0 (infinite: equal variances), `variance` s_0^2."""

    df: float
    variance: float
    pool_df: float  # of all variances it is fitted to

    def moderated(self, variance: Any, df: Any) -> tuple[Any, Any]:
        """(moderated variance, its degrees of freedom); numbers or arrays."""
        if np.isinf(self.df):
            return self.variance, self.pool_df
        pooled = (self.df * self.variance + df * variance) / (self.df + df)
        return pooled, np.minimum(self.df + df, self.pool_df)


def fitted_prior(variance_K: ArrayLike, df_K: ArrayLike) -> Prior:
    """The prior of the variances, by the mean and the variance of their logarithms."""
    s2_K, half_K = np.asarray(variance_K, dtype=np.float64), np.asarray(df_K, dtype=np.float64) / 2
    pool_df = float(2 * half_K.sum())
    if s2_K.max() == 0:
        return Prior(np.inf, 0.0, pool_df)
    median = float(np.median(s2_K)) or float(s2_K.max())
    log_K = np.log(np.maximum(s2_K, _FLOOR * median))
    log_K += np.log(half_K) - special.digamma(half_K)  # unbiased logarithms
    mean = float(log_K.mean())
    excess = float(log_K.var(ddof=1) - special.polygamma(1, half_K).mean())
    if excess <= _FLOOR:
        return Prior(np.inf, float(np.exp(mean)), pool_df)
    half = _inverse_trigamma(excess)
    return Prior(2 * half, float(np.exp(mean + special.digamma(half) - np.log(half))), pool_df)


Side = tuple[Any, Any, Any]
"""(V_s, V_e, S) of one trained side of a comparison, or of many comparisons."""


def moderated_error(
    variance_queries: Any, num_queries: int, sides: Sequence[Side], prior: Prior
) -> tuple[Any, Any]:
    """(standard error of a difference in scope `both`, Satterthwaite's degrees of freedom), with
    the variance of each side moderated. A side with S = infinity is deterministic."""
    V = np.asarray(variance_queries, dtype=np.float64)
    terms = V**2 / (num_queries - 1)
    for V_s, V_e, S in sides:
        trained = np.isfinite(S)
        runs = np.where(trained, S, 2.0)
        variance, df = prior.moderated(runs * V_s, runs - 1)
        own = (variance / runs) ** 2 / df + V_e**2 / ((runs - 1) * (num_queries - 1))
        V = V + np.where(trained, np.maximum(variance / runs - V_e, 0), 0)
        terms = terms + np.where(trained, own, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt(V), np.where(terms > 0, V**2 / terms, num_queries - 1.0)


def moderated_p(
    delta: Any, variance_queries: Any, num_queries: int, sides: Sequence[Side], prior: Prior
) -> Any:
    """The two-sided p of `moderated_error`."""
    return two_sided_p(delta, *moderated_error(variance_queries, num_queries, sides, prior))


AGREEMENT = 0.25
"""Seed variances agree if neither test of `seeds_agree` has a smaller p."""


def seeds_agree(variance_K: ArrayLike, df_K: ArrayLike, baselines: Sequence[int] = ()) -> bool:
    """Whether the seed variances may be one: by Bartlett's test of all of them, and by the F test
    of each of `baselines` against the others, on which every comparison of a family depends."""
    s2_K, df_K = np.asarray(variance_K, dtype=np.float64), np.asarray(df_K, dtype=np.float64)
    if s2_K.min() == 0:
        return bool(s2_K.max() == 0)
    K, total = len(s2_K), df_K.sum()
    pool = float(df_K @ s2_K / total)
    excess = total * np.log(pool) - float(df_K @ np.log(s2_K))
    scale = 1 + ((1 / df_K).sum() - 1 / total) / (3 * (K - 1))
    p = [float(special.chdtrc(K - 1, excess / scale))]
    for one in baselines:
        rest = np.arange(K) != one
        ratio = s2_K[one] / (df_K[rest] @ s2_K[rest] / df_K[rest].sum())
        above = float(special.fdtrc(df_K[one], df_K[rest].sum(), ratio))
        p.append(2 * min(above, 1 - above))
    return min(p) >= AGREEMENT


def _inverse_trigamma(value: float) -> float:
    """x with trigamma(x) = value; trigamma(x) is between 1/x and 1/x + 1/x^2."""

    def gap(x: float) -> float:
        return float(special.polygamma(1, x)) - value

    high = 1 / value
    most = high + value**-0.5 + 1
    return float(optimize.brentq(gap, high, most, xtol=1e-300, rtol=1e-12, maxiter=1000))
