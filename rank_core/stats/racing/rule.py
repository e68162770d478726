"""When a configuration of a race is credibly worse than its leader: one look, many races at once.

A look sees the run means (over the dev queries) of the configurations still live, each with the
same s seeds of the S planned. What is asked of a configuration is whether the whole grid, all S
seeds, could still name it the winner. The seeds run so far are a random s of those S, so that

    (leader - k over s seeds) - (leader - k over S seeds)  has variance  2 sigma^2 (1/s - 1/S)

whatever the true difference is: the finite-population correction of sampling without replacement.
If k is the grid's winner, the second bracket is at most 0, and the statistic

    t_k = (leader's mean - k's mean) / sqrt(2 sigma^2 (1/s - 1/S))

is at most the largest of L - 1 such differences of equals: one-sided Dunnett (1955) with
correlation 1/2, the leader being any of the L - 1 rivals, as in Gupta's (1965) subset selection and
Hsu's (1984) comparisons with the best. That is a bound at the worst truth, a dead heat after all S
seeds; `racing_levels` says which level of it amounts to a wanted chance of a wrong departure.

sigma^2 is the mean square of configuration x seed pooled over the live configurations, with
(L - 1)(s - 1) degrees of freedom: seeds are blocks, so what a seed does to all configurations alike
(a shared initialisation, a shared order) cancels as it does in the difference. Two seeds are the
fewest. A configuration whose own runs scatter more than the pool (a collapse) has its own mean
square, drawn towards the pool as if the pool were 4 seeds' worth; it is never taken as steadier.
The queries are held fixed: race and grid choose on the same dev queries, whose luck they share.

Near-ties are what a race spends its runs on: among equals only the whole grid knows its winner.
With an indifference `delta` > 0 a configuration leaves once the whole grid would hardly name it
better than the leader *by more than delta*: delta is added to its gap, and the same argument holds
with "the second bracket is at most delta". The winner is then within delta of the grid's.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import interpolate, special, stats

from rank_core.stats.scopes import Floats

Bools = NDArray[np.bool_]

FIRST_LOOK = 2
"""One seed per configuration says nothing about the luck of seeds."""

_ROUNDING = 64 * np.finfo(np.float64).eps
"""A standard deviation below this share of the largest mean is rounding."""

_POOL_DF = 4
"""How many degrees of freedom the pool counts beside those of one configuration's own runs."""

_REACH = 1e4
"""The largest statistic told apart; with one degree of freedom its p is still 1e-4."""


@dataclass(frozen=True)
class Look:
    """One look at B races of K configurations; what has left has p = NaN.

    `gap` is the leader's mean minus the configuration's, `se` its standard error about the gap of
    the whole grid, `df` the pool's degrees of freedom, `p` the chance of such a gap between equals.
    The leader has gap 0 and p = 1.
    """

    leader_B: NDArray[np.intp]
    gap_BK: Floats
    se_BK: Floats
    df_B: Floats
    p_BK: Floats


def look(
    mean_BKs: Floats,
    live_BK: Bools,
    *,
    num_seeds: int,
    delta: float = 0.0,
    same_BK: Bools | None = None,
) -> Look:
    """Judge every live configuration after s complete seeds of `num_seeds`, 2 <= s < num_seeds.

    Among equal means the configuration that comes first leads. `same_BK` marks live configurations
    that only repeat another one: they are judged, but are neither a rival nor evidence on sigma.
    `delta` >= 0, in units of the measure, is the difference that does not matter.
    """
    s = mean_BKs.shape[2]
    counted_BK = live_BK if same_BK is None else live_BK & ~same_BK
    rounding_B1 = _ROUNDING * np.abs(np.where(live_BK[:, :, None], mean_BKs, 0)).max(axis=(1, 2))
    rounding_B1 = rounding_B1[:, None]
    mean_BK = np.where(live_BK, mean_BKs.mean(axis=2), -np.inf)
    top_B1 = mean_BK.max(axis=1, keepdims=True)
    leader_B1 = (mean_BK >= top_B1 - rounding_B1).argmax(axis=1, keepdims=True)
    gap_BK = np.where(live_BK, top_B1 - np.where(live_BK, mean_BK, 0), np.nan)
    gap_BK[gap_BK <= rounding_B1] = 0.0
    variance_BK = _variances(mean_BKs, counted_BK)
    variance_BK[variance_BK <= rounding_B1**2] = 0.0
    variance_BK = variance_BK + np.take_along_axis(variance_BK, leader_B1, axis=1)
    se_BK = np.where(live_BK, np.sqrt(variance_BK * (1 / s - 1 / num_seeds)), np.nan)
    behind_BK = gap_BK + delta * (np.arange(gap_BK.shape[1]) != leader_B1)
    with np.errstate(divide="ignore", invalid="ignore"):
        t_BK = np.where(behind_BK == 0, 0.0, behind_BK / se_BK)
    p_BK = np.full(t_BK.shape, np.nan)
    L_B = counted_BK.sum(axis=1)
    for L in np.unique(L_B):
        rows = L_B == L
        p_BK[rows] = dunnett_p(t_BK[rows], rivals=int(L) - 1, df=int((L - 1) * (s - 1)))
    p_BK[(behind_BK == 0) & live_BK] = 1.0
    return Look(leader_B1[:, 0], gap_BK, se_BK, ((L_B - 1) * (s - 1)).astype(np.float64), p_BK)


def dunnett_p(t: Floats, *, rivals: int, df: int) -> Floats:
    """P(the largest of `rivals` correlated one-sided t statistics >= t), elementwise, for t >= 0.

    NaN stays NaN; an infinite statistic (no seed variance at all) has p = 0.
    """
    if rivals < 1:
        return np.where(np.isnan(t), np.nan, 1.0)
    table = _log_tail(rivals, df)
    with np.errstate(invalid="ignore"):
        p = np.exp(table(np.arcsinh(np.minimum(t, _REACH))))
    return np.where(np.isinf(t), 0.0, np.minimum(p, 1.0))


@lru_cache(maxsize=4096)
def _log_tail(rivals: int, df: int) -> interpolate.CubicSpline:
    """log P(max >= t) as a spline over asinh(t); the integral is over the shared normal and chi.

    Given the rival's own normal z and u = sqrt(chi2 / df), the others are independent:
    P(max < t) = E[Phi(sqrt(2) t u + z)^rivals].
    """
    x_T = np.linspace(0, np.arcsinh(_REACH), 120)
    node, weight = np.polynomial.legendre.leggauss(48)
    z_Z, weight_Z = 9 * node, 9 * weight * stats.norm.pdf(9 * node)
    # Nodes even in the logarithm of the chi's quantile: its far tail makes the far tail of t.
    log_q = (node - 1) * 9
    u_U = np.sqrt(stats.chi2.ppf(np.exp(log_q), df) / df)
    weight_U = np.exp(log_q) * weight
    shift_TU = np.sqrt(2) * np.sinh(x_T)[:, None] * u_U
    tail_T = np.zeros(len(x_T))
    for z, weight_z in zip(z_Z, weight_Z, strict=True):
        tail_T += weight_z * (
            -np.expm1(rivals * special.log_ndtr(shift_TU + z)) @ (weight_U / weight_U.sum())
        )
    return interpolate.CubicSpline(x_T, np.log(np.maximum(tail_T, 1e-300)))


def _variances(mean_BKs: Floats, counted_BK: Bools) -> Floats:
    """sigma^2 of each configuration, (B, K): the pool's, or its own moderated one if larger.

    Without two configurations to compare there is none, and nothing to compare: 0.
    """
    s = mean_BKs.shape[2]
    L_B1 = counted_BK.sum(axis=1, keepdims=True)
    seed_Bs = np.where(counted_BK[:, :, None], mean_BKs, 0).sum(axis=1) / L_B1
    residual_BKs = mean_BKs - mean_BKs.mean(axis=2, keepdims=True)
    residual_BKs -= (seed_Bs - seed_Bs.mean(axis=1, keepdims=True))[:, None, :]
    # The mean over configurations takes 1 / L of each one's own square out.
    own_BK = (residual_BKs**2).sum(axis=2) / (s - 1) * L_B1 / np.maximum(L_B1 - 1, 1)
    pool_B1 = np.where(counted_BK, own_BK, 0).sum(axis=1, keepdims=True) / L_B1
    moderated_BK = (_POOL_DF * pool_B1 + (s - 1) * own_BK) / (_POOL_DF + s - 1)
    return np.maximum(pool_B1, moderated_BK)
