"""The forest plot: each difference with its intervals, with queries alone and both random."""

import math
from collections.abc import Mapping

from matplotlib.axes import Axes

from rank_core.stats.compare import Comparison
from rank_core.stats.scopes import ScopeTest, confidence_interval
from sweeps.report.analysis import Analysis
from sweeps.report.figures.figure import (
    BLUE,
    GREY,
    INK,
    PAPER,
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
from sweeps.report.notation import level_text, signed

_LOOKS = {
    "queries": (BLUE, -0.17, 1.6, "queries random"),
    "both": (INK, 0.17, 2.4, "queries and seeds random"),
}
"""Colour, place in the row, line width and words of each scope."""

Tests = Mapping[tuple[str, str], ScopeTest]


def forest_plot(analysis: Analysis) -> Shown | None:
    """Differences on the primary measure, best first; None without a comparison."""
    sweep = analysis.sweep
    if not analysis.primary:
        return None
    ordered = sorted(analysis.primary, key=lambda pair: -pair.delta)
    baseline = sweep.label(sweep.baseline)
    labels = [sweep.label(pair.system) for pair in ordered]
    with style():
        figure = new_figure(width_for(labels), 1.0 + 0.32 * len(ordered))
        axes = figure.add_subplot()
        axes.axvline(0, color=GREY, linewidth=1)
        # A system without training, such as BM25, may be far from all others.
        trained = [pair for pair in ordered if pair.system not in sweep.deterministic]
        ends = _range(trained or ordered, analysis.tests, sweep.alpha)
        for row, pair in enumerate(ordered):
            test = analysis.tests[pair.measure, pair.system]
            _row(axes, row, pair, test, sweep.alpha, ends)
        axes.set_xlim(ends)
        axes.set_ylim(len(ordered) - 0.45, -0.55)
        row_labels(axes, labels)
        axes.set_xlabel(f"difference in {sweep.primary}")
        grid(axes, "x")
        decided = len(analysis.undecided) < len(ordered)
        for scope in _LOOKS if decided else ("queries",):
            colour, _, width, words = _LOOKS[scope]
            axes.plot([], [], color=colour, linewidth=width, label=words)
        legend(figure)
        drawing = draw(
            figure,
            name="forest",
            description=f"forest plot: differences from {baseline} in {sweep.primary}, with "
            "their intervals",
        )
    return Shown(
        f"Gain over {baseline}",
        drawing,
        f"{level_text(sweep.alpha)} intervals, not adjusted. Filled: significant.",
    )


def _range(comparisons: list[Comparison], tests: Tests, alpha: float) -> tuple[float, float]:
    """The axis: zero and all intervals, except a few much wider than the rest."""
    bounds = [
        bound
        for pair in comparisons
        for scope in _LOOKS
        for bound in confidence_interval(tests[pair.measure, pair.system], 1 - alpha, scope=scope)
        if not math.isnan(bound)
    ]
    middle = sorted(map(abs, bounds))[len(bounds) // 2]
    shown = [0.0, *(bound for bound in bounds if abs(bound) <= 4 * middle)]
    margin = max(0.05 * (max(shown) - min(shown)), 0.0005)
    return min(shown) - margin, max(shown) + margin


def _row(
    axes: Axes,
    row: int,
    comparison: Comparison,
    test: ScopeTest,
    alpha: float,
    ends: tuple[float, float],
) -> None:
    for scope, (colour, shift, width, _) in _LOOKS.items():
        low, high = confidence_interval(test, 1 - alpha, scope=scope)
        if math.isnan(low):
            continue
        # The only line of a row is in the middle.
        at = row + (0.0 if math.isnan(comparison.p_both) else shift)
        axes.plot((low, high), (at, at), color=colour, linewidth=width, solid_capstyle="butt")
    face = INK if comparison.significant(alpha) else PAPER
    axes.plot(comparison.delta, row, "o", ms=5, mfc=face, mec=INK, mew=1.4, zorder=5)
    text = signed(comparison.delta)
    if comparison.delta < ends[0]:
        edge_note(axes, ends[0], row, text, "left")
    elif comparison.delta > ends[1]:
        edge_note(axes, ends[1], row, text, "right")
