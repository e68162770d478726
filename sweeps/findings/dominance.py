"""The front of a measure and costs: which systems another one beats that costs no more.

A system is dominated where one of at most its costs has a higher mean, and *significantly*
dominated where that difference is significant. All pairs of which one system costs no more than the
other are one family, with the paired test and the correction of the table: with probability
1 - alpha no system is labelled that no such system truly beats. Costs are taken as they are.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from rank_core.stats.compare import CellComparison, compare_pairs
from rank_core.stats.matrix import ScoreMatrix
from sweeps.systems.costs import named_costs
from sweeps.systems.load import Sweep


@dataclass(frozen=True)
class Gap:
    """The difference of a system from another one, with its interval in the family of the front."""

    other: str
    delta: float
    low: float
    high: float
    p: float  # corrected
    significant: bool


@dataclass(frozen=True)
class Point:
    """A system by its measure and costs. `dominated` is its gap to the system that beats it most
    clearly, where that is significant; on the front `step` is that to the best one that costs no
    more."""

    system: str
    mean: float
    costs: Mapping[str, float]
    on_front: bool  # by the means alone
    dominated: Gap | None
    step: Gap | None


def front_of(
    sweep: Sweep, matrix: ScoreMatrix, fixed: Collection[str], *, paired: bool
) -> tuple[Point, ...]:
    """The systems of a matrix with known costs, the cheapest first; `fixed` have a single possible
    run. Empty below two."""
    known = named_costs(sweep)
    costs = {
        cell: {cost: known[cost].get(cell, math.inf) for cost in sweep.about.objectives[1:]}
        for cell in matrix.cells
    }
    cells = [cell for cell in matrix.cells if max(costs[cell].values()) < math.inf]
    return points_of(
        matrix.only(cells),
        costs,
        correction=sweep.tests.correction,
        alpha=sweep.tests.alpha,
        paired_seeds=paired,
        deterministic=[cell for cell in fixed if cell in cells],
    )


def points_of(
    matrix: ScoreMatrix, costs: Mapping[str, Mapping[str, float]], *, alpha: float, **tests: Any
) -> tuple[Point, ...]:
    """The same for any costs, {system: {cost: value}}; `tests` as in `compare_pairs`."""
    # Systems of one cost stay in the order of the matrix: no value decides which stands first.
    cells = sorted(matrix.cells, key=lambda cell: [*costs[cell].values()])
    pairs = [pair for pair in combinations(cells, 2) if no_more(costs, *pair)]
    found = compare_pairs(matrix, pairs, alpha=alpha, **tests)
    if not found:
        return ()
    gaps = {(pair.system, pair.baseline): _gap(pair, alpha) for pair in found}
    gaps |= {(gap.other, system): _turned(gap, system) for (system, _), gap in gaps.items()}
    means = {cell: float(matrix.scores[cell].mean()) for cell in cells}
    return tuple(_point(cell, means, costs, gaps) for cell in cells)


def no_more(costs: Mapping[str, Mapping[str, float]], one: str, other: str) -> bool:
    """True if `one` costs no more than the other."""
    return all(value <= costs[other][cost] for cost, value in costs[one].items())


def _point(
    cell: str,
    means: Mapping[str, float],
    costs: Mapping[str, Mapping[str, float]],
    gaps: Mapping[tuple[str, str], Gap],
) -> Point:
    rivals = [other for other in means if other != cell and no_more(costs, other, cell)]
    beats = [other for other in rivals if means[other] > means[cell]]
    clear = [gap for other in beats if (gap := gaps[cell, other]).significant]
    # One of equal means and equal costs is enough on the front: the first.
    same = [o for o in rivals if means[o] == means[cell] and costs[o] != costs[cell]]
    on_front = not beats and not same
    best = max(rivals, key=lambda other: means[other], default=None) if on_front else None
    return Point(
        cell,
        means[cell],
        costs[cell],
        on_front,
        min(clear, key=lambda gap: (gap.p, gap.delta), default=None),
        gaps[cell, best] if best else None,
    )


def _gap(pair: CellComparison, alpha: float) -> Gap:
    own = pair.in_family
    ends = own.ci_low, own.ci_high
    return Gap(pair.baseline, pair.delta, *ends, pair.p_both_adjusted, pair.significant(alpha))


def _turned(gap: Gap, system: str) -> Gap:
    return Gap(system, -gap.delta, -gap.high, -gap.low, gap.p, gap.significant)


def dominated(front: Sequence[Point]) -> list[Point]:
    """The significantly dominated ones."""
    return [point for point in front if point.dominated]
