"""The forest plot: each difference with its interval under three scopes of randomness."""

import math
from collections.abc import Mapping

from matplotlib.axes import Axes

from rank_core.stats.compare import Comparison
from rank_core.stats.scopes import SCOPES, ScopeTest, confidence_interval
from sweeps.report.figures.figure import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    Drawing,
    draw,
    new_figure,
    style,
    width_for,
)
from sweeps.report.load import Sweep
from sweeps.report.notation import relation, signed

_LOOKS = {
    "queries": (BLUE, -0.24, 1.6, "queries random"),
    "seeds": (ORANGE, 0.0, 1.6, "runs random"),
    "both": (INK, 0.24, 2.6, "both random (decides)"),
}
"""Colour, place in the row, line width and words of each scope."""


def forest_plot(
    sweep: Sweep, comparisons: list[Comparison], tests: Mapping[tuple[str, str], ScopeTest]
) -> Drawing | None:
    """Differences on the primary measure, best first; None without a comparison."""
    if not comparisons:
        return None
    ordered = sorted(comparisons, key=lambda one: -one.delta)
    labels = [sweep.label(one.system) for one in ordered]
    with style():
        figure = new_figure(width_for(labels), 1.2 + 0.42 * len(ordered))
        axes = figure.add_subplot()
        axes.axvline(0, color=GREY, linewidth=1)
        for row, one in enumerate(ordered):
            _row(axes, row, one, tests[one.measure, one.system], sweep.alpha)
        axes.set_xlim(_range(ordered, tests, sweep.alpha))
        axes.set_ylim(len(ordered) - 0.45, -0.55)
        axes.set_yticks(range(len(ordered)), labels)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(
            f"difference in {sweep.primary} to {sweep.label(sweep.baseline)}, "
            f"{100 * (1 - sweep.alpha):g} % intervals"
        )
        axes.grid(axis="x", color="#e6e6e6", linewidth=0.7)
        axes.set_axisbelow(True)
        decided = any(not math.isnan(one.p_both) for one in ordered)
        for scope in SCOPES if decided else SCOPES[:1]:
            colour, _, width, words = _LOOKS[scope]
            axes.plot([], [], color=colour, linewidth=width, label=words)
        figure.legend(loc="outside upper left", ncols=3, frameon=False, fontsize=8)
        return draw(figure, name="forest", description="differences with their intervals")


def _range(
    comparisons: list[Comparison], tests: Mapping[tuple[str, str], ScopeTest], alpha: float
) -> tuple[float, float]:
    """The axis: zero and all intervals, but for a few that would dwarf the others."""
    bounds = [
        bound
        for one in comparisons
        for scope in ("queries", "both")
        for bound in confidence_interval(tests[one.measure, one.system], 1 - alpha, scope=scope)
        if not math.isnan(bound)
    ]
    middle = sorted(map(abs, bounds))[len(bounds) // 2]
    kept = [0.0, *(one for one in bounds if abs(one) <= 4 * middle)]
    margin = max(0.05 * (max(kept) - min(kept)), 0.0005)
    return min(kept) - margin, max(kept) + margin


def _row(axes: Axes, row: int, one: Comparison, test: ScopeTest, alpha: float) -> None:
    for scope in SCOPES:
        colour, shift, width, _ = _LOOKS[scope]
        if math.isnan(one.p_both):  # the only line of its row stands in the middle
            shift = 0.0
        low, high = confidence_interval(test, 1 - alpha, scope=scope)
        if math.isnan(low):
            continue
        axes.plot(
            (low, high), (row + shift, row + shift), color=colour, linewidth=width,
            solid_capstyle="butt",
        )  # fmt: skip
    axes.plot(one.delta, row, "o", ms=5, mfc="white", mec=INK, mew=1.4, zorder=5)
    defined, significant = not math.isnan(one.p_both_adjusted), one.significant(alpha)
    axes.annotate(
        f"{signed(one.delta)}  p {relation(one.p_both_adjusted)}" if defined else signed(one.delta),
        (1.01, row),
        xycoords=axes.get_yaxis_transform(),
        fontsize=8,
        va="center",
        color=INK if significant else GREY,
        fontweight="bold" if significant else "normal",
    )
