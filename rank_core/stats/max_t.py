"""Copies of a score table with the systems permuted within every query, summed as they are drawn.

A large table is never held permuted: every permutation is drawn, summed over queries and forgotten
in pieces that stay in a processor's cache.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rank_core.errors import BadInput
from rank_core.stats.scopes import Floats

_PIECE = 1 << 16  # values permuted at once: 64 Ki make half a MiB of scores
_MOST_THREADS = 8
_WAITING = 64  # blocks per thread that may be finished before the caller has seen them


def permuted_sums(
    score_QK: Floats,
    summed: Callable[[Floats], Floats],
    *,
    rng: np.random.Generator,
    total: int,
    threads: int | None = None,
) -> Iterator[Floats]:
    """`summed` of `total` permuted copies of the table, in blocks of permutations.

    `summed` gets a piece (B, R, K) of R queries and returns its sums over them, with B in front;
    the sums of all pieces are added. A block has a seed of its own, so the number of threads, by
    default that of the processors, changes no value.
    """
    if total < 1:
        raise BadInput(f"num_permutations >= 1 must hold, got {total}")
    if threads is not None and threads < 1:
        raise BadInput(f"threads >= 1 must hold, got {threads}")
    threads = min(_processors(), _MOST_THREADS) if threads is None else threads
    size = max(1, _PIECE // score_QK.size)
    sizes = [min(size, total - start) for start in range(0, total, size)]
    entropy = rng.integers(0, 2**63, size=2).tolist()
    seeds = np.random.SeedSequence(entropy).spawn(len(sizes))
    blocks = list(zip(sizes, seeds, strict=True))
    at_once = _WAITING * threads

    def block(task: tuple[int, np.random.SeedSequence]) -> Floats:
        return _block(score_QK, summed, num=task[0], seed=task[1])

    with ThreadPoolExecutor(threads) as pool:
        for start in range(0, len(blocks), at_once):
            yield from pool.map(block, blocks[start : start + at_once])


def _block(
    score_QK: Floats,
    summed: Callable[[Floats], Floats],
    *,
    num: int,
    seed: np.random.SeedSequence,
) -> Floats:
    """The sums of `num` permuted tables, piece by piece over the queries."""
    rng = np.random.Generator(np.random.SFC64(seed))
    Q, K = score_QK.shape
    rows = max(1, _PIECE // (num * K))
    found = summed(_permuted(score_QK[:rows], rng, num))
    for start in range(rows, Q, rows):
        found += summed(_permuted(score_QK[start : start + rows], rng, num))
    return found


def _permuted(score_RK: Floats, rng: np.random.Generator, num: int) -> Floats:
    """`num` copies (B, R, K), every row permuted on its own.

    Sorting keys that carry the system's number in their lowest bits costs a third of `argsort`.
    The random bits above it are 24 or more, so that hardly a row has two equal ones (which would
    stand in the order of the table).
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
