"""The factors of a grid before its cells: does the window matter, does the stride?"""

import math
from dataclasses import dataclass

from rank_core.stats.factors import ANY, INTERACTION, FactorTest, factor_tests
from sweeps.report.analysis import Analysis, without_collapsed
from sweeps.report.grid import grids_of
from sweeps.report.notation import relation


@dataclass(frozen=True)
class GridFactors:
    """The tests of one grid on the primary measure."""

    grid: str
    num_cells: int
    without_collapsed: bool
    tests: list[FactorTest]


def grid_factors(analysis: Analysis) -> list[GridFactors]:
    """Every grid with two windows and two strides; cells without two seeds are excluded.

    Where seeds collapsed, a second line of tests follows without them.
    """
    whole = analysis.matrices.get(analysis.sweep.primary)
    found = []
    for grid in grids_of(analysis.sweep, analysis.cells):
        for matrix, healthy in ((whole, False), (without_collapsed(analysis), True)):
            levels = {
                one.cell.cell: {"window": window, "stride": stride}
                for (window, stride), one in grid.cells.items()
                if matrix and len(matrix.seeds.get(one.cell.cell, ())) > 1
            }
            counts = [
                len({cell[factor] for cell in levels.values()}) for factor in ("window", "stride")
            ]
            if matrix is not None and min(counts) > 1:
                tests = factor_tests(matrix, levels=levels)
                found.append(GridFactors(grid.title, len(levels), healthy, tests))
    return found


def factor_sentences(analysis: Analysis, found: list[GridFactors]) -> list[str]:
    """A paragraph per grid: first whether anything differs, then each factor."""
    alpha = analysis.sweep.alpha
    several = len({grid.grid for grid in found}) > 1
    paragraphs = []
    for grid in found:
        sentences = [_sentence(test, grid, alpha) for test in _in_reading_order(grid.tests)]
        head = ", ".join(
            part
            for part in (
                grid.grid if several else "",
                "without collapsed seeds" if grid.without_collapsed else "",
            )
            if part
        )
        head = f"{head[0].upper()}{head[1:]}: " if head else ""
        paragraphs.append(head + " ".join(sentences))
    return paragraphs


def _in_reading_order(tests: list[FactorTest]) -> list[FactorTest]:
    """First whether anything differs at all. Of two factors that move together, one line."""
    overall = [test for test in tests if test.factor == ANY]
    single = [test for test in tests if test.factor not in (ANY, INTERACTION)]
    if all(test.rank == 0 for test in single):
        return overall + single[:1]
    return overall + [test for test in tests if test.factor != ANY]


def _sentence(test: FactorTest, grid: GridFactors, alpha: float) -> str:
    name = test.factor
    if test.rank == 0:
        if name == INTERACTION:
            return "Interaction: this grid has no place left to tell it from the two factors."
        return "Window and stride change together in this grid: their effects cannot be told apart."
    if math.isnan(test.p):
        return f"{name.capitalize()}: not defined."
    p = f"p {relation(test.p)}"
    if not math.isnan(test.statistic):
        p = f"F({test.df:.1f}, {test.df_error:.1f}) = {test.statistic:.2f}, {p}"
    found = test.p < alpha
    if name == ANY:
        words = "differ" if found else "are not significantly different"
        return f"Taken together, the {grid.num_cells} cells of the grid {words} ({p})."
    if name == INTERACTION:
        words = (
            "the effect of the stride depends on the window: read the cells, not the factors"
            if found
            else "no sign that the effect of the stride depends on the window"
        )
        return f"Interaction: {words} ({p})."
    words = "matters" if found else "no effect is shown"
    return f"{name.capitalize()}: {words} ({p})."
