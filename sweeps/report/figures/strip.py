"""The strip plot: every seed of every cell as a dot."""

from matplotlib.axes import Axes

from sweeps.report.analysis import Analysis
from sweeps.report.figures.figure import (
    ALERT,
    BLUE,
    GREY,
    INK,
    ORANGE,
    Shown,
    draw,
    edge_note,
    grid,
    legend,
    new_figure,
    row_labels,
    style,
    width_for,
)
from sweeps.report.notation import level_text
from sweeps.report.summary import CellSummary
from sweeps.store.trial_status import LOST


def strip_plot(analysis: Analysis) -> Shown:
    """The primary measure of each seed, with the mean and its interval over training runs."""
    sweep, cells = analysis.sweep, analysis.cells
    labels = [system.cell.label for system in cells]
    with style():
        figure = new_figure(width_for(labels), 1.2 + 0.3 * len(cells))
        axes = figure.add_subplot()
        low, high = ends = _range(analysis)
        if analysis.baseline.num_used:
            mean = analysis.baseline.mean(sweep.primary)
            axes.axvline(mean, color=INK, linewidth=1, linestyle=(0, (5, 3)))
        first = sweep.first_stage.get(sweep.primary)
        if first is not None and low <= first <= high:
            axes.axvline(first, color=GREY, lw=1.2, ls=":", label=f"first stage {first:.3f}")
        elif first is not None:
            side = "left" if first < low else "right"
            edge = low if first < low else high
            edge_note(axes, edge, -0.72, f"first stage {first:.3f}", side, colour=GREY)
        for row, cell in enumerate(cells):
            _row(axes, row, cell, analysis, ends)
        axes.set_xlim(ends)
        axes.set_ylim(len(cells) - 0.4, -1.05)
        row_labels(axes, labels)
        axes.set_xlabel(f"{sweep.primary} on {sweep.split}")
        grid(axes, "x")
        axes.plot([], [], "o", mfc=BLUE, mec=BLUE, alpha=0.65, ms=5, ls="none", label="one seed")
        if any(system.seeds("collapsed") for system in cells):
            words = "collapsed seed"
            axes.plot([], [], "o", mfc="none", mec=ORANGE, ms=5, ls="none", label=words)
        axes.plot([], [], "|", color=INK, ms=11, mew=2, ls="none", label="mean")
        legend(figure, 3)
        description = f"strip plot: {sweep.primary} of every seed of {len(cells)} systems"
        drawing = draw(figure, name="strip", description=description)
    words = "Dot: one training run"
    if any(system.num_used > 1 for system in cells):
        words += f"; line: {level_text(sweep.alpha)} interval of the mean over seeds"
    return Shown("Every seed", drawing, f"{words}; dashed: the baseline's mean.")


def _range(analysis: Analysis) -> tuple[float, float]:
    """The range of the baseline's and trained systems' seeds that did not collapse; far values
    would squeeze these into a line."""
    sweep, cells = analysis.sweep, analysis.cells
    near = [
        value
        for system in cells
        if system.cell.cell == sweep.baseline or system.cell.cell not in sweep.deterministic
        for seed, value in system.seed_means[sweep.primary].items()
        if system.fates[seed] != "collapsed"
    ]
    every = [value for system in cells for value in system.seed_means[sweep.primary].values()]
    values = near or every or [0.0, 1.0]
    spread = max(max(values) - min(values), 0.01)
    return min(values) - 0.35 * spread, max(values) + 0.25 * spread


def _row(
    axes: Axes, row: int, cell: CellSummary, analysis: Analysis, ends: tuple[float, float]
) -> None:
    """A cell: dots of its seeds, mean, interval, and the fates of lost seeds. A value outside the
    axis is a number at its edge."""
    sweep, (low, high) = analysis.sweep, ends
    mean = cell.mean(sweep.primary)
    values = [(f"{value:.3f}", value) for value in cell.seed_means[sweep.primary].values()]
    values += [(f"mean {mean:.3f}", mean)] if cell.num_used > 1 else []
    for side, edge, far in (
        ("left", low, [text for text, value in values if value < low]),
        ("right", high, [text for text, value in values if value > high]),
    ):
        if far:
            edge_note(axes, edge, row, ", ".join(far), side)
    for seed, value in cell.seed_means[sweep.primary].items():
        if low <= value <= high:
            collapsed = cell.fates[seed] == "collapsed"
            face, edge_colour = ("none", ORANGE) if collapsed else (BLUE, BLUE)
            alpha = 1 if collapsed else 0.65
            axes.plot(value, row, "o", mfc=face, mec=edge_colour, ms=5, alpha=alpha)
    if interval := cell.interval(sweep.primary, sweep.alpha):
        axes.plot(interval, (row, row), color=INK, linewidth=1.2, solid_capstyle="butt")
    if cell.num_used and low <= mean <= high:
        axes.plot(mean, row, "|", color=INK, ms=13, mew=2)
    if lost := _fate(cell):
        axes.annotate(
            lost, (1, row - 0.36), xycoords=axes.get_yaxis_transform(), fontsize=9, color=ALERT,
            ha="right", va="center",
        )  # fmt: skip


def _fate(cell: CellSummary) -> str:
    """`2/3 seeds, 1 failed`: used / launched, and the fate of the others; "" if none is lost."""
    words = dict.fromkeys([*LOST, "collapsed", "running"]) | {"planned": "not run"}
    counts = [
        f"{len(cell.seeds(status))} {text or status}"
        for status, text in words.items()
        if cell.seeds(status)
    ]
    return ", ".join([f"{cell.used_of_launched} seeds", *counts]) if counts else ""
