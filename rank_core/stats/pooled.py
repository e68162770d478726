"""One seed variance from all cells of a sweep, for tests that three seeds alone cannot support.

Each cell's variance is shrunk to the sweep's (empirical Bayes, Smyth 2004). That is only allowed
when the cells look alike: one collapsing cell among healthy ones would borrow their calm and call
an accident a difference.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special, stats

from rank_core.errors import BadInput
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.scopes import Floats, ScopeTest, seed_variances, two_sided_p

LEAST_HOMOGENEITY = 0.1
"""Below this p of Bartlett's test the cells are not pooled."""


@dataclass(frozen=True)
class PooledSeeds:
    """The sweep's prior of a cell's variance between seed means, and the residual's mean square.

    `prior_df` says how many seeds the prior is worth; `df` how many the sweep has at all.
    """

    variance: float  # of the seed means; contains residual / Q
    prior_df: float
    df: float
    residual: float  # mean square error of one seed on one query
    homogeneity_p: float


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
    variances = np.array([_between_seeds(score_SQ) for score_SQ in seeded])
    if variances.max() == 0:
        return 1.0
    if variances.min() == 0:
        return 0.0
    return float(stats.bartlett(*(score_SQ.mean(axis=1) for score_SQ in seeded)).pvalue)


def pooled_seeds(
    matrix: ScoreMatrix, *, least_homogeneity: float = LEAST_HOMOGENEITY
) -> PooledSeeds:
    """The prior from all cells with two seeds or more; refused when they differ too much."""
    p = homogeneity(matrix)
    seeded = {cell: score_SQ for cell, score_SQ in matrix.scores.items() if len(score_SQ) > 1}
    variance_K = np.array([_between_seeds(score_SQ) for score_SQ in seeded.values()])
    if p < least_homogeneity:
        widest, calmest = list(seeded)[variance_K.argmax()], list(seeded)[variance_K.argmin()]
        raise BadInput(
            f"pooling needs alike seed variances (Bartlett's p >= {least_homogeneity:g}), "
            f"got p = {p:.2g}: the SD of the seed means is {math.sqrt(variance_K.max()):.2g} "
            f"for {widest} and {math.sqrt(variance_K.min()):.2g} for {calmest}"
        )
    df_K = np.array([len(score_SQ) - 1 for score_SQ in seeded.values()], dtype=np.float64)
    Q = len(matrix.query_ids)
    error_K = [Q * len(x_SQ) * seed_variances(x_SQ)[1] for x_SQ in seeded.values()]
    variance, prior_df = _prior(variance_K, df_K)
    return PooledSeeds(
        variance=variance,
        prior_df=prior_df,
        df=float(df_K.sum()),
        residual=float(np.array(error_K) @ df_K / df_K.sum()),
        homogeneity_p=p,
    )


def moderated_scope_test(
    score_A_SQ: Floats, score_B_SQ: Floats, *, pooled: PooledSeeds
) -> ScopeTest:
    """`scope_test` with both seed variances shrunk to the sweep's; also defined for one seed.

    Both systems borrow from the same pool, so the degrees of freedom of the seed part never exceed
    the pool's.
    """
    delta_Q = score_A_SQ.mean(axis=0) - score_B_SQ.mean(axis=0)
    Q, delta = len(delta_Q), float(delta_Q.mean())
    V_q = float(delta_Q.var(ddof=1)) / Q
    parts = [_moderated(score_SQ, pooled) for score_SQ in (score_A_SQ, score_B_SQ)]
    V_seeds = sum(V_s for V_s, _, _ in parts)
    V_both = V_q + sum(max(V_s - V_e, 0.0) for V_s, V_e, _ in parts)
    apart = sum(V_s**2 / df for V_s, _, df in parts)
    seeds_term = max(apart, V_seeds**2 / pooled.df)
    error_term = sum(V_e**2 / (df * (Q - 1)) for _, V_e, df in parts)
    spread = V_q**2 / (Q - 1) + seeds_term + error_term
    df_seeds = V_seeds**2 / seeds_term if seeds_term else pooled.df
    df_both = V_both**2 / spread if spread else Q - 1.0
    se_queries, se_seeds, se_both = (math.sqrt(V) for V in (V_q, V_seeds, V_both))
    return ScopeTest(
        delta=delta,
        p_queries=float(two_sided_p(delta, se_queries, Q - 1)),
        p_seeds=float(two_sided_p(delta, se_seeds, df_seeds)),
        p_both=float(two_sided_p(delta, se_both, df_both)),
        se_queries=se_queries,
        se_seeds=se_seeds,
        se_both=se_both,
        df_queries=Q - 1.0,
        df_seeds=df_seeds,
        df_both=df_both,
        variance_queries=V_q,
        variance_seeds_a=parts[0][0],
        variance_seeds_b=parts[1][0],
        variance_error_a=parts[0][1],
        variance_error_b=parts[1][1],
    )


def _between_seeds(score_SQ: Floats) -> float:
    """The variance of the seed means."""
    return len(score_SQ) * seed_variances(score_SQ)[0]


def _moderated(score_SQ: Floats, pooled: PooledSeeds) -> tuple[float, float, float]:
    """V_s, V_e and the degrees of freedom of one system after shrinking."""
    S, Q = score_SQ.shape
    own_df = S - 1
    total_df = min(pooled.prior_df + own_df, pooled.df)
    own = _between_seeds(score_SQ) if own_df else 0.0
    if math.isinf(pooled.prior_df):
        variance = pooled.variance
    else:
        variance = (pooled.prior_df * pooled.variance + own_df * own) / (pooled.prior_df + own_df)
    V_e = seed_variances(score_SQ)[1] if own_df else pooled.residual / Q
    return variance / S, V_e, total_df


def _prior(variance_K: Floats, df_K: Floats) -> tuple[float, float]:
    """Smyth's moment estimates of the prior variance and its degrees of freedom.

    Where the cells vary no more than chance, the prior is exact (infinite degrees of freedom) and
    its variance the weighted mean.
    """
    mean = float(variance_K @ df_K / df_K.sum())
    if mean == 0:
        return 0.0, math.inf
    centred_K = np.log(variance_K) - special.digamma(df_K / 2) + np.log(df_K / 2)
    excess = float(centred_K.var(ddof=1) - special.polygamma(1, df_K / 2).mean())
    if excess <= 0:
        return mean, math.inf
    half_df = _inverse_trigamma(excess)
    variance = math.exp(
        float(centred_K.mean()) + float(special.digamma(half_df)) - math.log(half_df)
    )
    return variance, 2 * half_df


def _inverse_trigamma(value: float) -> float:
    """x with trigamma(x) = value; trigamma falls from infinity to 0."""
    low, high = 1e-8, 1e8
    if value <= special.polygamma(1, high):
        return high
    return float(optimize.brentq(lambda x: float(special.polygamma(1, x)) - value, low, high))
