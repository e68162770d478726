"""The measure of a system by the place of the evidence: is it worse where the relevant text begins
late?

Queries are put in bins of equal numbers by the position of their relevant text. The band covers the
true means of all bins and systems at once, over new queries and new training runs: each bin has the
standard error of scope `both`, and all of them the level of max-t. The Position Sensitivity Index
(Zeng et al., arXiv 2505.13950) is 1 - the smallest mean of a bin / the largest one. Chance makes it
positive where nothing depends on the position, and a resampled one more so: its interval comes from
those of the ratios of all pairs of bins of all systems (Fieller 1954), at the level of max-t. It
begins at 0 where no two bins differ.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from rank_core.arrays import Floats
from rank_core.errors import BadInput
from rank_core.stats.family import scaled
from rank_core.stats.multiplicity import family_level
from rank_core.stats.scopes import WelchDf, check_probability, seed_variances

MOST_BINS = 5
LEAST_QUERIES = 20
"""Queries of a bin below which a mean says little."""


@dataclass(frozen=True)
class Bin:
    """Queries whose evidence begins at `first` to `last`, both included."""

    first: float
    last: float
    num_queries: int


@dataclass(frozen=True)
class IndexInterval:
    """A Position Sensitivity Index, or the difference of two, with its simultaneous interval."""

    value: float
    low: float
    high: float

    def __sub__(self, other: "IndexInterval") -> "IndexInterval":
        return IndexInterval(self.value - other.value, self.low - other.high, self.high - other.low)


@dataclass(frozen=True)
class Curve:
    """The mean of a system in each bin with the simultaneous band, and its index."""

    means: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    index: IndexInterval


@dataclass(frozen=True)
class PositionCurves:
    """The curves of all systems over the same bins."""

    bins: tuple[Bin, ...]
    curves: Mapping[str, Curve]
    alpha: float  # with which the band errs anywhere, and so do the indexes


def bins_of(position_Q: ArrayLike) -> tuple[tuple[Bin, ...], NDArray[np.int64]]:
    """(the bins, the bin of each query): at most five, with about equal numbers of queries. Queries
    of one position are in one bin. There is none, or one, where too few positions differ."""
    x_Q = np.asarray(position_Q, dtype=np.float64)
    number = min(MOST_BINS, len(x_Q) // LEAST_QUERIES)
    ordered = np.sort(x_Q)
    ends = np.unique([ordered[len(x_Q) * n // number - 1] for n in range(1, number)])
    bin_Q = np.searchsorted(ends, x_Q, side="left")
    kept = [n for n in range(len(ends) + 1) if (bin_Q == n).sum() >= LEAST_QUERIES]
    # The few queries that ties have left to a bin join the one before it.
    place = np.maximum(np.searchsorted(kept, np.arange(len(ends) + 1), side="right") - 1, 0)
    bin_Q = place[bin_Q]
    members = (x_Q[bin_Q == n] for n in range(len(kept)))
    return tuple(Bin(float(x.min()), float(x.max()), len(x)) for x in members), bin_Q


def position_curves(
    scores: Mapping[str, Floats], position_Q: Sequence[float], *, alpha: float = 0.05
) -> PositionCurves | None:
    """The curves of systems, {name: (S, Q)} on the same queries, whose S may differ; None where the
    positions make fewer than two bins. A single run has no variance between runs: its band is for
    new queries alone. Raises `BadInput` for another number of positions, and negative scores."""
    check_probability("alpha", alpha)
    bins, bin_Q = bins_of(position_Q)
    for name, score_SQ in scores.items():
        if np.shape(score_SQ)[1] != len(bin_Q):
            raise BadInput(
                f"{name} needs a column for each of the {len(bin_Q)} positions, got "
                f"{np.shape(score_SQ)[1]}"
            )
        if np.min(score_SQ, initial=0) < 0:
            raise BadInput(f"{name} has negative scores, of which there is no sensitivity index")
    if len(bins) < 2 or not scores:
        return None
    parts = {
        name: _Parts.of([score_SQ[:, bin_Q == number] for number in range(len(bins))])
        for name, score_SQ in scores.items()
    }
    covariance = _covariance(scores, bin_Q, parts)
    pairs = [*combinations(range(len(bins)), 2)]
    # Of each bin of each system, and of each pair of its bins: (systems, bins), (systems, pairs).
    of_bin = np.eye(len(bins))
    of_pair = np.array([of_bin[i] - of_bin[j] for i, j in pairs])
    level, pair_level = (_level(alpha, covariance, rows) for rows in (of_bin, of_pair))
    most = 1.0 if max(map(np.max, scores.values())) <= 1 else math.inf
    curves = {
        name: _curve(part, part.half_widths(level), _index_interval(part, pairs, pair_level), most)
        for name, part in parts.items()
    }
    return PositionCurves(bins, curves, alpha)


_Square = tuple[Any, Any]
"""(x, f): a part x of a variance, maybe negative, of a mean square with f degrees of freedom."""


@dataclass(frozen=True)
class _Parts:
    """The mean of a system in each bin, and the variances of these: of the queries of a bin, of the
    runs' level, which all bins share, and of the runs' shape, which each bin has of its own."""

    mean_B: Floats
    queries_B: Floats
    df_B: Floats  # of the queries
    level: float
    shape: float
    level_squares: tuple[_Square, ...]  # that sum to `level`
    shape_squares: tuple[_Square, ...]

    @classmethod
    def of(cls, blocks: Sequence[Floats]) -> "_Parts":
        """From the scores of each bin, (S, its queries)."""
        B, runs = len(blocks), float(len(blocks[0]) - 1)
        mean_B = np.array([block.mean() for block in blocks])
        spread_B = np.array([block.mean(axis=0).var(ddof=1) for block in blocks])
        df_B = np.array([block.shape[1] - 1.0 for block in blocks])
        # A bin in which all queries fail has no spread and is not certain: a spread is at least the
        # mean of its own and that of all bins.
        pooled_B = (spread_B + spread_B @ df_B / df_B.sum()) / 2
        queries_B = np.maximum(spread_B, pooled_B) / (df_B + 1)
        if not runs:
            return cls(mean_B, queries_B, df_B, 0.0, 0.0, (), ())
        mean_SB = np.array([block.mean(axis=1) for block in blocks]).T
        level_S = mean_SB.mean(axis=1)
        shape_SB = mean_SB - level_S[:, None] - mean_B + mean_B.mean()
        V_level = float(level_S.var(ddof=1)) / (runs + 1)
        V_shape = float((shape_SB**2).sum()) / (runs * (B - 1)) / (runs + 1)
        # The shape contains the residual, which the spread of the queries has counted, and the
        # level a share of the shape.
        V_e = float(np.mean([seed_variances(block)[1] for block in blocks]))
        of_level, of_shape = max(V_level - V_shape / B, 0.0), max(V_shape - V_e, 0.0)
        shape_df = runs * (B - 1)
        return cls(
            mean_B,
            queries_B,
            df_B,
            of_level,
            of_shape,
            ((V_level, runs), (-V_shape / B, shape_df)) if of_level else (),
            ((V_shape, shape_df), (-V_e, runs * df_B.sum())) if of_shape else (),
        )

    @property
    def variance(self) -> Floats:
        """Of the mean of each bin."""
        return self.queries_B + self.level + self.shape

    def half_widths(self, level: float) -> Floats:
        """Of the intervals of all means."""
        squares = [(self.queries_B, self.df_B), *self.level_squares, *self.shape_squares]
        df = _degrees(squares, self.variance)
        return np.nan_to_num(_critical(df, level) * np.sqrt(self.variance))

    def critical(self, i: int, j: int, level: float) -> float:
        """The critical value of the difference of two bins, in which the runs' level cancels."""
        squares = [(self.queries_B[one], self.df_B[one]) for one in (i, j)]
        squares += [(2 * x, f) for x, f in self.shape_squares]
        total = self.queries_B[i] + self.queries_B[j] + 2 * self.shape
        return float(np.nan_to_num(_critical(_degrees(squares, total), level)))


def _degrees(squares: Sequence[_Square], total: Any) -> WelchDf:
    fewest = reduce(np.minimum, (f for _, f in squares))
    return WelchDf.of(squares, total, fewest)


def _critical(df: WelchDf, level: float) -> Floats:
    with np.errstate(invalid="ignore"):  # without any variance
        return np.asarray(stats.t.ppf(1 - level / 2, df.at_level(level)), dtype=np.float64)


def _covariance(
    scores: Mapping[str, Floats], bin_Q: NDArray[np.int64], parts: Mapping[str, _Parts]
) -> Floats:
    """The covariance of the means of all bins and systems, (B, K, B, K). Systems share the queries
    of a bin; the runs that the bins of a system share count as independent, which hardly ever
    narrows an interval."""
    K, B = len(scores), int(bin_Q.max()) + 1
    covariance = np.zeros((B, K, B, K))
    for number in range(B):
        in_bin = bin_Q == number
        mean_KQ = np.array([score_SQ[:, in_bin].mean(axis=0) for score_SQ in scores.values()])
        shared = np.atleast_2d(np.cov(mean_KQ)) / in_bin.sum()
        np.fill_diagonal(shared, [one.variance[number] for one in parts.values()])
        covariance[number, :, number, :] = shared
    return covariance


def _level(alpha: float, covariance: Floats, rows_RB: Floats) -> float:
    """The level of each of the combinations of bins, for every system, at which all together err
    with probability alpha."""
    combined = np.einsum("rb,bkcl,sc->rksl", rows_RB, covariance, rows_RB)
    size = combined.shape[0] * combined.shape[1]
    flat = combined.reshape(size, size)
    return family_level(alpha, scaled(flat, np.sqrt(np.diagonal(flat)), np.ones(size)))


def _index_interval(parts: _Parts, pairs: Sequence[tuple[int, int]], level: float) -> IndexInterval:
    ratios = []
    for i, j in pairs:
        t = parts.critical(i, j, level)
        ratios += [_ratio_interval(parts, i, j, t), _ratio_interval(parts, j, i, t)]
    low, high = (min(ends) for ends in zip(*ratios, strict=True))
    return IndexInterval(
        _index(parts.mean_B.min(), parts.mean_B.max()), max(1 - high, 0.0), max(1 - low, 0.0)
    )


def _ratio_interval(parts: _Parts, i: int, j: int, t: float) -> tuple[float, float]:
    """Fieller's interval of the ratio of the means of two bins, which is not negative: the ratios r
    with |m_i - r m_j| <= t sqrt(V_i + r^2 V_j - 2 r C), where C is the variance of the runs' level.
    No upper end where the second mean may be 0."""
    (mean_i, mean_j), (V_i, V_j) = parts.mean_B[[i, j]], parts.variance[[i, j]]
    a, c = mean_j**2 - t**2 * V_j, mean_i**2 - t**2 * V_i
    if a <= 0:
        return 0.0, math.inf
    middle = mean_i * mean_j - t**2 * parts.level
    root = math.sqrt(max(middle**2 - a * c, 0.0))
    return float(max((middle - root) / a, 0.0)), float((middle + root) / a)


def _curve(parts: _Parts, half_B: Floats, index: IndexInterval, most: float) -> Curve:
    low_B, high_B = np.maximum(parts.mean_B - half_B, 0), np.minimum(parts.mean_B + half_B, most)
    return Curve(tuple(parts.mean_B.tolist()), tuple(low_B.tolist()), tuple(high_B.tolist()), index)


def _index(smallest: float, largest: float) -> float:
    return float(1 - smallest / largest) if largest > 0 else 0.0
