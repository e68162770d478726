"""The stability of the ranking of systems when they are trained and measured again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import stats

from rank_core.errors import BadInput
from rank_core.stats.bootstrap import CrossedWeights, replicated_means
from rank_core.stats.matrix import ScoreMatrix


@dataclass(frozen=True)
class RankStability:
    """The ranking by means over seeds and queries, and its agreement with single runs and
    resamples."""

    order: tuple[str, ...]  # cells by mean, best first
    tau: float  # Kendall's tau-b of rankings by one run of each cell with `order`, mean of draws
    tau_low: float  # ends of the middle 95% of the draws
    tau_high: float
    reversals: Mapping[tuple[str, str], float]
    """{(better, worse) neighbours of `order`: share of pairs of their runs in the other order; a
    pair of equal runs counts half}."""
    best: Mapping[str, float]
    """{cell: share of resamples of seeds and queries in which it has the best mean}."""


def rank_stability(
    matrix: ScoreMatrix, weights: CrossedWeights, *, rng: np.random.Generator, draws: int = 1000
) -> RankStability:
    """The stability of the ranking of all cells of a matrix; `weights` resample seeds and queries.
    Raises `BadInput` with fewer than two cells."""
    if len(matrix.cells) < 2:
        raise BadInput(f"a ranking needs two systems, got {len(matrix.cells)}")
    means = {cell: matrix.scores[cell].mean(axis=1) for cell in matrix.cells}
    order = sorted(matrix.cells, key=lambda cell: -means[cell].mean())
    places = -np.arange(len(order))
    drawn_KD = np.stack([rng.choice(means[cell], draws) for cell in order])
    tau_D = np.array([stats.kendalltau(places, drawn_K).statistic for drawn_K in drawn_KD.T])
    tau_D = tau_D[~np.isnan(tau_D)]  # without draws in which all are equal
    low, high = np.quantile(tau_D, [0.025, 0.975]) if len(tau_D) else (np.nan, np.nan)
    replicated_KB = np.stack([replicated_means(matrix, cell, weights) for cell in order])
    first_KB = replicated_KB == replicated_KB.max(axis=0)  # ties share it
    return RankStability(
        order=tuple(order),
        tau=float(tau_D.mean()) if len(tau_D) else float("nan"),
        tau_low=float(low),
        tau_high=float(high),
        reversals={
            (better, worse): reversal(means[better], means[worse])
            for better, worse in pairwise(order)
        },
        best=dict(zip(order, (first_KB / first_KB.sum(axis=0)).mean(axis=1).tolist(), strict=True)),
    )


def reversal(better: Sequence[float], worse: Sequence[float]) -> float:
    """The share of pairs of runs in which the second system is above the first."""
    above = np.subtract.outer(np.asarray(worse), np.asarray(better))
    return float(((above > 0) + 0.5 * (above == 0)).mean())
