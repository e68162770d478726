"""The relative gain over a baseline with an interval that is valid for few seeds.

A gain is a ratio of means and has no closed form. Its standard error is from the crossed bootstrap
with stretched seed weights; its quantiles are Student's t with the degrees of freedom of the
difference, because three resampled seeds have no tails.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from rank_core.errors import BadInput, unknown
from rank_core.seeding import generator
from rank_core.stats.baselines import Slot, baseline_of
from rank_core.stats.bootstrap import (
    NUM_REPLICATES,
    CrossedWeights,
    crossed_weights,
    replicated_means,
)
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.scopes import Floats, check_probability

_DIGITS = 12
"""Significant digits kept: the last ones of a matrix product depend on the number of threads."""


@dataclass(frozen=True)
class GainInterval:
    """mean of the system / mean of the baseline - 1, alone or averaged over columns, and its
    two-sided interval; NaN limits for one seed or too few hits."""

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
    baseline: Slot,
    df: Mapping[str, float],
    weights: CrossedWeights,
    level: float = 0.95,
) -> dict[str, GainInterval]:
    """{system: gain over its baseline} for every system in `df`, its degrees of freedom in `both`.
    Systems whose df is NaN (one seed on a side) or whose baseline is not above 0 are excluded."""
    gains = average_gains([matrix], baseline=baseline, df=df, weights=[weights], level=level)
    return {system: gain for system, gain in gains.items() if not math.isnan(gain.low)}


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
