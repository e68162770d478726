"""How often the tests of a results table are wrong where queries are not alone.

    python -m tests.benchmarks.clustered [--simulations 2000] [--seed 1] [--only SECTION]
        [--json FILE]

Five equal systems (or 18) of three to five training runs on clusters of queries, whose tastes and
residuals have an intraclass correlation; and two systems on two collections that share queries. The
shipped tests judge them twice: taking all queries for independent, and by their clusters. Every bar
is printed with `ok` or `FAIL`; the exit code is 1 if one fails.
"""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from rank_core.arrays import Floats
from rank_core.stats import scopes
from rank_core.stats.clusters import jackknife_df, joined
from rank_core.stats.compare import scope_test_of
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.strata import over_collections
from tests.benchmarks.bars import Bar, Draw, Section, simulate
from tests.benchmarks.error_rates import ALPHA, _pair_tests, first_step
from tests.benchmarks.final_stage import _stays
from tests.benchmarks.simulated_sweeps import Tables

TASTE, RESIDUAL, SEED_SD = 0.06, 0.06, 0.01
BATCH = 100
Sizes = Callable[[np.random.Generator, int], NDArray[np.int64]]
SIZES: dict[str, Sizes] = {
    "1": lambda rng, G: np.full(G, 1),
    "2": lambda rng, G: np.full(G, 2),
    "5": lambda rng, G: np.full(G, 5),
    "20": lambda rng, G: np.full(G, 20),
    "2 to 20": lambda rng, G: rng.integers(2, 21, G),
    "one 20, others 2": lambda rng, G: np.array([20] + [2] * (G - 1)),
    "two 20, others 2": lambda rng, G: np.array([20, 20] + [2] * (G - 2)),
    "30, 15, 10, 5, others 1 to 5": lambda rng, G: np.array([30, 15, 10, *_falling(G - 3)]),
}
"""{name: the sizes of G clusters}. The two largest of the last two kinds have up to 70% of the
queries."""


def _falling(G: int) -> NDArray[np.int64]:
    """The sizes of G clusters, from 5 to 1."""
    return np.linspace(5, 1, G).round().astype(np.int64)


ICCS, NUMBERS = (0.0, 0.5, 0.9), (10, 25, 60)
DESIGN, OTHERS = (4, 5), ((4, 3), (12, 5), (17, 3))
"""Comparisons and seeds."""


def clusters(rng: np.random.Generator, num: int) -> Section:
    """Four comparisons of five seeds, in all clusters."""
    return _clusters(rng, num, [(*DESIGN, *one) for one in product(SIZES, NUMBERS, ICCS)])


def designs(rng: np.random.Generator, num: int) -> Section:
    """Fewer seeds and more comparisons, with few clusters and many, at both ends of the ICC."""
    ends = product(SIZES, (NUMBERS[0], NUMBERS[-1]), (ICCS[0], ICCS[-1]))
    return _clusters(rng, num, [(*design, *one) for one in ends for design in OTHERS])


def _clusters(
    rng: np.random.Generator, num: int, cells: Sequence[tuple[int, int, str, int, float]]
) -> Section:
    """The familywise error, the coverage of single intervals and of the set of the best, with the
    queries taken for independent and in their clusters."""
    rows, bars = [], []
    for K, S, size, G, icc in cells:
        decided = [
            _decisions(rng, min(BATCH, num - at), SIZES[size](rng, G), icc, K, S)
            for at in range(0, num, BATCH)
        ]
        rates = [float(rate) for rate in np.concatenate(decided).mean(axis=0)]
        rows.append((size, G, icc, K, S, *rates))
        noise = 3 * math.sqrt(0.05 * 0.95 / num)
        law = f"{size}, {G} clusters, ICC {icc}, {K} comparisons, {S} seeds: at most .06"
        bars.append(Bar(law, f"{rates[1]:.4f}", rates[1] <= 0.06 + noise))
    pairs = ("FWER", "interval covers", "best inside")
    columns = ("size", "clusters", "ICC", "K", "S", *(
        f"{name}, {of}" for name in pairs for of in ("queries", "clusters")
    ))  # fmt: skip
    return Section("Equal systems on clusters of queries", columns, rows, bars)


def _decisions(
    rng: np.random.Generator, num: int, sizes: NDArray[np.int64], icc: float, K: int, S: int
) -> Floats:
    """(N, 6): a false letter, coverage of the first interval, the best inside; each of queries and
    of clusters."""
    of_Q = np.repeat(np.arange(len(sizes)), sizes)

    def normal(*shape: int) -> Floats:
        """Of deviation 1, with the intraclass correlation over the last axis."""
        common = rng.normal(size=(*shape, len(sizes)))[..., of_Q]
        return math.sqrt(icc) * common + math.sqrt(1 - icc) * rng.normal(size=(*shape, len(of_Q)))

    score_NKSQ = TASTE * normal(num, K + 1, 1) + RESIDUAL * normal(num, K + 1, S)
    score_NKSQ += SEED_SD * rng.normal(size=(num, K + 1, S, 1))
    columns = []
    for tables in (_tables(score_NKSQ), _of_clusters(score_NKSQ, sizes)):
        found = _pair_tests(tables, 0)
        wrong = (first_step(found, pooled=True) < ALPHA).any(axis=1)
        covered = np.fmax(found.own, found.moderated)[:, 0] >= ALPHA
        columns.append((wrong, covered, _stays(tables, trained=K + 1)))
    return np.array([one for pair in zip(*columns, strict=True) for one in pair], float).T


def _of_clusters(score_NKSQ: Floats, sizes: NDArray[np.int64]) -> Tables:
    """What the tests see of the clusters."""
    return replace(_tables(_in_clusters(score_NKSQ, sizes)), df_queries=jackknife_df(sizes))


def _in_clusters(score_NKSQ: Floats, sizes: NDArray[np.int64]) -> Floats:
    """The columns of `rank_core.stats.clusters.clustered`, of many tables."""
    mean, G = score_NKSQ.mean(axis=-1, keepdims=True), len(sizes)
    starts = np.cumsum([0, *sizes[:-1]])
    own = np.add.reduceat(score_NKSQ - mean, starts, axis=-1) * ((G - 1) / (sizes.sum() - sizes))
    return np.asarray(mean + own - own.mean(axis=-1, keepdims=True))


def _tables(score_NKSQ: Floats) -> Tables:
    """What the tests see of tables of scores."""
    *_, K, S, Q = score_NKSQ.shape
    query_NKQ, run_NKS = score_NKSQ.mean(axis=2), score_NKSQ.mean(axis=3)
    mean_NK = query_NKQ.mean(axis=2)
    centred = query_NKQ - mean_NK[..., None]
    residual = score_NKSQ - query_NKQ[:, :, None] - (run_NKS - mean_NK[..., None])[..., None]
    mean_square = (residual**2).sum(axis=(2, 3)) / ((S - 1) * (Q - 1))
    return Tables(
        mean_NK=mean_NK,
        covariance_NKK=centred @ np.swapaxes(centred, 1, 2) / (Q - 1),
        variance_seeds_NK=run_NKS.var(axis=2, ddof=1) / S,
        variance_error_NK=mean_square / (Q * S),
        seeds_K=np.full(K, float(S)),
        error_KK=np.eye(K),
        num_queries=Q,
    )


CORRELATIONS = (0.0, 0.5, 0.8, 1.0)
SHARED = {
    "all of 60": (60, 60, 60),
    "20 of 60 and 40": (60, 40, 20),
    "all 15 of 120": (120, 15, 15),
}
"""{name: queries of both collections, and of both at once}."""


def shared_queries(rng: np.random.Generator, num: int) -> Section:
    """The false positives and coverage of the mean over two collections, with their queries taken
    for different ones and paired."""
    rows, bars = [], []
    for name, sizes in SHARED.items():
        for S in (1, 3, 5):
            for correlation in CORRELATIONS:
                found = [_mean_of_two(rng, sizes, correlation, S) for _ in range(num)]
                plain, paired = (float(rate) for rate in np.mean(np.array(found) < ALPHA, axis=0))
                rows.append((name, S, correlation, plain, paired, 1 - paired))
                noise = 3 * math.sqrt(0.05 * 0.95 / num)
                law = f"{name}, {S} seeds, correlation {correlation}: .05 +- .01"
                ok = paired <= 0.06 + noise and (S > 1 or paired >= 0.04 - noise)
                bars.append(Bar(law, f"{paired:.4f}", ok))
    columns = ("shared", "S", "correlation", "false positives, separate", "paired", "coverage")
    return Section("The mean over two collections that share queries", columns, rows, bars)


def _mean_of_two(
    rng: np.random.Generator, sizes: Sequence[int], correlation: float, S: int
) -> tuple[float, float]:
    """p of two equal systems, with queries of both collections taken for different ones, and with
    shared queries paired; their differences correlate so on both collections. S of 1: deterministic
    systems."""
    one, other, both = sizes
    keys = [*map(str, range(one)), *map(str, [*range(both), *range(one, one + other - both)])]
    shared = {cell: rng.normal(size=both) for cell in "ab"}
    run = {cell: SEED_SD * rng.normal(size=(S, 1)) * (S > 1) for cell in "ab"}
    matrices = []
    for size in (one, other):
        scores = {}
        for cell in "ab":
            taste_Q = rng.normal(size=size)
            taste_Q[:both] *= math.sqrt(1 - correlation)
            taste_Q[:both] += math.sqrt(correlation) * shared[cell]
            noise_SQ = RESIDUAL * rng.normal(size=(S, size)) * (S > 1)
            scores[cell] = TASTE * taste_Q + run[cell] + noise_SQ
        ids = tuple(map(str, range(size)))
        seeds = dict.fromkeys("ab", tuple(range(S)))
        matrices.append(ScoreMatrix("", ("a", "b"), ids, seeds, scores))
    mean = over_collections(matrices, measure="")
    fixed = ("a", "b") if S == 1 else ()
    plain, paired = (
        scope_test_of(own, ("a", "b"), paired_seeds=False, deterministic=fixed)
        for own in (mean, joined(replace(mean), keys, one + other - both))
    )
    return plain.p_both, paired.p_both


SECTIONS: dict[str, Draw] = {"clusters": clusters, "designs": designs, "shared": shared_queries}


def main(argv: Sequence[str]) -> int:
    """Run the sections and print them; 1 if a bar fails."""
    with patch.object(scopes, "HALVINGS", 25):  # p to 1e-6 is enough for a rate
        return simulate(
            argv,
            SECTIONS,
            title="Error rates where queries are not alone",
            option="simulations",
            default=2000,
            unit="simulated sweeps per cell",
            rate=ALPHA,
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
