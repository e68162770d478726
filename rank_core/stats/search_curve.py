"""How good the best of n trials is expected to be: the honest way to show a search."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rank_core.errors import BadInput


@dataclass(frozen=True)
class SearchPoint:
    """The expected best of `num_trials` of the trials that were run, and what they cost."""

    num_trials: int
    expected_best: float
    cost: float  # in the unit of the trials' mean cost, for example GPU hours


def expected_best(values: Sequence[float], num_trials: int) -> float:
    """The mean of the best over all subsets of `num_trials` values, larger is better.

    Without replacement, the unbiased version of Dodge et al. (2019); with replacement the curve
    lies too low.
    """
    sorted_N = np.sort(np.asarray(values, dtype=np.float64))
    N = len(sorted_N)
    if N == 0 or not np.isfinite(sorted_N).all():
        raise BadInput("a search curve needs finite values, count a diverged trial as 0")
    if not 1 <= num_trials <= N:
        raise BadInput(f"1 <= num_trials <= {N} must hold, got num_trials={num_trials}")
    # The i-th smallest is the best of C(i - 1, n - 1) of the C(N, n) subsets.
    subsets = math.comb(N, num_trials)
    chance_N = [math.comb(i, num_trials - 1) / subsets for i in range(N)]
    return float(sorted_N @ np.array(chance_N))


def search_curve(values: Sequence[float], *, mean_cost: float = 1.0) -> list[SearchPoint]:
    """The expected best for 1, 2, ... all trials; the last point is the best one itself."""
    return [
        SearchPoint(n, expected_best(values, n), n * mean_cost) for n in range(1, len(values) + 1)
    ]
