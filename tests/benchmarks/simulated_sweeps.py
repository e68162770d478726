"""Sweeps drawn from known truth: equal systems, planted differences, and chosen winners.

The score of system m, training run s, query q is mu + (query) + (query x system) + (run) +
(residual), all normal. A test sees such a table of scores only through its mean, the variance of
its query means, the variance of its run means and the residual mean square. By Cochran's theorem
these four are independent in a balanced normal design: a normal and three scaled chi-squares.
Drawing them is the same experiment as drawing whole tables of scores, at a thousandth of the cost.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats

from rank_core.stats.scopes import Floats, Inference, infer
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
COLLAPSING = Kind("collapse", 0.09, 0.08, 200)
SELECTION = Kind("selection", 0.05, 0.08, 200)


SHAPES: dict[str, Callable[[np.random.Generator, tuple[int, int]], Floats]] = {
    "normal": lambda rng, shape: rng.normal(0, 1, shape),
    "resampled": lambda rng, shape: rng.choice(SEED_DEVIATIONS, shape),
    "t, 3 df": lambda rng, shape: rng.standard_t(3, shape) / math.sqrt(3),
    "exponential": lambda rng, shape: rng.exponential(1, shape) - 1,
    "lognormal": lambda rng, shape: (
        (np.exp(rng.normal(0, 1, shape)) - math.sqrt(math.e)) / math.sqrt(math.e * (math.e - 1))
    ),
    "1 in 20 collapses": lambda rng, shape: (0.05 - (rng.random(shape) < 0.05)) / math.sqrt(0.0475),
}
"""{how training runs scatter: draws of mean 0 and deviation 1}."""


def null_and_planted(
    kind: Kind,
    rng: np.random.Generator,
    *,
    num: int,
    S: int,
    seed_sd: float,
    delta: float = 0.0,
    collapse: float = 0.0,
) -> Inference:
    """The tests of `num` sweeps of two systems that truly differ by `delta`.

    With probability `collapse` a training run loses .37, as a collapsed one does.
    """
    Q = kind.num_queries
    means, V_s = [], []
    for shift in (delta, 0.0):
        run_NS = rng.normal(0, math.hypot(seed_sd, kind.residual / math.sqrt(Q)), (num, S))
        run_NS -= 0.37 * (rng.random((num, S)) < collapse)
        own_N = rng.normal(0, kind.query / math.sqrt(Q), num)
        means.append(shift + own_N + run_NS.mean(axis=1))
        V_s.append(run_NS.var(axis=1, ddof=1) / S)
    return infer(
        delta=means[0] - means[1],
        variance_queries=variance_queries(kind, rng, S, num),
        variance_seeds=tuple(V_s),
        variance_error=(variance_error(kind, rng, S, num), variance_error(kind, rng, S, num)),
        num_seeds=(S, S),
        num_queries=Q,
    )


def best_of_equals(
    rng: np.random.Generator, *, num: int, K: int, S: int = 3, seed_sd: float = 0.005
) -> dict[str, tuple[Inference, float]]:
    """{protocol: (tests, mean gain)} of the best of K equal configurations over an equal baseline.

    The truth is a gain of 0. "Same queries" chooses on what it tests.
    """
    kind, NKS = SELECTION, (num, K + 1, S)
    noise = kind.residual / math.sqrt(kind.num_queries)
    own = kind.query / math.sqrt(kind.num_queries)

    def on_queries(run_NKS: Floats) -> Floats:
        """Run means on newly drawn queries."""
        return run_NKS + rng.normal(0, own, (num, K + 1, 1)) + rng.normal(0, noise, NKS)

    trained_NKS = rng.normal(0, seed_sd, NKS)
    dev_NKS = on_queries(trained_NKS)
    chosen_N = dev_NKS[:, 1:].mean(axis=2).argmax(axis=1) + 1
    fresh_NKS = rng.normal(0, seed_sd, NKS)
    return {
        "same queries, same runs": _chosen_test(rng, dev_NKS, chosen_N),
        "dev chooses, same runs": _chosen_test(rng, on_queries(trained_NKS), chosen_N),
        "dev chooses, fresh seeds": _chosen_test(rng, on_queries(fresh_NKS), chosen_N),
    }


def bounded_scores(rng: np.random.Generator, *, S: int) -> Floats:
    """Two equal systems as (2, S, Q) scores in [0, 1] in steps of .01, a tenth of the queries 0."""
    Q = R04.num_queries
    score_2SQ = (
        rng.beta(1.2, 1.8, Q)
        + rng.normal(0, R04.query, (2, 1, Q))
        + rng.normal(0, 0.005, (2, S, 1))
        + rng.normal(0, R04.residual, (2, S, Q))
    )
    return np.where(rng.random(Q) < 0.1, 0.0, np.clip(score_2SQ, 0, 1).round(2))


def customary_error(kind: Kind, *, S: int, seed_sd: float, alpha: float) -> float:
    """What theory says of the queries-only test on equal systems: 2 Phi(-z sqrt(V_q / V))."""
    V_q = 2 * (kind.query**2 + kind.residual**2 / S) / kind.num_queries
    V = V_q + 2 * seed_sd**2 / S
    return float(2 * stats.norm.sf(stats.norm.isf(alpha / 2) * math.sqrt(V_q / V)))


def variance_queries(kind: Kind, rng: np.random.Generator, S: int, num: int) -> Floats:
    """V_q of a difference: the variance of its query means over Q, Q - 1 degrees of freedom."""
    Q = kind.num_queries
    true = 2 * (kind.query**2 + kind.residual**2 / S) / Q
    return true * rng.chisquare(Q - 1, num) / (Q - 1)


def variance_error(kind: Kind, rng: np.random.Generator, S: int, num: int) -> Floats:
    """V_e of one system: the residual mean square over Q S."""
    Q = kind.num_queries
    df = (S - 1) * (Q - 1)
    return kind.residual**2 / (Q * S) * rng.chisquare(df, num) / df


def _chosen_test(
    rng: np.random.Generator, run_NKS: Floats, chosen_N: np.ndarray
) -> tuple[Inference, float]:
    """The chosen configuration against configuration 0 and its mean gain, from the run means."""
    num, _, S = run_NKS.shape
    pair = (run_NKS[np.arange(num), chosen_N], run_NKS[:, 0])
    gain_N = pair[0].mean(axis=1) - pair[1].mean(axis=1)
    found = infer(
        delta=gain_N,
        variance_queries=variance_queries(SELECTION, rng, S, num),
        variance_seeds=tuple(run_NS.var(axis=1, ddof=1) / S for run_NS in pair),
        variance_error=tuple(variance_error(SELECTION, rng, S, num) for _ in pair),
        num_seeds=(S, S),
        num_queries=SELECTION.num_queries,
    )
    return found, float(gain_N.mean())
