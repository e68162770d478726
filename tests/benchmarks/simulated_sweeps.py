"""Sweeps drawn from known truth: the deviations of collections and the shapes of runs.

The score of system m, training run s, query q is mu + (query) + (query x system) + (run) +
(residual), all normal. A test sees such a table of scores only through its mean, the variance of
its query means, the variance of its run means and the residual mean square. By Cochran's theorem
these four are independent in a balanced normal design: a normal and three scaled chi-squares.
Drawing them is the same experiment as drawing whole tables of scores, at a thousandth of the cost.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from rank_core.arrays import Floats
from tests.benchmarks.seed_deviations import SEED_DEVIATIONS


@dataclass(frozen=True)
class Kind:
    """The deviations of query x system and of the residual, and the number of queries."""

    name: str
    query: float
    residual: float
    num_queries: int


R04 = Kind("R04c", 0.06, 0.05, 249)
DL = Kind("DLc", 0.04, 0.04, 145)
MSM = Kind("MSMc", 0.09, 0.12, 5193)


SHAPES: dict[str, Callable[[np.random.Generator, tuple[int, int]], Floats]] = {
    "normal": lambda rng, shape: rng.normal(0, 1, shape),
    "resampled": lambda rng, shape: rng.choice(SEED_DEVIATIONS, shape),
    "t, 3 df": lambda rng, shape: rng.standard_t(3, shape) / math.sqrt(3),
    "exponential": lambda rng, shape: rng.exponential(1, shape) - 1,
    "lognormal": lambda rng, shape: (
        (np.exp(rng.normal(0, 1, shape)) - math.sqrt(math.e)) / math.sqrt(math.e * (math.e - 1))
    ),
    "bimodal": lambda rng, shape: (0.3 - (rng.random(shape) < 0.3)) / math.sqrt(0.21),
    "1 in 20 collapses": lambda rng, shape: (0.05 - (rng.random(shape) < 0.05)) / math.sqrt(0.0475),
}
"""{how training runs scatter: draws of mean 0 and deviation 1}."""


def customary_error(kind: Kind, *, S: int, seed_sd: float, alpha: float) -> float:
    """What theory says of the queries-only test on equal systems: 2 Phi(-z sqrt(V_q / V))."""
    V_q = 2 * (kind.query**2 + kind.residual**2 / S) / kind.num_queries
    V = V_q + 2 * seed_sd**2 / S
    return float(2 * stats.norm.sf(stats.norm.isf(alpha / 2) * math.sqrt(V_q / V)))


@dataclass(frozen=True)
class Tables:
    """N tables of K systems as the tests see them; in truth all means are 0."""

    mean_NK: Floats
    covariance_NKK: Floats  # of the query means
    variance_seeds_NK: Floats  # V_s, 0 of a deterministic system
    variance_error_NK: Floats  # V_e
    seeds_K: Floats  # infinite: deterministic
    error_KK: Floats  # the true covariance of the means
    num_queries: int
    df_queries: float = 0  # of V_q where they are not num_queries - 1


def drawn_tables(
    rng: np.random.Generator,
    num: int,
    kind: Kind,
    seeds: int | Sequence[int],
    sd_K: Sequence[float],
    shape: str,
) -> Tables:
    """Tables whose systems have these numbers of seeds, or one number, and deviations between them;
    NaN: deterministic.

    The covariance of the query means is Wishart's, drawn by Bartlett's (1933) decomposition.
    """
    Q, K = kind.num_queries, len(sd_K)
    trained_K, own_K = ~np.isnan(sd_K), np.nan_to_num(np.asarray(sd_K, dtype=np.float64))
    S_K = np.broadcast_to(np.asarray(seeds), K)
    residual_K = np.where(trained_K, kind.residual, 0.0)
    query_K = np.hypot(kind.query, kind.residual / np.sqrt(S_K))
    most = int(S_K.max())
    run_NKS = own_K[:, None] * SHAPES[shape](rng, (num * K, most)).reshape(num, K, most)
    noise_NKS = residual_K[:, None] / math.sqrt(Q) * rng.normal(size=(num, K, most))
    # Of systems with fewer runs than others only these count.
    used_KS = np.arange(most) < S_K[:, None]
    mean_NK = run_NKS.mean(axis=2, where=used_KS)
    variance_NK = (run_NKS + noise_NKS).var(axis=2, ddof=1, where=used_KS)
    factor_NKK = np.tril(rng.normal(size=(num, K, K)), -1)
    diagonal = np.arange(K)
    factor_NKK[:, diagonal, diagonal] = np.sqrt(rng.chisquare(Q - 1 - diagonal, (num, K)))
    factor_NKK *= (query_K / math.sqrt(Q - 1))[:, None]
    df_K = (S_K - 1) * (Q - 1)
    return Tables(
        mean_NK=rng.normal(0, query_K / math.sqrt(Q), (num, K)) + mean_NK,
        covariance_NKK=factor_NKK @ np.swapaxes(factor_NKK, 1, 2),
        variance_seeds_NK=variance_NK / S_K * trained_K,
        variance_error_NK=residual_K**2 / (Q * S_K) * rng.chisquare(df_K, (num, K)) / df_K,
        seeds_K=np.where(trained_K, S_K.astype(np.float64), math.inf),
        error_KK=np.diag(query_K**2 / Q + own_K**2 / S_K),
        num_queries=Q,
    )
