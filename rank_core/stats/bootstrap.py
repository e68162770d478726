"""Crossed bootstrap by weights, for statistics that are not differences of means: the gain of the
best of many configurations, the stability of a ranking.

Queries and the seeds of every cell are resampled independently (the pigeonhole bootstrap, Owen
2007): the mean of a cell is w_S' Y_SQ w_Q, so a replicate costs two matrix products and no copy of
the data. Tests of a difference do not use it, because few seeds make the resampled seed variance
too small by (S - 1) / S.

The gain of a winner is biased upwards, by its queries and by its seeds: fresh seeds and held-out
queries remove the bias, the estimate here most of it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rank_core.arrays import Floats
from rank_core.errors import BadInput, unknown
from rank_core.stats.matrix import ScoreMatrix

NUM_REPLICATES = 2000


@dataclass(frozen=True)
class CrossedWeights:
    """Weights of B replicates, rows sum to 1: one for the queries, one per cell for its seeds."""

    queries_BQ: Floats
    seeds: Mapping[str, Floats]  # {cell: (B, S)}


def crossed_weights(
    matrix: ScoreMatrix,
    *,
    rng: np.random.Generator,
    num_replicates: int = NUM_REPLICATES,
    paired_seeds: bool = False,
) -> CrossedWeights:
    """Weights for one matrix; reuse them for another measure of the same runs and queries.

    Paired seeds have the same weights in all cells, except cells of one run.
    """
    if num_replicates < 1:
        raise BadInput(f"num_replicates >= 1 must hold, got {num_replicates}")
    if paired_seeds and len({tuple(own) for own in matrix.seeds.values() if len(own) > 1}) > 1:
        raise BadInput("paired seeds need the same seeds in every cell")
    # Seeds are nested in cells: each cell draws its own, unless the sweep pairs them.
    weights: dict[str, Floats] = {}
    shared: dict[int, Floats] = {}
    for cell, own in matrix.seeds.items():
        S = len(own)
        if paired_seeds and S in shared:
            weights[cell] = shared[S]
            continue
        weight_BS = _resampled(S, num_replicates, rng)
        weights[cell] = shared[S] = weight_BS
    return CrossedWeights(_resampled(len(matrix.query_ids), num_replicates, rng), weights)


def replicated_means(matrix: ScoreMatrix, cell: str, weights: CrossedWeights) -> Floats:
    """The mean of `cell` in every replicate, (B,)."""
    mean_BS = weights.queries_BQ @ matrix.scores[cell].T
    return (mean_BS * weights.seeds[cell]).sum(axis=1)


def _resampled(n: int, num_replicates: int, rng: np.random.Generator) -> Floats:
    """The share of n draws that each of n takes, (B, n)."""
    counts_BN: NDArray[np.int64] = rng.multinomial(n, np.full(n, 1 / n), size=num_replicates)
    return counts_BN / n


@dataclass(frozen=True)
class SelectedGain:
    """The gain of the best cell over the baseline, naive and with the selection bias removed."""

    winner: str
    naive: float
    corrected: float
    luck: float  # naive - corrected
    num_candidates: int
    num_replicates: int  # with queries and seeds that were not drawn, of winner and baseline


def selected_gain(
    matrix: ScoreMatrix,
    *,
    baseline: str,
    rng: np.random.Generator,
    num_replicates: int = NUM_REPLICATES,
) -> SelectedGain:
    """The best cell's gain, corrected by repeating the choice (BBC over queries x seeds).

    Every replicate chooses on drawn queries and drawn seeds and measures the choice on the queries
    and seeds that were not drawn (Tsamardinos 2018, who resamples rows only: that keeps the
    bias of the seeds). Replicates that drew every seed of the chosen cell or of the baseline
    are excluded.
    """
    if baseline not in matrix.cells:
        raise unknown("baseline", baseline, matrix.cells)
    candidates = [cell for cell in matrix.cells if cell != baseline]
    if not candidates:
        raise BadInput("a selection needs a cell other than the baseline")
    for cell in matrix.cells:
        if len(matrix.scores[cell]) < 2:
            raise BadInput(f"leaving seeds out needs two seeds of every cell, got one of {cell}")
    weights = crossed_weights(matrix, rng=rng, num_replicates=num_replicates)
    gain_B = _left_out_gains(matrix, candidates, baseline, weights)
    # NaN: nothing was left out to measure on.
    used_B = ~np.isnan(gain_B)
    if not used_B.any():
        raise BadInput(f"no replicate of {num_replicates} left a seed out; draw more of them")
    means = {cell: float(matrix.scores[cell].mean()) for cell in matrix.cells}
    winner = max(candidates, key=lambda cell: means[cell])
    naive = means[winner] - means[baseline]
    corrected = float(gain_B[used_B].mean())
    return SelectedGain(
        winner=winner,
        naive=naive,
        corrected=corrected,
        luck=naive - corrected,
        num_candidates=len(candidates),
        num_replicates=int(used_B.sum()),
    )


def _left_out_gains(
    matrix: ScoreMatrix, candidates: list[str], baseline: str, weights: CrossedWeights
) -> Floats:
    """(B,) the chosen candidate's gain on the queries and seeds not drawn; NaN without any."""
    left_out = CrossedWeights(
        _left_out(weights.queries_BQ),
        {cell: _left_out(weight_BS) for cell, weight_BS in weights.seeds.items()},
    )

    # Chosen on what was drawn and measured on what was not, so that the luck of the choice is in
    # the first and not in the second.
    drawn_BK = np.stack([replicated_means(matrix, cell, weights) for cell in candidates], axis=1)
    tested_BK = np.stack([replicated_means(matrix, cell, left_out) for cell in candidates], axis=1)
    chosen_B1 = drawn_BK.argmax(axis=1, keepdims=True)
    tested_B = np.take_along_axis(tested_BK, chosen_B1, axis=1)[:, 0]
    return tested_B - replicated_means(matrix, baseline, left_out)


def _left_out(weight_BN: Floats) -> Floats:
    """Equal weights on what a replicate did not draw; NaN if it drew everything."""
    absent_BN = (weight_BN == 0).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return absent_BN / absent_BN.sum(axis=1, keepdims=True)


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
    if math.prod(len(own) for own in means.values()) <= draws:  # every choice of a run
        drawn_KD = np.stack(np.meshgrid(*(means[cell] for cell in order))).reshape(len(order), -1)
    else:
        drawn_KD = np.stack([rng.choice(means[cell], draws) for cell in order])
    # Of few runs, most draws are alike.
    distinct_KU, draw_D = np.unique(drawn_KD, axis=1, return_inverse=True)
    tau_U = np.array([stats.kendalltau(places, drawn_K).statistic for drawn_K in distinct_KU.T])
    tau_D = tau_U[draw_D.ravel()]
    tau_D = tau_D[~np.isnan(tau_D)]  # without draws in which all are equal
    low, high = (
        np.quantile(tau_D, [0.025, 0.975], method="inverted_cdf")
        if len(tau_D)
        else (np.nan, np.nan)
    )
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
