"""Average ranks of systems over many collections, the only place where ranks are the question.

With eight collections or more one may ask which system tends to come first (Demsar 2006). On
queries the same procedure would throw the sizes of the differences away, so it is not offered.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from rank_core.errors import BadInput
from rank_core.stats.power import check_probability

LEAST_COLLECTIONS = 8
"""Below this many collections the approximations behind the test do not hold."""


@dataclass(frozen=True)
class RankTest:
    """Friedman's test in Iman and Davenport's form, and how far apart two mean ranks must lie."""

    mean_ranks: dict[str, float]  # 1 is best
    num_collections: int
    chi_square: float
    F: float  # infinite where all collections agree
    p: float
    critical_difference: float  # Nemenyi's, for all pairs at once


def rank_test(means: Mapping[str, Sequence[float]], *, alpha: float = 0.05) -> RankTest:
    """`means` are {system: its mean on every collection}, the collections in one order."""
    lengths = {len(values) for values in means.values()}
    if len(means) < 2 or len(lengths) != 1:
        raise BadInput("ranks need two systems or more, each with a mean on every collection")
    mean_KN = np.array(list(means.values()))
    rank_K = stats.rankdata(-mean_KN, axis=0).mean(axis=1)
    ranks = {name: float(rank) for name, rank in zip(means, rank_K, strict=True)}
    return friedman(ranks, num_collections=mean_KN.shape[1], alpha=alpha)


def friedman(
    mean_ranks: Mapping[str, float], *, num_collections: int, alpha: float = 0.05
) -> RankTest:
    """The test of given mean ranks over `num_collections`."""
    check_probability("alpha", alpha)
    N, k = num_collections, len(mean_ranks)
    if N < LEAST_COLLECTIONS:
        raise BadInput(f"ranks need {LEAST_COLLECTIONS} collections or more, got {N}")
    rank_K = np.array(list(mean_ranks.values()))
    chi_square = 12 * N / (k * (k + 1)) * float((rank_K**2).sum() - k * (k + 1) ** 2 / 4)
    rest = N * (k - 1) - chi_square
    F = (N - 1) * chi_square / rest if rest > 1e-9 else math.inf
    q = float(stats.studentized_range.isf(alpha, k, np.inf)) / math.sqrt(2)
    return RankTest(
        mean_ranks=dict(mean_ranks),
        num_collections=N,
        chi_square=chi_square,
        F=F,
        p=float(stats.f.sf(F, k - 1, (k - 1) * (N - 1))),
        critical_difference=q * math.sqrt(k * (k + 1) / (6 * N)),
    )
