"""Selection bias: the gain of the best of many configurations, and its correction.

The winner's gain is biased upwards, by its queries and by its seeds. Fresh seeds and held-out
queries remove the bias; without them the estimate here removes most of it.
"""

from dataclasses import dataclass

import numpy as np

from rank_core.errors import BadInput, unknown
from rank_core.stats.bootstrap import (
    NUM_REPLICATES,
    CrossedWeights,
    crossed_weights,
    replicated_means,
)
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.scopes import Floats


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
