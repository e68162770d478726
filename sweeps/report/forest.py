"""The figure of the answer: what every system gains over the first stage, and what it costs."""

import math
import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rank_core.stats.compare import CellComparison
from sweeps.findings.analysis import Analysis
from sweeps.report.drawing import (
    BAND,
    BLUE,
    GREY,
    INK,
    Drawing,
    draw,
    edge_note,
    figure_of_rows,
    hint,
    legend,
    near,
    style,
)
from sweeps.report.merits import CostsOfRows, cost_number, costs
from sweeps.systems.load import Sweep
from sweeps.systems.summary import fate_word
from sweeps.systems.system import System
from sweeps.terminal.notation import decisive_p, level_text, number, range_text, signed

_ROW, _TELEPHONE = 0.26, 5.15  # inches of a row, and of the width that a telephone shows


@style()
def forest_plot(analysis: Analysis) -> Drawing | None:
    """The gain of every system over the first stage (the baseline, where that has no row) with its
    interval and seeds, highest mean first; the systems not distinguishable from the best are
    shaded, and the cost of each is a second column."""
    sweep, primary = analysis.sweep, analysis.sweep.primary
    tested, chosen = analysis.gains, analysis.choice.system if analysis.choice else ""
    if not tested:
        return None
    reference = next(iter(tested.values())).baseline
    zero = next(row.mean(primary) for row in analysis.rows if row.name == reference)
    rows = [row for row in analysis.rows if row.num_used and row.name != reference]
    rows.sort(key=lambda row: -row.mean(primary))
    labels = [row.label + " (baseline)" * row.is_baseline for row in rows]
    figure, axes = figure_of_rows(labels, 1.35 + _ROW * len(rows), width=_TELEPHONE)
    seeds = {row.name: _seed_gains(row, primary, zero) for row in rows}
    low, high = near([[*seeds[row.name], *_interval(tested.get(row.name))] for row in rows])
    margin = max(0.05 * (max(high, 0) - min(low, 0)), 0.0005)
    ends = min(low, 0) - margin, max(high, 0) + margin
    axes.set(xlim=ends, ylim=(len(rows) - 0.45, -0.55))
    axes.axvline(0, color=GREY, linewidth=1)
    first = sweep.first_stage_mean
    if first is not None and not analysis.first_stage and ends[0] < first - zero < ends[1]:
        axes.axvline(first - zero, color=GREY, lw=1.2, ls=":", label=f"first stage {first:.3f}")
    for place, row in enumerate(rows):
        if test := tested.get(row.name):
            _draw_gain(axes, place, row, seeds[row.name], test)
        else:
            words = f"= {row.same_as}" if row.same_as else _untested(sweep, row)
            side = "left" if ends[1] > -ends[0] else "right"  # where there is more room
            axes.text(0, place, f" {words} ", fontsize=9, va="center", ha=side, color=GREY)
    known = costs(analysis)
    members = analysis.best_set.judged if analysis.best_set else ()
    _mark_rows(axes, rows, chosen, members, known)
    base, the = sweep.label(reference), "the baseline " * (reference == sweep.baseline)
    axes.set_xlabel(f"gain in {primary} over {the}{base} ({number(zero, sweep.digits)})")
    _explain(figure, axes, analysis, members)
    words = _in_words(rows, tested, members, known)
    words = f"gains in {primary} over {base}, highest mean first. {words}"
    return draw(figure, "forest", words, heading=f"Gain over {base}")


def _mark_rows(
    axes: Axes, rows: Sequence[System], chosen: str, members: Collection[str], known: CostsOfRows
) -> None:
    """Shades the systems not distinguishable from the best, prints the chosen one in bold, and
    the costs in a column."""
    for place, (row, name) in enumerate(zip(rows, axes.get_yticklabels(), strict=True)):
        if row.name in members:
            axes.axhspan(place - 0.5, place + 0.5, color=BAND, lw=0, zorder=0)
        name.set_fontweight("bold" if row.name == chosen else "normal")
        if row.name in known.of:
            _beside(axes, place, cost_number(known.of[row.name]), va="center")
    _beside(axes, -0.55, _narrow(known.unit), va="bottom", color=GREY)


def _explain(figure: Figure, axes: Axes, analysis: Analysis, members: Collection[str]) -> None:
    """The legend."""
    axes.plot([], [], color=INK, lw=2, label=f"{level_text(analysis.sweep.tests.alpha)} interval")
    if any(len(row.runs(analysis.sweep.primary)) > 1 for row in analysis.rows):
        axes.plot([], [], "o", color=BLUE, ms=4.5, alpha=0.65, ls="none", label="one seed")
    if members:
        axes.fill_between([], [], color=BAND, label="not distinguishable from the best")
    legend(figure, 2 if axes.get_legend_handles_labels()[1][3:] else 3)


def _narrow(unit: str) -> str:
    """A unit above a narrow column."""
    return "\n".join(textwrap.wrap(unit, 10))


def _beside(axes: Axes, place: float, text: str, **style: Any) -> None:
    """A text in the column to the right of the axes."""
    axes.annotate(
        text, (1, place), xycoords=axes.get_yaxis_transform(), xytext=(46, 0),
        textcoords="offset points", ha="right", fontsize=9, **style,
    )  # fmt: skip


def _interval(test: CellComparison | None) -> tuple[float, float]:
    """Of queries and seeds, of the family at once; with one seed that of the queries alone."""
    if test is None:
        return math.nan, math.nan
    if math.isnan(test.p_both):
        return test.ci_queries_low, test.ci_queries_high
    return test.in_family.ci_low, test.in_family.ci_high


def _untested(sweep: Sweep, row: System) -> str:
    """Why a row that equals no other has no test."""
    return f"{fate_word(sweep)} on dev" if row.name in sweep.about.eliminated else "not tested"


def _seed_gains(row: System, measure: str, zero: float) -> list[float]:
    """Of the seeds that are one of several; a system without seeds has none."""
    runs = row.runs(measure).items()
    return [value - zero for seed, value in runs if row.statuses[seed] != "collapsed"]


def _draw_gain(
    axes: Axes,
    place: int,
    row: System,
    seeds: Sequence[float],
    test: CellComparison,
) -> None:
    """A row: dots of its seeds, the mean and its interval. A value outside the axis is a number at
    its edge."""
    interval = _interval(test)
    [line] = axes.plot(interval, (place, place), color=INK, lw=2, solid_capstyle="butt")
    hint(line, f"{row.label}: {range_text(*interval)}")
    for value in seeds:
        axes.plot(value, place, "o", color=BLUE, ms=4.5, alpha=0.65, mew=0)
    [mark] = axes.plot(test.delta, place, "|", color=INK, ms=11, mew=2, zorder=5)
    hint(mark, f"{row.label}: {signed(test.delta)}, p {decisive_p(test)}")
    edge_note(axes, place, [(signed(test.delta), test.delta)], axes.get_xlim())


def _in_words(
    rows: Sequence[System],
    tested: Mapping[str, CellComparison],
    members: Collection[str],
    known: CostsOfRows,
) -> str:
    """The figure for those who do not see it: a line for each system."""
    lines = []
    for row in rows:
        test = tested.get(row.name)
        parts = [f"{signed(test.delta)} {range_text(*_interval(test))}" if test else "no test"]
        parts += ["not distinguishable from the best"] * (row.name in members)
        if row.name in known.of:
            parts.append(f"{cost_number(known.of[row.name])} {known.unit}")
        lines.append(f"{row.label}: {', '.join(parts)}")
    return f"{'; '.join(lines)}."
