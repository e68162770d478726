"""Sweeps drawn from known truth: the deviations of collections and the shapes of runs.

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

from rank_core.stats.scopes import Floats
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
    "1 in 20 collapses": lambda rng, shape: (0.05 - (rng.random(shape) < 0.05)) / math.sqrt(0.0475),
}
"""{how training runs scatter: draws of mean 0 and deviation 1}."""


def customary_error(kind: Kind, *, S: int, seed_sd: float, alpha: float) -> float:
    """What theory says of the queries-only test on equal systems: 2 Phi(-z sqrt(V_q / V))."""
    V_q = 2 * (kind.query**2 + kind.residual**2 / S) / kind.num_queries
    V = V_q + 2 * seed_sd**2 / S
    return float(2 * stats.norm.sf(stats.norm.isf(alpha / 2) * math.sqrt(V_q / V)))
