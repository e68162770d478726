"""Moderated seed variances: the second test of a large table.

Over many comparisons with few seeds the smallest p-value belongs to the system whose seed variance
is the most underestimated one. Smyth (2004, SAGMB 3:3) shrinks every variance towards a prior that
is fitted to all of them. The moderated test alone is too liberal where true variances differ, the
unmoderated one where they are equal and the baseline is stable: a letter needs both.

Against a deterministic baseline the variance of a difference has two parts, of the queries and of
the runs. Where seed variances disagree and a system has fewer than `ENOUGH_RUNS`, both tests take a
system for steady whose runs are alike by chance. The moderated p is then that of Behrens and
Fisher, in which the part of the runs keeps its few degrees of freedom.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

LEAST_POOL = 3  # trained tables of scores: two variances have no spread
_FLOOR = 1e-5  # of the median variance, as the logarithm of 0 would dominate; and of its variance


@dataclass(frozen=True)
class Prior:
    """A scaled inverse chi-square: `df` d_0 (infinite: equal variances), `variance` s_0^2. Both are
    numbers, or arrays for many tables."""

    df: Any
    variance: Any
    pool_df: float  # of all variances it is fitted to

    def moderated(self, variance: Any, df: Any) -> tuple[Any, Any]:
        """(moderated variance, its degrees of freedom); numbers or arrays."""
        with np.errstate(invalid="ignore"):
            pooled = (self.df * self.variance + df * variance) / (self.df + df)
        equal = np.isinf(self.df)
        # As limma: a moderated variance cannot know more than all variances together.
        return np.where(equal, self.variance, pooled), np.minimum(self.df + df, self.pool_df)


def fitted_prior(variance_K: ArrayLike, df_K: ArrayLike) -> Prior:
    """The prior of the variances, by the mean and the variance of their logarithms. Leading axes
    are tables of their own.

    Where the logarithms scatter no more than those of equal variances, d_0 is infinite and s_0^2 is
    the exponential of their mean, as in Smyth (2004); limma takes the mean of the variances since
    2017, which changes p by up to .09.
    """
    s2, half_K = np.asarray(variance_K, dtype=np.float64), np.asarray(df_K, dtype=np.float64) / 2
    pool_df = float(2 * half_K.sum())
    largest, median = s2.max(axis=-1), np.median(s2, axis=-1)
    scale = np.where(largest == 0, 1.0, np.where(median == 0, largest, median))
    logarithm = np.log(np.maximum(s2, _FLOOR * scale[..., None]))
    # E[log s^2] = log sigma^2 + digamma(f/2) - log(f/2) for a mean square with f degrees of freedom
    # (Smyth 2004, section 6.2).
    logarithm += np.log(half_K) - special.digamma(half_K)  # unbiased
    mean = logarithm.mean(axis=-1)
    # Sampling alone scatters log s^2 by trigamma(f/2). What is left is the scatter of the true
    # variances, which under the prior is trigamma(d_0/2).
    excess = logarithm.var(axis=-1, ddof=1) - special.polygamma(1, half_K).mean()
    equal = excess <= _FLOOR
    # 1 stands in where the result is not used, so that Newton's method converges everywhere.
    half = _inverse_trigamma(np.where(equal, 1.0, excess))
    variance = np.exp(np.where(equal, mean, mean + special.digamma(half) - np.log(half)))
    return Prior(
        np.where(equal | (largest == 0), np.inf, 2 * half),
        np.where(largest == 0, 0.0, variance),
        pool_df,
    )


Side = tuple[Any, Any, Any]
"""(V_s, V_e, S) of one trained side of a comparison, or of many comparisons."""


def moderated_error(
    variance_queries: Any, num_queries: Any, sides: Sequence[Side], prior: Prior
) -> tuple[Any, Any]:
    """(standard error of a difference in scope `both`, Satterthwaite's degrees of freedom), with
    the variance of each side moderated. A side with S = infinity is deterministic."""
    V = np.asarray(variance_queries, dtype=np.float64)
    terms = V**2 / (num_queries - 1)
    for V_s, V_e, S in sides:
        trained = np.isfinite(S)
        # 2 stands in for infinity, whose products would be NaN; the masks below remove it again.
        runs = np.where(trained, S, 2.0)
        variance, df = prior.moderated(runs * V_s, runs - 1)
        # The terms of Satterthwaite's denominator: the moderated V_s, and the residual that is
        # subtracted from it.
        added = (variance / runs) ** 2 / df + V_e**2 / ((runs - 1) * (num_queries - 1))
        V = V + np.where(trained, np.maximum(variance / runs - V_e, 0), 0)
        terms = terms + np.where(trained, added, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt(V), np.where(terms > 0, V**2 / terms, num_queries - 1.0)


ENOUGH_RUNS = 5
"""Runs from which on Satterthwaite's degrees of freedom hold against any baseline."""


def runs_apart(runs_K: ArrayLike, *, agree: Any, deterministic: bool) -> Any:
    """Whether the moderated p is that of Behrens and Fisher: of systems of so many runs against a
    baseline that is `deterministic`, whose seed variances `agree` or not."""
    return deterministic & (np.min(np.asarray(runs_K)) < ENOUGH_RUNS) & ~np.asarray(agree)


TwoParts = tuple[tuple[Any, Any], tuple[Any, Any]]
"""(V, degrees of freedom) of the queries and of the runs; numbers or arrays of one shape."""


def moderated_parts(variance_queries: Any, num_queries: Any, side: Side, prior: Prior) -> TwoParts:
    """The parts of the variance of a difference from a deterministic baseline, of its queries and
    of its moderated runs, with their degrees of freedom. A side with S = infinity has no runs."""
    V_s, V_e, S = side
    trained = np.isfinite(S)
    runs = np.where(trained, S, 2.0)
    variance, df = prior.moderated(runs * V_s, runs - 1)
    # The residual is taken out of the part of the queries, as in a look of a gate.
    V_q = np.maximum(np.asarray(variance_queries, dtype=np.float64) - V_e, 0)
    return (V_q, num_queries - 1.0), (np.where(trained, variance / runs, 0.0), df)


def where_queries_vary(moderated_p: Any, own_p: Any, variance_queries: Any) -> Any:
    """The moderated p; that of the own test, which permutes, where nothing varies between the
    queries and no t-test decides."""
    return np.where(np.asarray(variance_queries) == 0, own_p, moderated_p)


AGREEMENT = 0.25
"""Seed variances agree if neither test of `seeds_agree` has a smaller p."""


def seeds_agree(variance_K: ArrayLike, df_K: ArrayLike, baselines: Sequence[int] = ()) -> Any:
    """Whether the seed variances may be one: by Bartlett's test of all of them, and by the F test
    of each of `baselines` against the others, on which every comparison of a family depends.
    Leading axes are tables of their own."""
    s2, df_K = np.asarray(variance_K, dtype=np.float64), np.asarray(df_K, dtype=np.float64)
    K, total = len(df_K), df_K.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        # Bartlett (1937): the log of the pooled variance against the pooled logs, over a correction
        # that makes it nearly chi-square.
        excess = total * np.log(s2 @ df_K / total) - np.log(s2) @ df_K
        scale = 1 + ((1 / df_K).sum() - 1 / total) / (3 * (K - 1))
        p = special.chdtrc(K - 1, excess / scale)
        for one in baselines:
            rest = np.arange(K) != one
            ratio = s2[..., one] / (s2[..., rest] @ df_K[rest] / df_K[rest].sum())
            above = special.fdtrc(df_K[one], df_K[rest].sum(), ratio)
            # Two-sided: a baseline that is steadier than the others harms as one that is wilder.
            p = np.minimum(p, 2 * np.minimum(above, 1 - above))
    # Without any variance they agree; with some, one that is 0 has collapsed.
    return (p >= AGREEMENT) | (s2.max(axis=-1) == 0)


def _inverse_trigamma(value: Any) -> Any:
    """x with trigamma(x) = value, by Newton's method on 1 / trigamma, which is nearly linear
    (Smyth 2004, appendix)."""
    x = 0.5 + 1 / np.asarray(value, dtype=np.float64)
    for _ in range(50):
        trigamma = special.polygamma(1, x)
        step = trigamma * (1 - trigamma / value) / special.polygamma(2, x)
        x = x + step
        if (np.abs(step) <= 1e-15 * x).all():
            break
    return x
