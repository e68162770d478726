"""The forest plot: each difference with its intervals, with queries alone and both random."""

import math

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

_LOOKS = (
    ("queries random", BLUE, -0.17, 1.6, "ci_queries_low", "ci_queries_high"),
    ("queries and seeds random", INK, 0.17, 2.4, "ci_low", "ci_high"),
)
"""Words, colour, place in the row, line width and interval of each scope."""


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
        left, right = _range(analysis)
        for row, pair in enumerate(ordered):
            single = math.isnan(pair.p_both)  # the only line of a row is in the middle
            for _, colour, shift, width, low, high in _LOOKS:
                ends, at = (getattr(pair, low), getattr(pair, high)), row + shift * (not single)
                axes.plot(ends, (at, at), color=colour, lw=width, solid_capstyle="butt")
            face = INK if pair.significant(sweep.alpha) else PAPER
            axes.plot(pair.delta, row, "o", ms=5, mfc=face, mec=INK, mew=1.4, zorder=5)
            if not left <= pair.delta <= right:
                is_left = pair.delta < left
                edge, side = (left, "left") if is_left else (right, "right")
                edge_note(axes, edge, row, signed(pair.delta), side)
        axes.set_xlim(left, right)
        axes.set_ylim(len(ordered) - 0.45, -0.55)
        row_labels(axes, labels)
        axes.set_xlabel(f"difference in {sweep.primary}")
        grid(axes, "x")
        decided = len(analysis.undecided) < len(ordered)
        for words, colour, _, width, *_ in _LOOKS if decided else _LOOKS[:1]:
            axes.plot([], [], color=colour, linewidth=width, label=words)
        legend(figure)
        description = f"forest plot: differences from {baseline} in {sweep.primary}"
        drawing = draw(figure, name="forest", description=f"{description}, with their intervals")
    return Shown(
        f"Gain over {baseline}",
        drawing,
        f"{level_text(sweep.alpha)} intervals, not adjusted. Filled: significant.",
    )


def _range(analysis: Analysis) -> tuple[float, float]:
    """The axis: zero and all intervals, except a few much wider than the rest. A system without
    training, such as BM25, may be far from all others."""
    fixed = analysis.sweep.deterministic
    trained = [pair for pair in analysis.primary if pair.system not in fixed] or analysis.primary
    bounds = [
        bound
        for pair in trained
        for *_, low, high in _LOOKS
        for bound in (getattr(pair, low), getattr(pair, high))
        if not math.isnan(bound)
    ]
    middle = sorted(map(abs, bounds))[len(bounds) // 2]
    shown = [0.0, *(bound for bound in bounds if abs(bound) <= 4 * middle)]
    margin = max(0.05 * (max(shown) - min(shown)), 0.0005)
    return min(shown) - margin, max(shown) + margin
