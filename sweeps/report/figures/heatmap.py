"""The heat map of window x stride."""

from collections.abc import Mapping
from dataclasses import dataclass

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.patches import Rectangle

from rank_core.stats.compare import Comparison
from sweeps.report.analysis import Analysis
from sweeps.report.factors import GridFactors, factor_text
from sweeps.report.figures.figure import DARK, GREY, PAPER, Shown, draw, new_figure, style
from sweeps.report.grid import Grid, crossed_grids
from sweeps.report.load import Sweep
from sweeps.report.notation import number, short_signed
from sweeps.report.summary import CellSummary

_SOFT = LinearSegmentedColormap.from_list("soft", colormaps["RdBu"]([0.25, 0.5, 0.75]))
"""Blue is better, red is worse; never so dark that black numbers are hard to read."""
_PLACE = 0.62, 0.44  # inches of one cell


@dataclass(frozen=True)
class _Look:
    """The data that every panel needs to draw a cell."""

    sweep: Sweep
    comparisons: Mapping[str, Comparison]
    norm: Normalize


def heat_map(analysis: Analysis, factors: list[GridFactors]) -> Shown | None:
    """The primary measure and its difference to the baseline; None without a crossed grid."""
    sweep, comparisons = analysis.sweep, {pair.system: pair for pair in analysis.primary}
    grids = crossed_grids(sweep, analysis.cells)
    if not grids:
        return None
    largest = _largest(analysis.cells, comparisons)
    look = _Look(sweep, comparisons, Normalize(-largest, largest))
    columns = max(len(grid.strides) for grid in grids)
    rows = [len(grid.windows) for grid in grids]
    with style():
        height = sum(_PLACE[1] * count + 0.75 for count in rows)
        figure = new_figure(0.8 + _PLACE[0] * columns, height)
        panels = figure.subplots(len(grids), 1, squeeze=False, height_ratios=rows)
        for axes, grid in zip(panels[:, 0], grids, strict=True):
            _draw_grid(axes, grid, look)
        drawing = draw(
            figure, name="heat", description=f"heat map: mean {sweep.primary} by window and stride"
        )
    words = [f"Mean {sweep.primary}"]
    if comparisons:
        words = [
            f"Mean {sweep.primary}, below it the difference from {analysis.baseline.cell.label}; "
            "blue: better. Dot: significant; ring: with queries random alone. *: seeds lost or "
            "collapsed."
        ]
    return Shown("Window and stride", drawing, " ".join([*words, factor_text(factors)]).strip())


def _largest(cells: list[CellSummary], comparisons: Mapping[str, Comparison]) -> float:
    """The end of the colour scale, without collapsed seeds, beside which other differences would
    pale."""
    healthy = {system.cell.cell for system in cells if not system.seeds("collapsed")}
    deltas = [abs(pair.delta) for name, pair in comparisons.items() if name in healthy]
    return max(deltas or [abs(pair.delta) for pair in comparisons.values()], default=0.0) or 0.001


def _draw_grid(axes: Axes, grid: Grid, look: _Look) -> None:
    """One panel, stride to the right and window upwards, in tokens."""
    for y, window in enumerate(grid.windows):
        for x, stride in enumerate(grid.strides):
            if (window, stride) in grid.cells:
                _draw_cell(axes, x, y, grid.cells[window, stride], look)
    axes.set_xlim(-0.5, len(grid.strides) - 0.5)
    axes.set_ylim(-0.5, len(grid.windows) - 0.5)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xticks(range(len(grid.strides)), [str(stride) for stride in grid.strides])
    axes.set_yticks(range(len(grid.windows)), [str(window) for window in grid.windows])
    axes.set_xlabel("stride (tokens)")
    axes.set_ylabel("window")
    axes.set_title(grid.title, loc="left", fontsize=10, fontweight="bold")


def _draw_cell(axes: Axes, x: int, y: int, cell: CellSummary, look: _Look) -> None:
    """Mean, difference to the baseline, significance, and a star when seeds are missing."""
    name, alpha = cell.cell.cell, look.sweep.alpha
    pair = look.comparisons.get(name)
    colour = _SOFT(look.norm(pair.delta)) if pair else PAPER
    edge = GREY if name == look.sweep.baseline or not cell.num_used else "none"
    axes.add_patch(
        Rectangle((x - 0.48, y - 0.47), 0.96, 0.94, facecolor=colour, edgecolor=edge, linewidth=1)
    )
    lost = cell.num_used < cell.num_launched or cell.seeds("collapsed")
    mean = number(cell.mean(look.sweep.primary)).removeprefix("0") if cell.num_used else "no score"
    lines = [mean + ("*" if lost and cell.num_used else "")]
    lines += ["baseline"] if name == look.sweep.baseline else []
    lines += [short_signed(pair.delta)] if pair else []
    ink = DARK if pair else GREY
    axes.text(x, y, "\n".join(lines), ha="center", va="center", fontsize=9, color=ink)
    if pair and (pair.significant(alpha) or pair.p_queries_adjusted < alpha):
        face = DARK if pair.significant(alpha) else "none"
        axes.plot(x + 0.4, y + 0.33, "o", ms=3.5, mfc=face, mec=DARK, mew=0.9)
