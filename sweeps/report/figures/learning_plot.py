"""The learning curves of every run, and the checkpoint that each kept."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

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
from sweeps.store.sweep_file import find_sweep
from sweeps.store.trial_status import LOST, TrialStatus

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

    def add(self, report: Mapping[str, Any], measure: str) -> None:
        """Adds a progress report, of its measures on dev only `measure`."""
        self.loss |= {int(point["step"]): float(point["loss"]) for point in report["curve"]}
        if report["dev"] and measure in report["dev"]:
            self.dev[int(report["step"])] = float(report["dev"][measure])


def learning_curves(sweep: Sweep) -> list[Curve]:
    """The curves in the order of the cells, of the first `MOST_RUNS` trials by seed; empty where
    the folder has none."""
    trials = sweep.trials.sort_values("seed", kind="stable")[:MOST_RUNS].sort_index()
    if sweep.third_party:
        return []
    records = find_sweep(str(sweep.folder))
    names = {
        f"{cell}-seed{seed}": Curve(str(cell), int(seed))
        for cell, seed in zip(trials["cell"], trials["seed"], strict=True)
    }
    for state in records.states(names).values():
        curve = names[state.name]
        for report in records.history(state.name):
            curve.add(report, sweep.primary)
        curve.best_step = state.facts.get("best_step")
    return [curve for curve in names.values() if curve.loss or curve.dev]


def learning_plot(analysis: Analysis) -> Shown | None:
    """Training loss and the primary measure on dev by step, one line per run."""
    sweep = analysis.sweep
    curves = learning_curves(sweep)
    steps = max((step for curve in curves for step in (*curve.loss, *curve.dev)), default=0)
    if not steps:  # nothing was trained
        return None
    looks = _looks(analysis, curves)
    window = max(1, steps // 12)
    fates = {system.cell.cell: system.fates for system in analysis.cells}
    with style():
        figure = new_figure(WIDTH, 4.6)
        loss, dev = figure.subplots(2, 1, sharex=True)
        lost = False
        for curve in curves:
            line: dict[str, Any] = {"lw": 1.1, "alpha": 0.85} | looks[curve.cell]
            if fates[curve.cell].get(curve.seed) in (*LOST, TrialStatus.COLLAPSED):
                line, lost = line | {"color": ORANGE, "zorder": 3}, True
            smooth = _smoothed(curve.loss, window)
            if smooth:  # a line of one step is invisible
                mark = "." if len(smooth) == 1 else None
                loss.plot(*zip(*smooth, strict=True), **line, marker=mark)
            if curve.dev:
                dev.plot(*zip(*sorted(curve.dev.items()), strict=True), **line, marker=".")
            if curve.best_step in curve.dev:
                ring = {"ms": 6, "mfc": "white", "mec": line["color"], "mew": 1.4, "zorder": 5}
                dev.plot(curve.best_step, curve.dev[curve.best_step], "o", **ring)
        for axes, label in ((loss, "training loss"), (dev, f"{sweep.primary} on dev")):
            axes.set_ylabel(label)
            axes.set_xlim(0, steps * 1.04)
            grid(axes)
        dev.set_xlabel("optimiser step")
        loss.set_ylim(bottom=0)
        marked = {
            sweep.label(cell): own["color"] for cell, own in looks.items() if own["zorder"] > 1
        }
        marked |= {"other cells": _PALE} if len(marked) < len(looks) else {}
        marked |= {"failed, diverged or collapsed": ORANGE} if lost else {}
        for label, colour in marked.items():
            loss.plot([], [], color=colour, linewidth=1.6, label=shortened(label, 30))
        ring = {"ms": 6, "mfc": "white", "mec": GREY, "mew": 1.4, "ls": "none"}
        loss.plot([], [], "o", **ring, label="kept checkpoint")
        legend(figure)
        description = f"training loss and {sweep.primary} on dev by step"
        drawing = draw(figure, name="learning", description=description)
    smooth_words = f", loss a mean of the last {window} steps" if window > 1 else ""
    first = f", for the first {MOST_RUNS}" if len(sweep.trials) > MOST_RUNS else ""
    words = f"A line per training run{first}{smooth_words}; ring: the kept checkpoint."
    return Shown("Learning curves", drawing, words, appendix=True)


def _looks(analysis: Analysis, curves: list[Curve]) -> dict[str, dict[str, Any]]:
    """{cell: colour and drawing order}; of many cells only baseline and best have a colour."""
    present = list(dict.fromkeys(curve.cell for curve in curves))
    if len(present) <= len(_COLOURS):
        chosen = dict(zip(present, _COLOURS, strict=False))
    else:
        best = {analysis.best.system: BLUE} if analysis.best else {}
        chosen = {analysis.sweep.baseline: INK} | best
    pale = {"color": _PALE, "zorder": 1}
    return {
        cell: {"color": chosen[cell], "zorder": 4} if cell in chosen else pale for cell in present
    }


def _smoothed(values: dict[int, float], window: int) -> list[tuple[int, float]]:
    """The mean over the last `window` steps; loss of single batches is mostly noise."""
    steps = sorted(values)
    raw = np.array([values[step] for step in steps])
    return [
        (step, float(raw[max(0, at - window + 1) : at + 1].mean()))
        for at, step in enumerate(steps)
        if at + 1 >= min(window, len(steps))
    ]
