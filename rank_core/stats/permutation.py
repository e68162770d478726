"""Permutation tests over queries: step-down maxT and the randomised Tukey HSD.

Their scope is `queries` only. Both exchange the systems' scores within a query, so queries stay
blocked and the dependence of the comparisons is used instead of feared. A test over seeds needs
more seeds than a sweep has: three against three cannot get below p = 0.1.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from rank_core.errors import BadInput, unknown
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.max_t import permuted_sums
from rank_core.stats.scopes import Floats

NUM_PERMUTATIONS = 10_000
_CLOSE = 1e-9  # relative: a permutation that gives back the data must count as equal


@dataclass(frozen=True)
class Permuted:
    """One comparison: mean difference, the statistic of the test, and its adjusted p."""

    system: str
    baseline: str
    delta: float
    statistic: float  # |paired t| for maxT, |difference of means| for Tukey
    p: float  # of this comparison alone
    p_adjusted: float  # for the whole family


def max_t(
    matrix: ScoreMatrix,
    *,
    baseline: str,
    rng: np.random.Generator,
    num_permutations: int = NUM_PERMUTATIONS,
    threads: int | None = None,
) -> list[Permuted]:
    """Every cell against the baseline, adjusted by the step-down maximum of |t|.

    Westfall and Young's procedure with the studentised statistic and (b + 1) / (B + 1); for test
    collections see Boytsov, Belova and Westfall (SIGIR 2013). Order is that of the matrix.
    The number of threads, by default that of the processors, changes no value.
    """
    if baseline not in matrix.cells:
        raise unknown("baseline", baseline, matrix.cells)
    systems = [cell for cell in matrix.cells if cell != baseline]
    score_QK = _mean_scores(matrix, [baseline, *systems])
    Q = len(score_QK)
    observed_K = _absolute_t(_delta_sums(score_QK[None]), Q)[0]
    order_K = np.argsort(-observed_K, kind="stable")
    alone_K = np.zeros(len(systems))
    beaten_K = np.zeros(len(systems))
    bar_K = observed_K * (1 - _CLOSE)
    for sums_B2K in permuted_sums(
        score_QK, _delta_sums, rng=rng, total=num_permutations, threads=threads
    ):
        t_BK = _absolute_t(sums_B2K, Q)
        alone_K += (t_BK >= bar_K).sum(axis=0)
        # The maximum over this hypothesis and all that come later in the observed order.
        largest_BK = np.maximum.accumulate(t_BK[:, order_K][:, ::-1], axis=1)[:, ::-1]
        beaten_K += (largest_BK >= bar_K[order_K]).sum(axis=0)
    adjusted_K = np.empty(len(systems))
    adjusted_K[order_K] = np.maximum.accumulate((beaten_K + 1) / (num_permutations + 1))
    return [
        Permuted(
            system=system,
            baseline=baseline,
            delta=float((score_QK[:, k + 1] - score_QK[:, 0]).mean()),
            statistic=float(observed_K[k]),
            p=float((alone_K[k] + 1) / (num_permutations + 1)),
            p_adjusted=float(adjusted_K[k]),
        )
        for k, system in enumerate(systems)
    ]


def randomised_tukey(
    matrix: ScoreMatrix,
    *,
    rng: np.random.Generator,
    num_permutations: int = NUM_PERMUTATIONS,
    threads: int | None = None,
) -> list[Permuted]:
    """All pairs of cells, adjusted by the largest range of permuted means (Carterette 2012).

    Unlike `scipy.stats.tukey_hsd`, which takes the queries of two systems for unrelated samples.
    """
    score_QK = _mean_scores(matrix, matrix.cells)
    pairs = list(combinations(range(len(matrix.cells)), 2))
    first, second = np.array(pairs).T
    mean_K = score_QK.mean(axis=0)
    observed_P = np.abs(mean_K[first] - mean_K[second])
    bar_P = observed_P * (1 - _CLOSE)
    alone_P, beaten_P = np.zeros(len(pairs)), np.zeros(len(pairs))
    for sum_BK in permuted_sums(
        score_QK, _score_sums, rng=rng, total=num_permutations, threads=threads
    ):
        mean_BK = sum_BK / len(score_QK)
        alone_P += (np.abs(mean_BK[:, first] - mean_BK[:, second]) >= bar_P).sum(axis=0)
        beaten_P += (np.ptp(mean_BK, axis=1)[:, None] >= bar_P).sum(axis=0)
    return [
        Permuted(
            system=matrix.cells[a],
            baseline=matrix.cells[b],
            delta=float(mean_K[a] - mean_K[b]),
            statistic=float(observed_P[number]),
            p=float((alone_P[number] + 1) / (num_permutations + 1)),
            p_adjusted=float((beaten_P[number] + 1) / (num_permutations + 1)),
        )
        for number, (a, b) in enumerate(pairs)
    ]


def _mean_scores(matrix: ScoreMatrix, cells: list[str] | tuple[str, ...]) -> Floats:
    """Means over seeds, (Q, K)."""
    if len(cells) < 2:
        raise BadInput(f"a permutation test needs two cells or more, got {', '.join(cells)}")
    return np.stack([matrix.scores[cell].mean(axis=0) for cell in cells], axis=1)


def _score_sums(score_BQK: Floats) -> Floats:
    """Sums over queries, (B, K)."""
    total_BK: Floats = score_BQK.sum(axis=1)
    return total_BK


def _delta_sums(score_BQK: Floats) -> Floats:
    """Sums over queries of differences from the first system and of their squares, (B, 2, K)."""
    delta_BQK = score_BQK[:, :, 1:] - score_BQK[:, :, :1]
    square_BK = np.einsum("bqk,bqk->bk", delta_BQK, delta_BQK)
    return np.stack([delta_BQK.sum(axis=1), square_BK], axis=1)


def _absolute_t(sums_B2K: Floats, Q: int) -> Floats:
    """|paired t| per comparison; 0 for a pair of equal systems, infinite for a constant gap."""
    mean_BK, square_BK = sums_B2K[:, 0] / Q, sums_B2K[:, 1] / Q
    variance_BK = np.maximum(square_BK - mean_BK**2, 0) / (Q - 1)
    # A variance this small against the mean square is rounding.
    variance_BK[variance_BK * (Q - 1) <= 1e-13 * square_BK] = 0
    with np.errstate(divide="ignore", invalid="ignore"):
        t_BK = np.abs(mean_BK) / np.sqrt(variance_BK)
    return np.where(np.isnan(t_BK), 0.0, t_BK)
