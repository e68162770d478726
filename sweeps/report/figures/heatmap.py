"""The heat map of window x stride."""

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.patches import Rectangle

from sweeps.report.analysis import Analysis
from sweeps.report.factors import GridFactors, factor_text
from sweeps.report.figures.figure import DARK, GREY, PAPER, Shown, draw, new_figure, style
from sweeps.report.grid import crossed_grids
from sweeps.report.notation import number, short_signed
from sweeps.report.summary import CellSummary

_SOFT = LinearSegmentedColormap.from_list("soft", colormaps["RdBu"]([0.25, 0.5, 0.75]))
"""Blue is better, red is worse; never so dark that black numbers are hard to read."""
_PLACE = 0.62, 0.44  # inches of one cell


def heat_map(analysis: Analysis, factors: list[GridFactors]) -> Shown | None:
    """The primary measure and its difference to the baseline, a panel for each grid; None without a
    crossed grid."""
    grids = crossed_grids(analysis.sweep, analysis.cells)
    if not grids:
        return None
    primary, norm = analysis.sweep.primary, _norm(analysis)
    columns = max(len(grid.strides) for grid in grids)
    rows = [len(grid.windows) for grid in grids]
    with style():
        height = sum(_PLACE[1] * count + 0.75 for count in rows)
        figure = new_figure(0.8 + _PLACE[0] * columns, height)
        panels = figure.subplots(len(grids), 1, squeeze=False, height_ratios=rows)
        for axes, grid in zip(panels[:, 0], grids, strict=True):
            for (window, stride), cell in grid.cells.items():
                place = grid.strides.index(stride), grid.windows.index(window)
                _draw_cell(axes, *place, cell, analysis, norm)
            axes.set_xlim(-0.5, len(grid.strides) - 0.5)
            axes.set_ylim(-0.5, len(grid.windows) - 0.5)
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
            axes.set_xticks(range(len(grid.strides)), [str(stride) for stride in grid.strides])
            axes.set_yticks(range(len(grid.windows)), [str(window) for window in grid.windows])
            axes.set_xlabel("stride (tokens)")
            axes.set_ylabel("window")
            axes.set_title(grid.title, loc="left", fontsize=10, fontweight="bold")
        description = f"heat map: mean {primary} by window and stride"
        drawing = draw(figure, name="heat", description=description)
    words = f"Mean {primary}"
    if analysis.primary:
        words += (
            f", below it the difference from {analysis.baseline.cell.label}; blue: better. Dot: "
            "significant; ring: with queries random alone. *: seeds lost or collapsed."
        )
    return Shown("Window and stride", drawing, f"{words} {factor_text(factors)}".strip())


def _norm(analysis: Analysis) -> Normalize:
    """The colour scale, without collapsed seeds, beside which other differences would pale."""
    healthy = {system.cell.cell for system in analysis.cells if not system.seeds("collapsed")}
    deltas = [abs(pair.delta) for pair in analysis.primary if pair.system in healthy]
    every = [abs(pair.delta) for pair in analysis.primary]
    largest = max(deltas or every, default=0.0) or 0.001
    return Normalize(-largest, largest)


def _draw_cell(
    axes: Axes, x: int, y: int, cell: CellSummary, analysis: Analysis, norm: Normalize
) -> None:
    """Mean, difference to the baseline, significance, and a star when seeds are missing."""
    sweep, name = analysis.sweep, cell.cell.cell
    pair = next((pair for pair in analysis.primary if pair.system == name), None)
    colour = _SOFT(norm(pair.delta)) if pair else PAPER
    edge = GREY if name == sweep.baseline or not cell.num_used else "none"
    axes.add_patch(
        Rectangle((x - 0.48, y - 0.47), 0.96, 0.94, facecolor=colour, edgecolor=edge, linewidth=1)
    )
    lost = cell.num_used < cell.num_launched or cell.seeds("collapsed")
    mean = number(cell.mean(sweep.primary)).removeprefix("0") if cell.num_used else "no score"
    lines = [mean + "*" * bool(lost and cell.num_used), *["baseline"] * (name == sweep.baseline)]
    lines += [short_signed(pair.delta)] if pair else []
    ink = DARK if pair else GREY
    axes.text(x, y, "\n".join(lines), ha="center", va="center", fontsize=9, color=ink)
    significant = pair is not None and pair.significant(sweep.alpha)
    if pair and (significant or pair.p_queries_adjusted < sweep.alpha):
        face = DARK if significant else "none"
        axes.plot(x + 0.4, y + 0.33, "o", ms=3.5, mfc=face, mec=DARK, mew=0.9)
