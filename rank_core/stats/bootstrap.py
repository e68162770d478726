"""Crossed bootstrap by weights, for statistics that are no difference of means.

Queries and the seeds of every cell are resampled independently (the pigeonhole bootstrap, Owen
2007): the mean of a cell is w_S' Y_SQ w_Q, so a replicate costs two matrix products and no copy of
the data. Relative and average gains, which have no closed form, use it. Tests of a difference do
not, because few seeds make the resampled seed variance too small by (S - 1) / S.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rank_core.errors import BadInput
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.scopes import Floats

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
    stretched: bool = False,
) -> CrossedWeights:
    """Weights for one matrix; reuse them for another measure of the same runs and queries.

    Paired seeds have the same weights in all cells, except cells of one run. `stretched` widens the
    weights of seeds by sqrt(S / (S - 1)), which restores the seed variance that n-from-n resampling
    loses; a weight may then be negative.
    """
    if num_replicates < 1:
        raise BadInput(f"num_replicates >= 1 must hold, got {num_replicates}")
    if paired_seeds and len({tuple(own) for own in matrix.seeds.values() if len(own) > 1}) > 1:
        raise BadInput("paired seeds need the same seeds in every cell")
    weights: dict[str, Floats] = {}
    shared: dict[int, Floats] = {}
    for cell, own in matrix.seeds.items():
        S = len(own)
        if paired_seeds and S in shared:
            weights[cell] = shared[S]
            continue
        weight_BS = _resampled(S, num_replicates, rng)
        if stretched and S > 1:
            weight_BS = 1 / S + (weight_BS - 1 / S) * np.sqrt(S / (S - 1))
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
