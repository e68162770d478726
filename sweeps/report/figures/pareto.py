"""Effectiveness against cost, and the Pareto front."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.ticker import NullFormatter, ScalarFormatter

from rank_core.seeding import generator
from rank_core.stats.bootstrap import crossed_weights, replicated_means
from rank_core.stats.compare import Comparison
from rank_core.stats.matrix import ScoreMatrix
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
from sweeps.report.notation import percent
from sweeps.report.search import left_after

_NAMED = 8
"""Cells whose names fit beside their points; with more, only those of the front have one."""


@dataclass(frozen=True)
class _Point:
    cell: str
    cost: float
    mean: float
    interval: tuple[float, float] | None  # of the difference, around the baseline's mean
    chance: float  # share of the replicates in which no cheaper cell is better


def pareto_plot(analysis: Analysis) -> Shown | None:
    """The primary measure against encoder tokens, or seconds where no tokens were recorded."""
    matrix = analysis.matrices.get(analysis.sweep.primary)
    costs, unit = _costs(analysis)
    if matrix is None or len(costs) < 2 or len(set(costs.values())) < 2:
        return None
    points = _points(analysis, matrix, costs)
    front = _front(points)
    with style():
        figure = new_figure(WIDTH, 3.4)
        axes = figure.add_subplot()
        axes.plot(
            [point.cost for point in front], [point.mean for point in front],
            color=BLUE, linewidth=1.2, drawstyle="steps-post", zorder=2,
        )  # fmt: skip
        for point in points:
            _draw(axes, point, on_front=point in front)
        _scale(axes, [point.cost for point in points])
        _frame(axes, points)
        _names(axes, analysis, points if len(points) <= _NAMED else front)
        axes.set_xlabel(unit)
        axes.set_ylabel(f"{analysis.sweep.primary} on {analysis.sweep.split}")
        grid(axes)
        drawing = draw(
            figure,
            name="pareto",
            description=f"scatter plot: {analysis.sweep.primary} of each system by {unit}",
        )
    cheapest = min(points, key=lambda point: point.cost)  # no cheaper cell is better
    likely = sorted(
        (point for point in points if point != cheapest), key=lambda point: -point.chance
    )
    shares = ", ".join(
        f"{analysis.sweep.label(point.cell)} in {percent(point.chance)}" for point in likely[:2]
    )
    bars = " Bars: interval of the difference from the baseline."
    return Shown(
        "Cost",
        drawing,
        f"Filled: on the Pareto front (no cheaper system is better)."
        f"{bars if any(point.interval for point in points) else ''} "
        f"In bootstrap samples: {shares}.",
    )


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
    return {
        system.cell.cell: costs[system.cell.cell] for system in scored if system.cell.cell in costs
    }, "evaluation of one run (seconds)"


def _points(analysis: Analysis, matrix: ScoreMatrix, costs: dict[str, float]) -> list[_Point]:
    by_cell = {pair.system: pair for pair in analysis.primary}
    weights = crossed_weights(
        matrix, rng=generator(0, "pareto front"), paired_seeds=analysis.paired
    )
    names = sorted(costs, key=lambda cell: (costs[cell], cell))
    mean_BK = np.stack([replicated_means(matrix, cell, weights) for cell in names], axis=1)
    cost_K = np.array([costs[cell] for cell in names])
    return [
        _Point(
            cell=cell,
            cost=costs[cell],
            mean=float(matrix.scores[cell].mean()),
            interval=_around_baseline(by_cell.get(cell)),
            chance=float(
                (mean_BK[:, cost_K <= costs[cell]].max(axis=1) <= mean_BK[:, at] + 1e-12).mean()
            ),
        )
        for at, cell in enumerate(names)
    ]


def _around_baseline(pair: Comparison | None) -> tuple[float, float] | None:
    if pair is None or np.isnan(pair.ci_low):
        return None
    return pair.mean_baseline + pair.ci_low, pair.mean_baseline + pair.ci_high


def _front(points: list[_Point]) -> list[_Point]:
    """The cells that no cell of at most their cost beats, cheapest first."""
    front: list[_Point] = []
    for point in sorted(points, key=lambda point: (point.cost, -point.mean)):
        if not front or point.mean > front[-1].mean:
            front.append(point)
    return front


def _draw(axes: Axes, point: _Point, *, on_front: bool) -> None:
    if point.interval is not None:
        axes.plot((point.cost, point.cost), point.interval, color=GREY, linewidth=1, zorder=1)
    axes.plot(
        point.cost, point.mean, "o", ms=6.5, mew=1.4, zorder=3,
        mfc=BLUE if on_front else PAPER, mec=BLUE if on_front else INK,
    )  # fmt: skip


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
