"""The learning curves of every run, and the checkpoint that each kept."""

from dataclasses import dataclass, field

import numpy as np
from matplotlib.axes import Axes

from sweeps.plan.terminal import shortened
from sweeps.report.analysis import Analysis
from sweeps.report.figures.figure import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    WIDTH,
    Shown,
    draw,
    grid,
    legend,
    new_figure,
    style,
)
from sweeps.report.load import Sweep
from sweeps.store.trial_events import (
    EVENTS,
    PROGRESS,
    Reported,
    TrialEnded,
    TrialEvent,
    read_history,
    read_lines,
)
from sweeps.store.trial_status import LOST, TrialStatus
from sweeps.store.trial_store import HISTORY

_COLOURS = (INK, BLUE, "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""One per cell while there are enough; with more, only baseline and best have one."""
_PALE = "#bbbbbb"
MOST_RUNS = 100  # curves in one figure


@dataclass
class Curve:
    """One training run: loss of its batches and its development measure, by optimiser step."""

    cell: str
    seed: int
    loss: dict[int, float] = field(default_factory=dict)
    dev: dict[int, float] = field(default_factory=dict)
    best_step: int | None = None  # of the checkpoint that was kept

    def add(self, report: Reported, measure: str) -> None:
        """Adds a report, of its measures on dev only `measure`."""
        self.loss |= {int(point["step"]): float(point["loss"]) for point in report.curve}
        if report.dev and measure in report.dev:
            self.dev[report.step] = float(report.dev[measure])


def learning_curves(sweep: Sweep) -> list[Curve]:
    """The curves in the order of the cells, of the first `MOST_RUNS` trials by seed; empty where
    the folder has none. In an unfinished trial a step that a later attempt repeats replaces the
    earlier one."""
    trials = sweep.trials.sort_values("seed", kind="stable")[:MOST_RUNS].sort_index()
    curves = {
        f"{cell}-seed{seed}": Curve(str(cell), int(seed))
        for cell, seed in zip(trials["cell"], trials["seed"], strict=True)
    }
    runs = sweep.folder / "runs"
    finished = {name for name in curves if (runs / name / HISTORY).is_file()}
    for name in finished:
        for report in read_history(runs / name):
            curves[name].add(report, sweep.primary)
    logs = [EVENTS] if len(finished) == len(curves) else [EVENTS, PROGRESS]
    for line in (line for log in logs for line in read_lines(sweep.folder / log)):
        event = line.event
        if not isinstance(event, TrialEvent) or event.trial not in curves:
            continue
        if isinstance(event, Reported) and event.trial not in finished:
            curves[event.trial].add(event, sweep.primary)
        elif isinstance(event, TrialEnded) and "best_step" in event.result:
            curves[event.trial].best_step = int(event.result["best_step"])
    return [curve for curve in curves.values() if curve.loss or curve.dev]


def learning_plot(analysis: Analysis) -> Shown | None:
    """Training loss and the primary measure on dev by step, one line per run."""
    sweep = analysis.sweep
    curves = learning_curves(sweep)
    if not curves:
        return None
    looks = _line_styles(analysis, curves)
    steps = max(step for curve in curves for step in (*curve.loss, *curve.dev))
    window = max(1, steps // 12)
    with style():
        figure = new_figure(WIDTH, 4.6)
        loss, dev = figure.subplots(2, 1, sharex=True)
        for curve in curves:
            colour, front = looks[curve.cell][0], looks[curve.cell][1]
            if _lost(analysis, curve):
                colour, front = ORANGE, 3
            _line(loss, _smoothed(curve.loss, window), colour, front)
            _line(dev, sorted(curve.dev.items()), colour, front, marker="." if curve.dev else None)
            if curve.best_step in curve.dev:
                dev.plot(
                    curve.best_step, curve.dev[curve.best_step], "o",
                    ms=6, mfc="white", mec=colour, mew=1.4, zorder=5,
                )  # fmt: skip
        for axes, label in ((loss, "training loss"), (dev, f"{sweep.primary} on dev")):
            axes.set_ylabel(label)
            axes.set_xlim(0, steps * 1.04)
            grid(axes)
        dev.set_xlabel("optimiser step")
        loss.set_ylim(bottom=0)
        _legend(loss, dev, looks, lost=any(_lost(analysis, curve) for curve in curves))
        legend(figure)
        drawing = draw(
            figure, name="learning", description=f"training loss and {sweep.primary} on dev by step"
        )
    smooth = f", loss a mean of the last {window} steps" if window > 1 else ""
    first = f", for the first {MOST_RUNS}" if len(sweep.trials) > MOST_RUNS else ""
    return Shown(
        "Learning curves",
        drawing,
        f"A line per training run{first}{smooth}; ring: the kept checkpoint.",
        appendix=True,
    )


def _line_styles(analysis: Analysis, curves: list[Curve]) -> dict[str, tuple[str, int, str]]:
    """{cell: colour, drawing order, label}; "" for a cell that the legend lacks."""
    sweep = analysis.sweep
    present = list(dict.fromkeys(curve.cell for curve in curves))
    if len(present) <= len(_COLOURS):
        return {
            cell: (colour, 2, sweep.label(cell))
            for cell, colour in zip(present, _COLOURS, strict=False)
        }
    best = max(analysis.primary, key=lambda pair: pair.delta, default=None)
    chosen = {sweep.baseline: (INK, 4)} | ({best.system: (BLUE, 4)} if best else {})
    looks = {cell: (_PALE, 1, "") for cell in present}
    for cell, (colour, front) in chosen.items():
        if cell in looks:
            looks[cell] = (colour, front, sweep.label(cell))
    return looks


def _lost(analysis: Analysis, curve: Curve) -> bool:
    summary = next(system for system in analysis.cells if system.cell.cell == curve.cell)
    return summary.fates.get(curve.seed) in (*LOST, TrialStatus.COLLAPSED)


def _line(
    axes: Axes, points: list[tuple[int, float]], colour: str, front: int, marker: str | None = None
) -> None:
    if points:
        marker = "." if len(points) == 1 else marker  # a line of one step is invisible
        steps, values = zip(*points, strict=True)
        axes.plot(
            steps, values, color=colour, linewidth=1.1, alpha=0.85, zorder=front, marker=marker
        )


def _smoothed(values: dict[int, float], window: int) -> list[tuple[int, float]]:
    """The mean over the last `window` steps; loss of single batches is mostly noise."""
    steps = sorted(values)
    raw = np.array([values[step] for step in steps])
    return [
        (step, float(raw[max(0, at - window + 1) : at + 1].mean()))
        for at, step in enumerate(steps)
        if at + 1 >= min(window, len(steps))
    ]


def _legend(loss: Axes, dev: Axes, looks: dict[str, tuple[str, int, str]], *, lost: bool) -> None:
    for colour, _, label in looks.values():
        if label:
            loss.plot([], [], color=colour, linewidth=1.6, label=shortened(label, 24))
    if any(not label for *_, label in looks.values()):
        loss.plot([], [], color=_PALE, linewidth=1.6, label="other cells")
    if lost:
        loss.plot([], [], color=ORANGE, linewidth=1.6, label="failed, diverged or collapsed")
    loss.plot([], [], "o", mfc="white", mec=GREY, mew=1.4, ms=6, ls="none", label="kept checkpoint")
