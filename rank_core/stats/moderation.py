"""Moderated seed variances: the second test of a large table.

Over many comparisons with few seeds the smallest p-value belongs to the system whose seed variance
is the most underestimated one. Smyth (2004, SAGMB 3:3) shrinks every variance towards a prior that
is fitted to all of them. The moderated test alone is too liberal where true variances differ, the
unmoderated one where they are equal and the baseline is stable: a letter needs both.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

from rank_core.stats.scopes import two_sided_p

LEAST_POOL = 8  # trained tables of scores, enough to estimate the spread of variances
_FLOOR = 1e-5  # of the median variance, as the logarithm of 0 would dominate; and of its variance


@dataclass(frozen=True)
class Prior:
    """A scaled inverse chi-square: `df` d_0 (infinite: equal variances), `variance` s_0^2."""

    df: float
    variance: float
    pool_df: float  # of all variances it is fitted to

    def moderated(self, variance: float, df: float) -> tuple[float, float]:
        """(moderated variance, its degrees of freedom)."""
        if np.isinf(self.df):
            return self.variance, self.pool_df
        pooled = (self.df * self.variance + df * variance) / (self.df + df)
        return pooled, min(self.df + df, self.pool_df)


def fitted_prior(variance_K: Sequence[float], df_K: Sequence[float]) -> Prior:
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


def moderated_p(
    delta: float,
    variance_queries: float,
    num_queries: int,
    sides: Sequence[tuple[float, float, int]],
    prior: Prior,
) -> float:
    """The two-sided p of scope `both` with each (V_s, V_e, S) of `sides` moderated, by
    Satterthwaite's degrees of freedom."""
    V = variance_queries
    terms = variance_queries**2 / (num_queries - 1)
    for V_s, V_e, S in sides:
        variance, df = prior.moderated(S * V_s, S - 1)
        V += max(variance / S - V_e, 0)
        terms += (variance / S) ** 2 / df + V_e**2 / ((S - 1) * (num_queries - 1))
    return float(two_sided_p(delta, V**0.5, V**2 / terms if terms else num_queries - 1))


def _inverse_trigamma(value: float) -> float:
    """x with trigamma(x) = value; trigamma(x) is between 1/x and 1/x + 1/x^2."""

    def gap(x: float) -> float:
        return float(special.polygamma(1, x)) - value

    high = 1 / value
    most = high + value**-0.5 + 1
    return float(optimize.brentq(gap, high, most, xtol=1e-300, rtol=1e-12, maxiter=1000))
