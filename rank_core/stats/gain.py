"""The relative gain over a baseline with an interval that knows of few seeds.

A gain is a ratio of means and has no closed form. Its spread comes from the crossed bootstrap with
stretched seed weights; its tails come from Student's t with the degrees of freedom of the
difference, because three resampled seeds have no tails of their own.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from scipy import stats

from rank_core.seeding import generator
from rank_core.stats.bootstrap import (
    NUM_REPLICATES,
    CrossedWeights,
    crossed_weights,
    replicated_means,
)
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.power import check_probability

_DIGITS = 12
"""Significant digits kept: the last ones of a matrix product depend on the number of threads."""


@dataclass(frozen=True)
class GainInterval:
    """mean of the system / mean of the baseline - 1, and its two-sided interval."""

    gain: float
    low: float
    high: float


def gain_weights(matrix: ScoreMatrix, *, paired_seeds: bool = False) -> CrossedWeights:
    """The replicates all gains of a sweep share, the same in every process."""
    return crossed_weights(
        matrix,
        rng=generator(0, "relative gains"),
        num_replicates=NUM_REPLICATES,
        paired_seeds=paired_seeds,
        stretched=True,
    )


def gain_intervals(
    matrix: ScoreMatrix,
    *,
    baseline: str,
    df: Mapping[str, float],
    weights: CrossedWeights,
    level: float = 0.95,
) -> dict[str, GainInterval]:
    """{system: gain over `baseline`} for every system in `df`, its degrees of freedom in `both`.

    Left out is a system whose df is NaN (one seed on a side); without a baseline above 0 no gain
    is defined and the result is empty.
    """
    check_probability("level", level)
    base = float(matrix.scores[baseline].mean())
    if base <= 0:
        return {}
    base_B = replicated_means(matrix, baseline, weights)
    found = {}
    for system, own_df in df.items():
        if math.isnan(own_df):
            continue
        gain = float(matrix.scores[system].mean()) / base - 1
        spread = float((replicated_means(matrix, system, weights) / base_B - 1).std(ddof=1))
        half = float(stats.t.ppf((1 + level) / 2, own_df)) * spread
        found[system] = GainInterval(gain, _kept(gain - half), _kept(gain + half))
    return found


def _kept(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
