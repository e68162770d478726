"""The factors of a grid before its cells: does the window matter, does the stride?"""

import math
from dataclasses import dataclass

from rank_core.stats.factors import FactorTest, factor_tests
from sweeps.report.analysis import Analysis, without_collapsed
from sweeps.report.grid import crossed_grids
from sweeps.report.notation import relation


@dataclass(frozen=True)
class GridFactors:
    """The tests of one grid on the primary measure."""

    grid: str
    num_cells: int
    without_collapsed: bool
    tests: list[FactorTest]


def grid_factors(analysis: Analysis) -> list[GridFactors]:
    """Every crossed grid; cells without two seeds are excluded. Where seeds collapsed, a second
    line of tests follows without them."""
    all_seeds = analysis.matrices.get(analysis.sweep.primary)
    factors = []
    for grid in crossed_grids(analysis.sweep, analysis.cells):
        for matrix, healthy in ((all_seeds, False), (without_collapsed(analysis), True)):
            levels = {
                system.cell.cell: {"window": window, "stride": stride}
                for (window, stride), system in grid.cells.items()
                if matrix and len(matrix.seeds.get(system.cell.cell, ())) > 1
            }
            counts = [
                len({cell[factor] for cell in levels.values()}) for factor in ("window", "stride")
            ]
            if matrix is not None and min(counts) > 1:
                tests = factor_tests(matrix, levels=levels)
                factors.append(GridFactors(grid.title, len(levels), healthy, tests))
    return factors


def factor_text(factors: list[GridFactors]) -> str:
    """A sentence per grid: p of every factor that the grid can separate from the others, then p of
    any difference at all."""
    several = len({grid.grid for grid in factors}) > 1
    sentences = []
    for grid in factors:
        tests = ", ".join(
            f"{test.factor} p {relation(test.p)}" for test in grid.tests if not math.isnan(test.p)
        )
        parts = [grid.grid] * several + ["without collapsed seeds"] * grid.without_collapsed
        head = ", ".join(parts) or "factors"
        sentences.append(f"{head[0].upper()}{head[1:]}: {tests}.")
    return " ".join(sentences)
