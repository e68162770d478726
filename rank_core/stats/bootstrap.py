"""Crossed bootstrap by weights: the gain of a system that the reported queries chose.

Queries and the seeds of every cell are resampled independently (the pigeonhole bootstrap, Owen
2007): the mean of a cell is w_S' Y_SQ w_Q, so a replicate costs two matrix products and no copy of
the data. Tests of a difference do not use it, because few seeds make the resampled seed variance
too small by (S - 1) / S.

The gain of a winner is biased upwards, by its queries and by its seeds: fresh seeds and held-out
queries remove the bias, the estimate here most of it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rank_core.arrays import Floats
from rank_core.errors import BadInput, unknown
from rank_core.stats.matrix import ScoreMatrix

NUM_REPLICATES, _BLOCK = 2000, 100


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
) -> CrossedWeights:
    """Weights for one matrix. Seeds are nested in cells: each cell draws its own."""
    if num_replicates < 1:
        raise BadInput(f"num_replicates >= 1 must hold, got {num_replicates}")
    weights = {
        cell: _resampled(len(score_SQ), num_replicates, rng)
        for cell, score_SQ in matrix.scores.items()
    }
    return CrossedWeights(
        _resampled(next(iter(matrix.scores.values())).shape[1], num_replicates, rng), weights
    )


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
    deterministic: Collection[str] = (),
) -> SelectedGain:
    """The best cell's gain, corrected by repeating the choice (BBC over queries x seeds).

    Every replicate chooses on drawn queries and drawn seeds and measures the choice on the queries
    and seeds that were not drawn (Tsamardinos 2018, who resamples rows only: that keeps the
    bias of the seeds). Replicates that drew every seed of the chosen cell or of the baseline
    are excluded. A deterministic cell has its one run in both.
    """
    if baseline not in matrix.cells:
        raise unknown("baseline", baseline, matrix.cells)
    candidates = [cell for cell in matrix.cells if cell != baseline]
    if not candidates:
        raise BadInput("a selection needs a cell other than the baseline")
    for cell in matrix.cells:
        if len(matrix.scores[cell]) < 2 and cell not in deterministic:
            raise BadInput(f"leaving seeds out needs two seeds of every cell, got one of {cell}")
    gains = []
    for start in range(0, num_replicates, _BLOCK):  # the weights of all of them take gigabytes
        number = min(_BLOCK, num_replicates - start)
        weights = crossed_weights(matrix, rng=rng, num_replicates=number)
        gains.append(_left_out_gains(matrix, candidates, baseline, weights))
    gain_B = np.concatenate(gains)
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
        {
            cell: _left_out(weight_BS) if weight_BS.shape[1] > 1 else weight_BS
            for cell, weight_BS in weights.seeds.items()
        },
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
