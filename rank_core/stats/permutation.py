"""The randomised Tukey HSD: all pairs of systems by permutation within queries.

Its scope is `queries` only. Systems exchange their scores within a query, so queries are blocks and
the dependence of the comparisons is taken into account. A test over seeds needs more seeds than a
sweep has: three against three cannot reach p < 0.1. A large table is never permuted as a whole:
every permutation is drawn and summed over queries in pieces that fit a processor's cache.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rank_core.arrays import Floats
from rank_core.errors import BadInput
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.scopes import ROUNDING

NUM_PERMUTATIONS = 10_000
_CLOSE = 1e-9  # relative: a permutation that reproduces the data must count as equal
_PIECE = 1 << 16  # values permuted at once: 64 Ki make half a MiB of scores
_MOST_THREADS = 8
_WAITING = 64  # blocks per thread that may be finished in advance


@dataclass(frozen=True)
class Permuted:
    """One pair: mean difference, and its p over all permutations."""

    system: str
    baseline: str
    delta: float
    statistic: float  # |difference of means|
    p: float  # of this pair alone
    p_adjusted: float  # for all pairs


def randomised_tukey(
    matrix: ScoreMatrix,
    *,
    rng: np.random.Generator,
    num_permutations: int = NUM_PERMUTATIONS,
) -> list[Permuted]:
    """All pairs of cells, adjusted by the largest range of permuted means (Carterette 2012). Unlike
    `scipy.stats.tukey_hsd`, which takes the queries of two systems for unrelated samples. Clusters
    of queries are blocks as single queries are."""
    if len(matrix.cells) < 2:
        raise BadInput(f"a permutation test needs two cells, got {', '.join(matrix.cells)}")
    plain = matrix.of_queries.scores
    score_QK = np.stack([plain[cell].mean(axis=0) for cell in matrix.cells], axis=1)
    pairs = list(combinations(range(len(matrix.cells)), 2))
    first, second = np.array(pairs).T
    mean_K = score_QK.mean(axis=0)
    observed_P = np.abs(mean_K[first] - mean_K[second])
    observed_P[observed_P <= ROUNDING * np.abs(score_QK).max()] = 0.0
    # Sums in another order differ in the last bits; an equal arrangement must count as reaching the
    # bar.
    bar_P = observed_P * (1 - _CLOSE)
    Q = len(score_QK)
    if matrix.cluster_of:  # the queries of a cluster exchange their systems together
        sum_GK = np.zeros((len(matrix.query_ids), len(matrix.cells)))
        np.add.at(sum_GK, np.array(matrix.cluster_of), score_QK)
        score_QK = sum_GK
    alone_P, beaten_P = np.zeros(len(pairs)), np.zeros(len(pairs))
    for sum_BK in permuted_sums(score_QK, rng=rng, total=num_permutations):
        mean_BK = sum_BK / Q
        alone_P += (np.abs(mean_BK[:, first] - mean_BK[:, second]) >= bar_P).sum(axis=0)
        # The range over all systems bounds every pair's difference: one distribution for all pairs
        # controls the familywise error, as the studentised range does in Tukey's test.
        beaten_P += (np.ptp(mean_BK, axis=1)[:, None] >= bar_P).sum(axis=0)
    return [
        Permuted(
            system=matrix.cells[a],
            baseline=matrix.cells[b],
            delta=float(mean_K[a] - mean_K[b]),
            statistic=float(observed_P[number]),
            # The data are one arrangement of themselves: p is never 0 (Phipson & Smyth 2010).
            p=float((alone_P[number] + 1) / (num_permutations + 1)),
            p_adjusted=float((beaten_P[number] + 1) / (num_permutations + 1)),
        )
        for number, (a, b) in enumerate(pairs)
    ]


def permuted_sums(score_QK: Floats, *, rng: np.random.Generator, total: int) -> Iterator[Floats]:
    """Sums over queries of `total` permuted copies of the table, in blocks (B, K) of permutations.

    A block has a seed of its own, so the number of threads, that of the processors, changes no
    value.
    """
    if total < 1:
        raise BadInput(f"num_permutations >= 1 must hold, got {total}")
    threads = min(_processors(), _MOST_THREADS)
    size = max(1, _PIECE // score_QK.size)
    sizes = [min(size, total - start) for start in range(0, total, size)]
    entropy = rng.integers(0, 2**63, size=2).tolist()
    seeds = np.random.SeedSequence(entropy).spawn(len(sizes))
    blocks = list(zip(sizes, seeds, strict=True))
    at_once = _WAITING * threads

    def block(task: tuple[int, np.random.SeedSequence]) -> Floats:
        return _block(score_QK, num=task[0], seed=task[1])

    with ThreadPoolExecutor(threads) as pool:
        for start in range(0, len(blocks), at_once):
            yield from pool.map(block, blocks[start : start + at_once])


def _block(score_QK: Floats, *, num: int, seed: np.random.SeedSequence) -> Floats:
    """The sums of `num` permuted tables, piece by piece over the queries."""
    rng = np.random.Generator(np.random.SFC64(seed))
    Q, K = score_QK.shape
    rows = max(1, _PIECE // (num * K))
    sum_BK = np.zeros((num, K))
    for start in range(0, Q, rows):
        sum_BK += permuted(score_QK[start : start + rows], rng, num).sum(axis=1)
    return sum_BK


def permuted(score_RK: Floats, rng: np.random.Generator, num: int) -> Floats:
    """`num` copies (B, R, K), every row permuted on its own.

    Sorting keys that carry the system's number in their lowest bits costs a third of `argsort`. The
    random bits above it are 24 or more, so that hardly a row has two equal ones (which would keep
    the order of the table).
    """
    R, K = score_RK.shape
    kind: Any = np.uint32 if K <= 256 else np.uint64
    bits = (K - 1).bit_length()
    mask = kind((1 << bits) - 1)
    key_BRK: NDArray[Any] = rng.integers(
        0, np.iinfo(kind).max, size=(num, R, K), dtype=kind, endpoint=True
    )
    key_BRK &= ~mask
    key_BRK |= np.arange(K, dtype=kind)
    key_BRK.sort(axis=2)
    key_BRK &= mask
    key_BRK += (np.arange(R, dtype=kind) * kind(K))[:, None]
    return score_RK.ravel().take(key_BRK.astype(np.intp))


def _processors() -> int:
    """Processors this process may use, which on a shared machine are fewer than it has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
