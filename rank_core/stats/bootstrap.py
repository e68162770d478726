"""Crossed bootstrap by weights, for statistics that are no difference of means: relative gains, the
gain of the best of many configurations, the stability of a ranking.

Queries and the seeds of every cell are resampled independently (the pigeonhole bootstrap, Owen
2007): the mean of a cell is w_S' Y_SQ w_Q, so a replicate costs two matrix products and no copy of
the data. Tests of a difference do not use it, because few seeds make the resampled seed variance
too small by (S - 1) / S.

A gain is a ratio of means and has no closed form. Its standard error is from stretched seed
weights; its quantiles are Student's t with the degrees of freedom of the difference, because three
resampled seeds have no tails. The gain of a winner is biased upwards, by its queries and by its
seeds: fresh seeds and held-out queries remove the bias, the estimate here most of it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rank_core.errors import BadInput, unknown
from rank_core.stats.compare import Slot, baseline_of
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.scopes import Floats, check_probability

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


_DIGITS = 12
"""Significant digits kept: the last ones of a matrix product depend on the number of threads."""


@dataclass(frozen=True)
class GainInterval:
    """mean of the system / mean of the baseline - 1, alone or averaged over columns, and its
    two-sided interval; NaN limits for one seed or too few hits."""

    gain: float
    low: float
    high: float


def average_gains(
    columns: Sequence[ScoreMatrix],
    *,
    baseline: Slot,
    df: Mapping[str, float],
    weights: Sequence[CrossedWeights],
    level: float = 0.95,
) -> dict[str, GainInterval]:
    """{system: unweighted mean over `columns` of its relative gains}: "avg. gain over FirstP".

    A column is one measure on one collection. Columns measured on the same runs must share their
    seed weights, those on the same queries their query weights, too: pass the same ones. `df` is
    the smallest of the columns, which is conservative. Where it is NaN (one seed), or the baseline
    of a replicate not above 0, the gain has no interval. A system whose baseline is not above 0 is
    excluded.
    """
    check_probability("level", level)
    if not columns or len(columns) != len(weights):
        raise BadInput(
            "every column needs its weights, and there must be one, "
            f"got {len(columns)} columns and {len(weights)} weights"
        )
    bases: dict[str, list[Floats]] = {}
    gains: dict[str, GainInterval] = {}
    for system, own_df in df.items():
        name = _base_of(columns, system, baseline)
        if name is None:
            continue
        gain = float(
            np.mean([_mean(column, system) / _mean(column, name) - 1 for column in columns])
        )
        if math.isnan(own_df):
            gains[system] = GainInterval(gain, math.nan, math.nan)
            continue
        if name not in bases:
            bases[name] = [replicated_means(*pair) for pair in _each(columns, name, weights)]
        if any((base_B <= 0).any() for base_B in bases[name]):  # such as one that drew only zeros
            gains[system] = GainInterval(gain, math.nan, math.nan)
            continue
        gains_CB = [
            replicated_means(*pair) / base_B - 1
            for pair, base_B in zip(_each(columns, system, weights), bases[name], strict=True)
        ]
        spread = float(np.mean(gains_CB, axis=0).std(ddof=1))
        half = float(stats.t.ppf((1 + level) / 2, own_df)) * spread
        gains[system] = GainInterval(gain, _kept(gain - half), _kept(gain + half))
    return gains


def _base_of(columns: Sequence[ScoreMatrix], system: str, baseline: Slot) -> str | None:
    """The baseline of a system, if it has one that is above 0 in every column."""
    name = baseline_of(system, baseline)
    if name is None:
        return None
    for column in columns:
        for cell in (system, name):
            if cell not in column.cells:
                raise unknown("cell", cell, column.cells)
    return name if all(_mean(column, name) > 0 for column in columns) else None


def _each(
    columns: Sequence[ScoreMatrix], cell: str, weights: Sequence[CrossedWeights]
) -> list[tuple[ScoreMatrix, str, CrossedWeights]]:
    return [(column, cell, own) for column, own in zip(columns, weights, strict=True)]


def _mean(matrix: ScoreMatrix, cell: str) -> float:
    return float(matrix.scores[cell].mean())


def _kept(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


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
