"""Adjusted p-values of a family of comparisons.

A NaN (a comparison without this test) stays NaN and does not count in the family.

`max_t` knows how the comparisons are correlated (Dunnett 1955; Hothorn, Bretz and Westfall 2008):
those with one baseline share its queries and its runs. The smallest of K p-values is p or less with
probability m p, where the effective number m of comparisons is between 1 and K (Bonferroni's):
m = K E[1 / N], where N counts how many of the K are p or less if a random one of them is (the
importance sampling of Naiman and Priebe 2001). Every test keeps its own p-value and degrees of
freedom; their joint distribution is that of correlated normals.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special, stats

from rank_core.arrays import Floats
from rank_core.errors import BadInput
from rank_core.seeding import generator
from rank_core.stats.corrections import HOLM, MAX_T, NONE

NUM_DRAWS = 65536
"""Draws behind an effective number, whose standard error is then below .2%; of more than eight
comparisons fewer, down to an eighth (.5%)."""
_NUMBERS = 2**19

MOST_DRAWN = 128
"""The most comparisons whose correlations count: the time of drawing grows with the square of their
number, in a set of the best with the cube. Of more of them the effective number is Bonferroni's."""

_SMALLEST = 1e-300  # of the p-values whose effective number is drawn
_ROUNDING = 1e-9  # a correlation matrix may lack this much of being positive definite


def holm(p: ArrayLike) -> Floats:
    """Holm's (1979) step-down adjustment: controls the probability of any false positive."""
    return _of_tested(p, _holm)


def _holm(p_K: Floats) -> Floats:
    K = len(p_K)
    order = np.argsort(p_K, kind="stable")
    # The smallest p is multiplied by K, the next by K - 1, and so on; none may be smaller than the
    # one before it, or a weaker result would be rejected without a stronger one.
    stepped = np.maximum.accumulate(p_K[order] * (K - np.arange(K)))
    adjusted = np.empty(K)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


def benjamini_hochberg(p: ArrayLike) -> Floats:
    """Benjamini and Hochberg's (1995) adjustment: controls the share of false positives."""
    return _of_tested(p, lambda p_K: stats.false_discovery_control(p_K, method="bh"))


def max_t(p: ArrayLike, correlation_KK: ArrayLike) -> Floats:
    """The step-down max-t adjustment (Westfall and Young 1993) of two-sided p-values whose test
    statistics have this correlation: never larger than Holm's, nor smaller than p."""
    p_K, R_KK = np.array(p, dtype=np.float64, ndmin=1), np.asarray(correlation_KK, dtype=np.float64)
    if R_KK.shape != (len(p_K), len(p_K)):
        raise BadInput(
            f"max-t needs the correlations of all {len(p_K)} comparisons, got {R_KK.shape}"
        )
    tested = np.flatnonzero(~np.isnan(p_K))
    return _of_tested(p_K, lambda p_T: _step_down(p_T, R_KK[np.ix_(tested, tested)]))


def _step_down(p_K: Floats, R_KK: Floats) -> Floats:
    adjusted, largest = np.empty(len(p_K)), 0.0
    order = np.argsort(p_K, kind="stable")
    for step, k in enumerate(order):
        if largest == 1:
            adjusted[order[step:]] = 1.0
            break
        # Step down: the hypotheses with smaller p are rejected already, and the smallest of the
        # rest competes with the rest alone.
        left = order[step:]
        # A comparison of two equal systems cannot err: its p is 1, whatever the family.
        counted = left[np.diagonal(R_KK)[left] > 0]
        m = float(len(counted) or 1)
        if 1 < m <= MOST_DRAWN:  # of more, copies in all steps would take the cube of their number
            m = float(effective_number(p_K[k], R_KK[np.ix_(counted, counted)]))
        # Monotone, as in Holm's.
        largest = max(largest, min(1.0, max(m, 1.0) * p_K[k]))
        adjusted[k] = largest
    return adjusted


def fallible(correlation_KK: Floats) -> Floats:
    """The correlations of the comparisons that can err, whose diagonal is 1."""
    counted = np.flatnonzero(np.diagonal(correlation_KK) > 0)
    if len(counted) == len(correlation_KK):
        return correlation_KK
    return correlation_KK[np.ix_(counted, counted)]


def effective_number(
    p: ArrayLike, correlation_KK: Floats, *, two_sided: bool = True, num_draws: int = 0
) -> Floats:
    """m: the smallest of K p-values is p or less with probability m p, 1 <= m <= K. Leading axes of
    p and of the matrices are families of their own; `two_sided` is whether the p-values are."""
    p_F, R_FKK = np.asarray(p, dtype=np.float64), np.asarray(correlation_KK, dtype=np.float64)
    K = R_FKK.shape[-1]
    if K == 1 or K > MOST_DRAWN:
        return np.full(p_F.shape, float(K))
    num_draws = num_draws or max(min(NUM_DRAWS, _NUMBERS // K), NUM_DRAWS // 8)
    if R_FKK.size > _REMEMBERED:
        return _drawn_number(p_F, R_FKK, two_sided, num_draws)
    given = (p_F.shape, p_F.tobytes(), R_FKK.shape, R_FKK.tobytes())
    return _known_number(*given, two_sided, num_draws).copy()


_REMEMBERED = 4096  # numbers of the matrices whose effective numbers are kept


@lru_cache(maxsize=512)
def _known_number(
    p_shape: tuple[int, ...],
    p: bytes,
    correlation_shape: tuple[int, ...],
    correlation: bytes,
    two_sided: bool,
    num_draws: int,
) -> Floats:
    """An effective number, drawn once: reports test the same families for several tables."""
    p_F = np.frombuffer(p).reshape(p_shape)
    R_FKK = np.frombuffer(correlation).reshape(correlation_shape)
    return _drawn_number(p_F, R_FKK, two_sided, num_draws)


def _drawn_number(p_F: Floats, R_FKK: Floats, two_sided: bool, num_draws: int) -> Floats:
    K = R_FKK.shape[-1]
    z_FNK, tail_N = _joint(R_FKK, num_draws), _draws(K, num_draws)[1]
    # By symmetry it suffices to put the chosen comparison into its upper tail.
    tail_F = np.maximum(p_F / 2 if two_sided else p_F, _SMALLEST)
    limit_F = -special.ndtri(tail_F)[..., None, None]
    # Every comparison is the chosen one equally often, which a random choice reaches only on
    # average. Given that it is in its tail, the others are normal around their regression.
    one_N = np.arange(num_draws) % K
    gap_FN = -special.ndtri(tail_F[..., None] * tail_N) - z_FNK[..., np.arange(num_draws), one_N]
    # In blocks that a processor's cache holds; each begins with the first comparison.
    rows = max(_BLOCK // K**2, 1) * K
    slope_FBK = np.swapaxes(R_FKK[..., np.arange(min(rows, num_draws)) % K], -1, -2).copy()
    reached_FN = np.empty(gap_FN.shape)
    for start in range(0, num_draws, rows):
        block = slice(start, min(start + rows, num_draws))
        size = block.stop - start
        z_FBK = slope_FBK[..., :size, :] * gap_FN[..., block, None]
        z_FBK += z_FNK[..., block, :]
        reached_FBK = (np.abs(z_FBK, out=z_FBK) if two_sided else z_FBK) >= limit_F
        # The chosen one is in its tail by construction; rounding must not say otherwise.
        reached_FBK[..., np.arange(size), one_N[:size]] = True
        reached_FN[..., block] = np.count_nonzero(reached_FBK, axis=-1)
    # A mean of K equal parts may be rounded to less than 1 / K.
    return np.clip(K * (1 / reached_FN).mean(axis=-1), 1.0, K)


_BLOCK = 2**16  # numbers


def _joint(R_FKK: Floats, num_draws: int) -> Floats:
    """Draws of all statistics, (..., N, K): those of the last family are kept, as the search for a
    level asks for several numbers of one family."""
    if R_FKK.size > _KEPT:
        return _drawn(R_FKK, num_draws)
    return _kept_joint(R_FKK.shape, R_FKK.tobytes(), num_draws)


_KEPT = 2**16  # numbers of the matrices whose draws are kept


@lru_cache(maxsize=1)
def _kept_joint(shape: tuple[int, ...], correlation: bytes, num_draws: int) -> Floats:
    return _drawn(np.frombuffer(correlation).reshape(shape), num_draws)


def _drawn(R_FKK: Floats, num_draws: int) -> Floats:
    K = R_FKK.shape[-1]
    # Differences with one baseline may be linearly dependent: a trace of the identity keeps the
    # matrix positive definite.
    factor_FKK = np.linalg.cholesky((1 - _ROUNDING) * R_FKK + _ROUNDING * np.eye(K))
    return np.asarray(_draws(K, num_draws)[0] @ np.swapaxes(factor_FKK, -1, -2))


@lru_cache(maxsize=32)
def _draws(K: int, num_draws: int) -> tuple[Floats, Floats]:
    """Independent normals, and where in its tail the chosen comparison is, evenly spread."""
    # The same draws for every p and table of K comparisons: a p never changes from call to call,
    # and the root search of `family_level` sees a smooth function.
    rng = generator(1, "max-t", K, num_draws)
    return rng.normal(size=(num_draws, K)), (rng.permutation(num_draws) + 0.5) / num_draws


def family_level(
    alpha: float, correlation_KK: ArrayLike, *, two_sided: bool = True, num_draws: int = 0
) -> float:
    """The level of each comparison at which all together err with probability alpha: that of
    simultaneous intervals."""
    R_KK = fallible(np.asarray(correlation_KK, dtype=np.float64))
    if len(R_KK) < 2:
        return alpha

    def excess(level: float) -> float:
        m = effective_number(level, R_KK, two_sided=two_sided, num_draws=num_draws)
        return float(m) * level - alpha

    # 1 <= m <= K, so the level lies between Bonferroni's and the uncorrected one.
    return float(optimize.brentq(excess, alpha / len(R_KK) / 2, alpha, rtol=1e-6))


def adjusted(p: ArrayLike, method: str, correlation_KK: ArrayLike | None = None) -> Floats:
    """The p-values by `method`: one of `CORRECTIONS`, or `max-t`, which needs the correlations."""
    if method != MAX_T:
        return CORRECTIONS[method](np.asarray(p, dtype=np.float64).tolist())
    if correlation_KK is None:
        raise BadInput("max-t needs the correlations of the comparisons, got none")
    return max_t(p, correlation_KK)


CORRECTIONS: dict[str, Callable[[Sequence[float]], Floats]] = {
    HOLM: holm,
    "bh": benjamini_hochberg,
    NONE: lambda p: _of_tested(p, lambda p_K: p_K),
}


def _of_tested(p: ArrayLike, adjust: Callable[[Floats], Floats]) -> Floats:
    """The adjustment of all p-values that are not NaN."""
    p_K = np.array(p, dtype=np.float64, ndmin=1)
    tested_K = ~np.isnan(p_K)
    if p_K.ndim != 1 or ((p_K < 0) | (p_K > 1)).any():
        raise BadInput(f"p-values must be one list of numbers in [0, 1], got {p_K.tolist()}")
    if tested_K.any():
        p_K[tested_K] = adjust(p_K[tested_K])
    return p_K
