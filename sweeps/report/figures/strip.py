"""The strip plot: every seed of every cell as a dot."""

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

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
from sweeps.report.load import Sweep
from sweeps.report.notation import level_text
from sweeps.report.summary import CellSummary
from sweeps.store.trial_status import LOST


@dataclass(frozen=True)
class _Range:
    """The part of the axis that is drawn; a value outside is drawn at the edge with its number."""

    low: float
    high: float

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


def strip_plot(analysis: Analysis) -> Shown:
    """The primary measure of each seed, with the mean and its interval over training runs."""
    sweep, cells = analysis.sweep, analysis.cells
    labels = [system.cell.label for system in cells]
    with style():
        figure = new_figure(width_for(labels), 1.2 + 0.3 * len(cells))
        axes = figure.add_subplot()
        shown = _range(sweep, cells)
        _references(axes, sweep, cells, shown)
        for row, cell in enumerate(cells):
            _row(axes, row, cell, sweep, shown)
        axes.set_xlim(shown.low, shown.high)
        axes.set_ylim(len(cells) - 0.4, -1.05)
        row_labels(axes, labels)
        axes.set_xlabel(f"{sweep.primary} on {sweep.split}")
        grid(axes, "x")
        _legend(figure, axes, cells)
        description = f"strip plot: {sweep.primary} of every seed of {len(cells)} systems"
        drawing = draw(figure, name="strip", description=description)
    words = "Dot: one training run"
    if any(system.num_used > 1 for system in cells):
        words += f"; line: {level_text(sweep.alpha)} interval of the mean over seeds"
    return Shown("Every seed", drawing, f"{words}; dashed: the baseline's mean.")


def _range(sweep: Sweep, cells: list[CellSummary]) -> _Range:
    """The range of the baseline's and trained systems' seeds that did not collapse; far values
    would squeeze these into a line."""
    values = [
        value
        for system in cells
        if system.cell.cell == sweep.baseline or system.cell.cell not in sweep.deterministic
        for seed, value in system.seed_means[sweep.primary].items()
        if system.fates[seed] != "collapsed"
    ]
    if not values:
        values = [
            value for system in cells for value in system.seed_means[sweep.primary].values()
        ] or [0.0, 1.0]
    low, high = min(values), max(values)
    spread = max(high - low, 0.01)
    return _Range(low - 0.35 * spread, high + 0.25 * spread)


def _references(axes: Axes, sweep: Sweep, cells: list[CellSummary], shown: _Range) -> None:
    """Vertical lines for the baseline's mean and the first stage."""
    baseline = next(system for system in cells if system.cell.cell == sweep.baseline)
    if baseline.num_used:
        axes.axvline(baseline.mean(sweep.primary), color=INK, linewidth=1, linestyle=(0, (5, 3)))
    value = sweep.first_stage.get(sweep.primary)
    if value is None:
        return
    if shown.holds(value):
        axes.axvline(value, color=GREY, linewidth=1.2, linestyle=":")
        axes.annotate(
            f"first stage {value:.3f}",
            (value, -0.72),
            color=GREY,
            fontsize=9,
            ha="left" if value < (shown.low + shown.high) / 2 else "right",
            va="center",
            xytext=(3 if value < (shown.low + shown.high) / 2 else -3, 0),
            textcoords="offset points",
        )
    else:
        left = value < shown.low
        axes.annotate(
            f"◂ first stage {value:.3f}" if left else f"first stage {value:.3f} ▸",
            (shown.low if left else shown.high, -0.72),
            color=GREY,
            fontsize=9,
            ha="left" if left else "right",
            va="center",
        )


def _row(axes: Axes, row: int, cell: CellSummary, sweep: Sweep, shown: _Range) -> None:
    """A cell: dots of its seeds, mean, interval, and the fates of lost seeds."""
    for seed, value in cell.seed_means[sweep.primary].items():
        collapsed = cell.fates[seed] == "collapsed"
        if shown.holds(value):
            face = "none" if collapsed else BLUE
            edge = ORANGE if collapsed else BLUE
            axes.plot(value, row, "o", mfc=face, mec=edge, ms=5, alpha=1 if collapsed else 0.65)
    interval = cell.interval(sweep.primary, sweep.alpha)
    if interval is not None:
        axes.plot(interval, (row, row), color=INK, linewidth=1.2, solid_capstyle="butt")
    if cell.num_used and shown.holds(cell.mean(sweep.primary)):
        axes.plot(cell.mean(sweep.primary), row, "|", color=INK, ms=13, mew=2)
    _outliers(axes, row, cell, sweep, shown)
    if lost := _fate(cell):
        axes.annotate(
            lost, (1, row - 0.36), xycoords=axes.get_yaxis_transform(), fontsize=9, color=ALERT,
            ha="right", va="center",
        )  # fmt: skip


def _outliers(axes: Axes, row: int, cell: CellSummary, sweep: Sweep, shown: _Range) -> None:
    """Seeds and a mean outside the axis, as numbers at its edge."""
    texts = [(f"{value:.3f}", value) for value in cell.seed_means[sweep.primary].values()]
    if cell.num_used > 1:
        mean = cell.mean(sweep.primary)
        texts.append((f"mean {mean:.3f}", mean))
    low = [words for words, value in texts if value < shown.low]
    high = [words for words, value in texts if value > shown.high]
    if low:
        edge_note(axes, shown.low, row, ", ".join(low), "left")
    if high:
        edge_note(axes, shown.high, row, ", ".join(high), "right")


def _fate(cell: CellSummary) -> str:
    """`2/3 seeds, 1 failed`: used / launched, and the fate of the others; "" if none is lost."""
    statuses = [*LOST, "collapsed", "running"]
    counts = [f"{len(cell.seeds(status))} {status}" for status in statuses if cell.seeds(status)]
    counts += [f"{len(cell.seeds('planned'))} not run"] if cell.seeds("planned") else []
    return ", ".join([f"{cell.used_of_launched} seeds", *counts]) if counts else ""


def _legend(figure: Figure, axes: Axes, cells: list[CellSummary]) -> None:
    axes.plot([], [], "o", mfc=BLUE, mec=BLUE, alpha=0.65, ms=5, ls="none", label="one seed")
    if any(system.seeds("collapsed") for system in cells):
        axes.plot([], [], "o", mfc="none", mec=ORANGE, ms=5, ls="none", label="collapsed seed")
    axes.plot([], [], "|", color=INK, ms=11, mew=2, ls="none", label="mean")
    legend(figure, 3)
