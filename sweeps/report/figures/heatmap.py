"""The heat map of window x stride: where reading in smaller or more overlapping pieces pays."""

from collections.abc import Mapping
from dataclasses import dataclass

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from rank_core.stats.compare import Comparison
from sweeps.plan.terminal import shortened
from sweeps.report.figures.figure import INK, WIDTH, Drawing, draw, new_figure, style
from sweeps.report.grid import Grid, grids_of, reads_one_chunk
from sweeps.report.load import Sweep
from sweeps.report.notation import signed
from sweeps.report.summary import CellSummary

_SOFT = LinearSegmentedColormap.from_list("soft", colormaps["RdBu"]([0.25, 0.5, 0.75]))
"""Blue is better, red is worse; never so dark that black numbers are hard to read."""


@dataclass(frozen=True)
class _Look:
    """What every panel needs to draw a cell."""

    sweep: Sweep
    comparisons: Mapping[str, Comparison]
    norm: Normalize


def heat_map(
    sweep: Sweep, cells: list[CellSummary], comparisons: Mapping[str, Comparison]
) -> Drawing | None:
    """The primary measure and its difference to the baseline; None if the sweep has no such grid.

    `comparisons` maps a cell to its comparison on the primary measure.
    """
    references = [one for one in cells if reads_one_chunk(one.cell)]
    grids = grids_of(sweep, cells)
    if not grids:
        return None
    largest = _largest(cells, comparisons)
    look = _Look(sweep, comparisons, Normalize(-largest, largest))
    columns = max(len(grid.strides) for grid in grids)
    rows = [max(len(grid.windows), 2) for grid in grids]
    rows[0] = max(rows[0], len(references))
    with style():
        width = min(max(2.4 + 0.86 * (columns + 1.4), WIDTH), 16)
        figure = new_figure(width, 0.9 + sum(0.52 * count + 0.85 for count in rows))
        figure.set_layout_engine(
            "constrained", h_pad=0.08
        )  # a title stands below the axis above it
        layout = figure.add_gridspec(
            len(grids), 2, width_ratios=(columns, 1.25), height_ratios=rows
        )
        panels = [figure.add_subplot(layout[at, 0]) for at in range(len(grids))]
        for axes, grid in zip(panels, grids, strict=True):
            _draw_grid(axes, grid, look)
        if references:
            _draw_references(figure.add_subplot(layout[0, 1]), references, rows[0], look)
        if comparisons:
            _colour_bar(figure, look)
        _legend(figure, compared=bool(comparisons))
        return draw(figure, name="heat", description=f"{sweep.primary} by window and stride")


def _largest(cells: list[CellSummary], comparisons: Mapping[str, Comparison]) -> float:
    """The end of the colours: a collapsed seed must not pale all other differences."""
    healthy = {one.cell.cell for one in cells if not one.seeds("collapsed")}
    deltas = [abs(one.delta) for name, one in comparisons.items() if name in healthy]
    return max(deltas or [abs(one.delta) for one in comparisons.values()], default=0.0) or 0.001


def _draw_grid(axes: Axes, grid: Grid, look: _Look) -> None:
    """One panel, stride to the right and window upwards, in tokens."""
    for y, window in enumerate(grid.windows):
        for x, stride in enumerate(grid.strides):
            if (window, stride) in grid.cells:
                _draw_cell(axes, x, y, grid.cells[window, stride], look)
            elif stride <= window:
                _draw_hatch(axes, x, y)
    _frame(axes, len(grid.strides), len(grid.windows))
    axes.set_xticks(range(len(grid.strides)), [str(one) for one in grid.strides])
    axes.set_yticks(range(len(grid.windows)), [str(one) for one in grid.windows])
    axes.set_xlabel("stride (tokens)")
    axes.set_ylabel("window (tokens)")
    axes.set_title(grid.title, loc="left", fontsize=10, fontweight="bold")


def _draw_references(axes: Axes, cells: list[CellSummary], rows: int, look: _Look) -> None:
    """Cells to which stride means nothing, beside the grid and on its colours."""
    for at, cell in enumerate(cells):
        _draw_cell(axes, 0, rows - 1 - at, cell, look, title=shortened(cell.cell.label, 14))
    _frame(axes, 1, rows)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title("no stride", loc="left", fontsize=10, fontweight="bold")


def _frame(axes: Axes, columns: int, rows: int) -> None:
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_ylim(-0.5, rows - 0.5)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _draw_hatch(axes: Axes, x: int, y: int) -> None:
    axes.add_patch(
        Rectangle((x - 0.48, y - 0.48), 0.96, 0.96, facecolor="#f4f4f4", hatch="////", linewidth=0)
    )


def _draw_cell(
    axes: Axes, x: int, y: int, cell: CellSummary, look: _Look, *, title: str = ""
) -> None:
    """Mean, difference to the baseline, significance, and a note when seeds are missing."""
    name, alpha = cell.cell.cell, look.sweep.alpha
    if not cell.num_used:
        _draw_hatch(axes, x, y)
        axes.text(x, y, f"{title}\nno score".strip(), ha="center", va="center", fontsize=8)
        return
    found = look.comparisons.get(name)
    colour = _SOFT(look.norm(found.delta)) if found else "#ececec"
    axes.add_patch(Rectangle((x - 0.48, y - 0.48), 0.96, 0.96, facecolor=colour, linewidth=0))
    lines = [title] if title else []
    lines.append(f"{cell.mean(look.sweep.primary):.3f}")
    if name == look.sweep.baseline:
        lines.append("baseline")
    elif found:
        lines.append(signed(found.delta))
    axes.text(x, y + 0.02, "\n".join(lines), ha="center", va="center", fontsize=8, linespacing=1.25)
    if name == look.sweep.baseline:
        axes.add_patch(
            Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, fill=False, edgecolor=INK, linewidth=1.4)
        )
    if found and found.significant(alpha):
        axes.plot(x + 0.39, y + 0.33, "o", ms=5, mfc=INK, mec=INK)
    elif found and found.p_queries_adjusted < alpha:
        axes.plot(x + 0.39, y + 0.33, "o", ms=5, mfc="white", mec=INK)
    if cell.num_used < cell.num_launched or cell.seeds("collapsed"):
        badge = cell.used_of_launched + ("*" if cell.seeds("collapsed") else "")
        axes.text(x - 0.45, y + 0.33, badge, ha="left", va="center", fontsize=6.5, color=INK)


def _colour_bar(figure: Figure, look: _Look) -> None:
    bar = figure.colorbar(
        ScalarMappable(look.norm, _SOFT),
        ax=figure.axes,
        shrink=0.8,
        aspect=25,
        pad=0.02,
        extend="both",
    )
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, length=2)
    bar.set_label(f"difference in {look.sweep.primary}", fontsize=8)


def _legend(figure: Figure, *, compared: bool) -> None:
    handles = [
        Line2D([], [], marker="o", ls="none", mfc=INK, mec=INK, ms=5),
        Line2D([], [], marker="o", ls="none", mfc="white", mec=INK, ms=5),
        Rectangle((0, 0), 1, 1, facecolor="#f4f4f4", hatch="////", linewidth=0),
    ]
    words = [
        "significant, queries and runs random",
        "significant, queries random only",
        "not run or no score",
    ]
    first = 0 if compared else len(handles) - 1
    figure.legend(
        handles[first:],
        words[first:],
        loc="outside lower left",
        ncols=3,
        frameon=False,
        fontsize=8,
    )
