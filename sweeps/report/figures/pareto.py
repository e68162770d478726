"""Effectiveness against cost, and the Pareto front."""

import math
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.ticker import NullFormatter, ScalarFormatter

from sweeps.plan.terminal import shortened
from sweeps.report.analysis import Analysis
from sweeps.report.figures.figure import (
    BLUE,
    GREY,
    INK,
    PAPER,
    WIDTH,
    Shown,
    draw,
    grid,
    new_figure,
    style,
)
from sweeps.report.search import left_after

_NAMED = 8
"""Cells whose names fit beside their points; with more, only those of the front have one."""


@dataclass(frozen=True)
class _Point:
    cell: str
    cost: float
    mean: float
    interval: tuple[float, float] | None  # of the difference, around the baseline's mean


def pareto_plot(analysis: Analysis) -> Shown | None:
    """The primary measure against encoder tokens, or seconds where no tokens were recorded."""
    costs, unit = _costs(analysis)
    if len(set(costs.values())) < 2 or analysis.sweep.primary not in analysis.matrices:
        return None
    points = _points(analysis, costs)
    front: list[_Point] = []  # the cells that no cell of at most their cost beats
    for point in sorted(points, key=lambda point: (point.cost, -point.mean)):
        if not front or point.mean > front[-1].mean:
            front.append(point)
    with style():
        figure = new_figure(WIDTH, 3.4)
        axes = figure.add_subplot()
        axes.plot(
            [point.cost for point in front], [point.mean for point in front],
            color=BLUE, linewidth=1.2, drawstyle="steps-post", zorder=2,
        )  # fmt: skip
        for point in points:
            if point.interval is not None:
                axes.plot((point.cost,) * 2, point.interval, color=GREY, linewidth=1, zorder=1)
            face, edge = (BLUE, BLUE) if point in front else (PAPER, INK)
            axes.plot(point.cost, point.mean, "o", ms=6.5, mew=1.4, zorder=3, mfc=face, mec=edge)
        _scale(axes, list(costs.values()))
        _frame(axes, points)
        _names(axes, analysis, points if len(points) <= _NAMED else front)
        axes.set_xlabel(unit)
        axes.set_ylabel(f"{analysis.sweep.primary} on {analysis.sweep.split}")
        grid(axes)
        description = f"scatter plot: {analysis.sweep.primary} of each system by {unit}"
        drawing = draw(figure, name="pareto", description=description)
    words = "Filled: on the Pareto front (no cheaper system is better)."
    if any(point.interval for point in points):
        words += " Bars: interval of the difference from the baseline."
    return Shown("Cost", drawing, words)


def _costs(analysis: Analysis) -> tuple[dict[str, float], str]:
    """{cell with a score that was not eliminated: cost}, and the unit of the cost."""
    eliminated = left_after(analysis.sweep)
    scored = [
        system
        for system in analysis.cells
        if system.num_used and system.cell.cell not in eliminated
    ]
    tokens = {
        system.cell.cell: system.cell.encoder_tokens_per_document
        for system in scored
        if system.cell.encoder_tokens_per_document
    }
    if scored and len(tokens) == len(scored):
        return tokens, "encoder tokens per document"
    trials = analysis.sweep.trials
    if "eval_seconds" not in trials:
        return {}, ""
    seconds = trials.groupby("cell")["eval_seconds"].mean().dropna()
    costs = {str(cell): float(value) for cell, value in seconds.items() if value > 0}
    names = [system.cell.cell for system in scored if system.cell.cell in costs]
    return {name: costs[name] for name in names}, "evaluation of one run (seconds)"


def _points(analysis: Analysis, costs: dict[str, float]) -> list[_Point]:
    by_cell = {pair.system: pair for pair in analysis.primary if not math.isnan(pair.ci_low)}
    means = {system.cell.cell: system.mean(analysis.sweep.primary) for system in analysis.cells}
    return [
        _Point(
            cell,
            cost,
            means[cell],
            None
            if (pair := by_cell.get(cell)) is None
            else (pair.mean_baseline + pair.ci_low, pair.mean_baseline + pair.ci_high),
        )
        for cell, cost in costs.items()
    ]


def _scale(axes: Axes, costs: list[float]) -> None:
    """Logarithmic where the costs span more than a factor of three, with plain numbers."""
    low, high = min(costs), max(costs)
    if high <= 3 * low:
        axes.set_xlim(low - 0.08 * (high - low), high + 0.25 * (high - low))
        return
    axes.set_xscale("log")
    axes.set_xlim(low / 1.2, high * (high / low) ** 0.25)
    ticks = [
        digit * 10**power
        for power in range(-3, 9)
        for digit in (1, 2, 5)
        if low / 1.2 <= digit * 10**power <= high * 1.5
    ]
    axes.set_xticks(ticks)
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())


def _frame(axes: Axes, points: list[_Point]) -> None:
    """The range of the means and the usual intervals, without a single very wide one."""
    halves = sorted(point.interval[1] - point.mean for point in points if point.interval)
    half = 1.5 * halves[len(halves) // 2] if halves else 0.0
    means = [point.mean for point in points]
    margin = max(half, 0.15 * (max(means) - min(means)), 0.002)
    low, high = min(means) - margin, max(means) + margin
    # A measure that is never negative has no axis below 0, and most end at 1.
    axes.set_ylim(
        max(low, 0.0) if min(means) >= 0 else low, min(high, 1.03) if max(means) <= 1 else high
    )


def _names(axes: Axes, analysis: Analysis, points: list[_Point]) -> None:
    """The names beside their points, on the side with more room, moved up until none overlap."""
    taken: list[tuple[float, float]] = []  # middles of names
    for point in sorted(points, key=lambda point: (point.mean, point.cost)):
        x, y = axes.transAxes.inverted().transform(
            axes.transData.transform((point.cost, point.mean))
        )
        is_left = x > 0.5
        place = y if is_left else y + 0.045  # its step leads to the right
        middle = x - 0.2 if is_left else x + 0.18
        while any(abs(middle - other) < 0.34 and abs(place - top) < 0.065 for other, top in taken):
            place += 0.01
        taken.append((middle, place))
        moved = place - y > 0.06
        text = axes.annotate(
            shortened(analysis.sweep.label(point.cell), 18),
            (x, y),
            xycoords="axes fraction",
            xytext=(x - 0.05 if is_left else x + 0.03, place),
            textcoords="axes fraction",
            fontsize=9,
            ha="right" if is_left else "left",
            va="center",
            arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.6} if moved else None,
            zorder=6,
        )
        text.set_path_effects([withStroke(linewidth=2.5, foreground=PAPER)])
