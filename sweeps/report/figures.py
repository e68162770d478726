"""The figures of a report: window x stride, differences, seeds, queries, cost and learning curves;
each is None without its data."""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

from rank_core.stats.compare import TIE
from sweeps.findings.analysis import Analysis
from sweeps.findings.dominance import dominated
from sweeps.report.drawing import (
    ALERT,
    BLUE,
    DARK,
    GREY,
    INK,
    ORANGE,
    PAPER,
    WIDTH,
    Drawing,
    draw,
    edge_note,
    figure_of_rows,
    grid,
    hint,
    legend,
    near,
    new_figure,
    style,
)
from sweeps.report.forest import forest_plot
from sweeps.report.merits import costs
from sweeps.store.records import trial_name
from sweeps.store.trial_costs import COST_UNITS
from sweeps.store.trial_status import LOST, TrialStatus
from sweeps.systems.load import Sweep
from sweeps.systems.summary import crossed_grids
from sweeps.systems.system import System
from sweeps.terminal.notation import (
    level_text,
    number,
    signed,
)
from sweeps.terminal.text import shortened

_DASHED = (0, (5, 3))
_SOFT = LinearSegmentedColormap.from_list("soft", colormaps["RdBu"]([0.25, 0.5, 0.75]))
"""Blue is better, red is worse; never so dark that black numbers are hard to read."""
_PLACE = 0.62, 0.44  # inches of one cell of a heat map
_NAMED_QUERIES = 3  # at each end
_BARS = 800
"""Thousands of queries would make a page of megabytes and show no more than these."""
_COLOURS = (INK, BLUE, "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""One per cell while there are enough; with more, only baseline and best have one."""
_PALE = "#bbbbbb"


def figures(analysis: Analysis) -> list[Drawing]:
    """Every figure for which the sweep has data, in the order of the page."""
    drawn = [
        forest_plot(analysis),
        query_bars(analysis),
        heat_map(analysis),
        learning_plot(analysis),
        # No run of its own has a system that was trained on each collection.
        strip_plot(analysis) if _one_run_on_all(analysis) else None,
        pareto_plot(analysis),
    ]
    return [figure for figure in drawn if figure is not None]


def _one_run_on_all(analysis: Analysis) -> bool:
    """True if the systems have training runs, each on all collections."""
    return analysis.has_seeds and not (analysis.sweep.separate_runs and analysis.means)


@style()
def heat_map(analysis: Analysis) -> Drawing | None:
    """The primary measure and its difference from the baseline by window and stride, a panel for
    each crossed grid."""
    grids = crossed_grids(analysis.sweep, analysis.cells)
    if not grids:
        return None
    primary = analysis.sweep.primary
    # Without collapsed seeds, beside which other differences would pale.
    healthy = {system.cell.cell for system in analysis.cells if not system.seeds("collapsed")}
    every = {pair.system: abs(pair.delta) for pair in analysis.primary}
    deltas = [delta for system, delta in every.items() if system in healthy]
    largest = max(deltas or every.values(), default=0.0) or 0.001
    norm = Normalize(-largest, largest)
    rows = [len(one.windows) for one in grids]
    height = sum(_PLACE[1] * count + 0.75 for count in rows)
    figure = new_figure(0.8 + _PLACE[0] * max(len(one.strides) for one in grids), height)
    panels = figure.subplots(len(grids), 1, squeeze=False, height_ratios=rows)
    for axes, one in zip(panels[:, 0], grids, strict=True):
        for (window, stride), cell in one.cells.items():
            place = one.strides.index(stride), one.windows.index(window)
            _draw_cell(axes, *place, cell, analysis, norm)
        axes.set(xlim=(-0.5, len(one.strides) - 0.5), ylim=(-0.5, len(one.windows) - 0.5))
        axes.set(xlabel="stride (tokens)", ylabel="window")
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_xticks(range(len(one.strides)), list(map(str, one.strides)))
        axes.set_yticks(range(len(one.windows)), list(map(str, one.windows)))
        axes.set_title(one.title, loc="left", fontsize=10, fontweight="bold")
    words = f"Mean {primary}"
    if analysis.primary:
        words += (
            f", below it the difference from {analysis.baseline.cell.label}; blue: better. Dot: "
            "significant; ring: with queries random alone. *: seeds lost or collapsed."
        )
    return draw(
        figure,
        "heat",
        f"heat map: mean {primary} by window and stride",
        heading="Window and stride",
        caption=words,
    )


def _draw_cell(
    axes: Axes, x: int, y: int, cell: System, analysis: Analysis, norm: Normalize
) -> None:
    """Mean, difference from the baseline, significance, and a star when seeds are missing."""
    sweep, name = analysis.sweep, cell.cell.cell
    pair = next((pair for pair in analysis.primary if pair.system == name), None)
    colour = _SOFT(norm(pair.delta)) if pair else PAPER
    edge = GREY if name == sweep.baseline or not cell.num_used else "none"
    axes.add_patch(
        Rectangle((x - 0.48, y - 0.47), 0.96, 0.94, facecolor=colour, edgecolor=edge, linewidth=1)
    )
    lost = cell.num_used < cell.num_launched or cell.seeds("collapsed")
    mean = number(cell.mean(sweep.primary)) if cell.num_used else "no score"
    lines = [mean + "*" * bool(lost and cell.num_used), *["baseline"] * (name == sweep.baseline)]
    lines += [signed(pair.delta)] if pair else []
    ink = DARK if pair else GREY
    axes.text(x, y, "\n".join(lines), ha="center", va="center", fontsize=9, color=ink)
    significant = pair is not None and pair.significant(sweep.tests.alpha)
    if pair and (significant or pair.p_queries_adjusted < sweep.tests.alpha):
        face = DARK if significant else "none"
        axes.plot(x + 0.4, y + 0.33, "o", ms=3.5, mfc=face, mec=DARK, mew=0.9)


@style()
def strip_plot(analysis: Analysis) -> Drawing:
    """The primary measure of each seed, with the mean and its interval over training runs, in the
    rows of the table."""
    sweep, rows = analysis.sweep, analysis.rows
    figure, axes = figure_of_rows([row.label for row in rows], 1.2 + 0.3 * len(rows))
    seeds = [
        [value for seed, value in row.seed_means[sweep.primary].items()
         if row.statuses.get(seed) != "collapsed"]
        for row in rows
    ]  # fmt: skip
    low, high = near(seeds)
    spread = max(high - low, 0.01)
    ends = max(low - 0.35 * spread, min(low, 0)), high + 0.25 * spread
    first = sweep.first_stage_mean
    mean = analysis.baseline.mean(sweep.primary) if analysis.baseline.num_used else math.nan
    if is_near := ends[0] <= mean <= ends[1]:
        axes.axvline(mean, color=INK, linewidth=1, linestyle=_DASHED)
    if first is not None:
        if ends[0] <= first <= ends[1]:
            axes.axvline(first, color=GREY, lw=1.2, ls=":", label=f"first stage {first:.3f}")
        edge_note(axes, -0.72, [(f"first stage {first:.3f}", first)], ends, colour=GREY)
    for place, row in enumerate(rows):
        _draw_seeds(axes, place, row, analysis, ends)
    axes.set(xlim=ends, ylim=(len(rows) - 0.4, -1.05))
    where = "" if sweep.means else f" on {sweep.split}"
    axes.set_xlabel(f"{sweep.primary}{where}")
    axes.plot([], [], "o", mfc=BLUE, mec=BLUE, alpha=0.65, ms=5, ls="none", label="one seed")
    if any(row.seeds("collapsed") for row in rows):
        axes.plot([], [], "o", mfc="none", mec=ORANGE, ms=5, ls="none", label="collapsed seed")
    axes.plot([], [], "|", color=INK, ms=11, mew=2, ls="none", label="mean")
    legend(figure, 3)
    words = "Dot: one training run"
    if any(row.num_used > 1 for row in rows):
        words += f"; line: {level_text(sweep.tests.alpha)} interval of the mean over seeds"
    return draw(
        figure,
        "strip",
        f"strip plot: {sweep.primary} of every seed of {len(rows)} systems",
        heading="Every seed",
        caption=words + "; dashed: the baseline's mean" * is_near + ".",
    )


def _draw_seeds(
    axes: Axes, place: int, row: System, analysis: Analysis, ends: tuple[float, float]
) -> None:
    """A row: dots of its seeds, mean, interval, and the fates of lost seeds. A value outside the
    axis is a number at its edge."""
    sweep, seeds = analysis.sweep, row.seed_means[analysis.sweep.primary]
    mean = row.mean(sweep.primary)
    values = [(f"{value:.3f}", value) for value in seeds.values()]
    edge_note(axes, place, [*values, *[(f"mean {mean:.3f}", mean)] * (len(seeds) > 1)], ends)
    inside = {seed: value for seed, value in seeds.items() if ends[0] <= value <= ends[1]}
    for seed, value in inside.items() if row.num_launched else ():
        collapsed = row.statuses.get(seed) == "collapsed"
        face, edge = ("none", ORANGE) if collapsed else (BLUE, BLUE)
        alpha = 1 if collapsed else 0.65
        [dot] = axes.plot(value, place, "o", mfc=face, mec=edge, ms=5, alpha=alpha)
        hint(dot, f"{row.label}, seed {seed}: {number(value, 4)}")
    if interval := row.interval(sweep.primary, sweep.tests.alpha):
        axes.plot(interval, (place, place), color=INK, linewidth=1.2, solid_capstyle="butt")
    if ends[0] <= mean <= ends[1]:
        [mark] = axes.plot(mean, place, "|", color=INK, ms=13, mew=2)
        hint(mark, f"{row.label}: mean {number(mean, 4)}")
    words = dict.fromkeys([*LOST, "collapsed", "running"]) | {"planned": "not run"}
    lost = {text or fate: len(row.seeds(fate)) for fate, text in words.items() if row.seeds(fate)}
    if lost:
        counts = [f"{count} {text}" for text, count in lost.items()]
        axes.annotate(
            ", ".join([f"{row.num_used}/{row.num_launched} seeds", *counts]), (1, place - 0.36),
            xycoords=axes.get_yaxis_transform(), fontsize=9, color=ALERT, ha="right", va="center",
        )  # fmt: skip


@style()
def query_bars(analysis: Analysis) -> Drawing | None:
    """The per-query differences of the choice from the first stage, without its row from the
    baseline: sorted, on means over seeds."""
    best, sweep = analysis.chosen, analysis.sweep
    matrix = analysis.row_scores.plain.get(sweep.primary)  # none of a mean over collections
    if best is None or matrix is None:
        return None
    delta_Q = matrix.scores[best.system].mean(axis=0) - matrix.scores[best.baseline].mean(axis=0)
    order = np.argsort(-delta_Q, kind="stable")
    system, baseline = sweep.label(best.system), sweep.label(best.baseline)
    place_Q = np.unique(np.linspace(0, len(order) - 1, min(len(order), _BARS)).round().astype(int))
    height_Q = delta_Q[order][np.append(place_Q, place_Q[-1:])]  # the last bar has an end, too
    figure = new_figure(WIDTH, 2.4)
    axes = figure.add_subplot()
    for sign, colour in ((1, BLUE), (-1, ORANGE)):
        side_Q = np.where(sign * height_Q > TIE, height_Q, 0.0)
        edge_Q = np.append(place_Q, len(order))
        axes.fill_between(edge_Q, side_Q, step="post", color=colour, linewidth=0)
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.axhline(best.delta, color=INK, linewidth=1, linestyle=_DASHED)
    axes.annotate(
        f"mean {signed(best.delta)}", (1, best.delta), xycoords=axes.get_yaxis_transform(),
        xytext=(0, 4), textcoords="offset points", ha="right", fontsize=9,
    )  # fmt: skip
    counts = f"queries: {best.wins} better, {best.ties} equal, {best.losses} worse"
    axes.set(xlim=(0, len(order)), xlabel=counts, ylabel=f"difference in {sweep.primary}")
    grid(axes, "y")
    runs = max(len(matrix.seeds[best.system]), len(matrix.seeds[best.baseline]))
    words = f"{system} minus {baseline}{', means over seeds' * (runs > 1)}."
    gained = [matrix.query_ids[at] for at in order[:_NAMED_QUERIES] if delta_Q[at] > TIE]
    lost = [matrix.query_ids[at] for at in order[::-1][:_NAMED_QUERIES] if delta_Q[at] < -TIE]
    for names, title in ((gained, "Largest gains"), (lost, "Largest losses")):
        words += f" {title}: {', '.join(names)}." * bool(names)
    return draw(
        figure,
        "queries",
        f"bar chart: difference of {system} from {baseline} on {len(order)} queries, sorted",
        heading="Queries gained and lost",
        caption=words,
    )


@style()
def pareto_plot(analysis: Analysis) -> Drawing | None:
    """The primary measure against encoder tokens, or seconds where no tokens were recorded; a row
    with the first stage costs what its cell does, and the first stage is a line."""
    sweep = analysis.sweep
    cost_of, unit = _costs_of_front(analysis)
    if len(set(cost_of.values())) < 2 or sweep.primary not in analysis.cell_scores.plain:
        return None
    rows = {row.name: row for row in analysis.rows if row.name in cost_of}
    means = {cell: row.mean(sweep.primary) for cell, row in rows.items()}
    front = _front(analysis, cost_of, means)
    figure = new_figure(WIDTH, 3.4)
    axes = figure.add_subplot()
    steps = [cost_of[cell] for cell in front], [means[cell] for cell in front]
    if len(sweep.about.objectives) <= 2:  # of several costs the front is no line
        axes.plot(*steps, color=BLUE, linewidth=1.2, drawstyle="steps-post", zorder=2)
    reach = []  # of the mean and its bar
    beaten = {point.system for point in dominated(analysis.front)}
    for cell, row in rows.items():
        cost, mean, pair = cost_of[cell], means[cell], row.test(sweep.primary)
        base = pair.mean_baseline if pair else mean  # the bar is around the baseline's mean
        ends = (base + pair.ci_low, base + pair.ci_high) if pair else (mean, mean)
        axes.plot((cost, cost), ends, color=GREY, linewidth=1, zorder=1)
        reach.append([mean, *ends])
        face, edge = (BLUE, BLUE) if cell in front else (PAPER, GREY if cell in beaten else INK)
        shape = "X" if cell in beaten else "o" if row.is_cell else "D"
        [dot] = axes.plot(cost, mean, shape, ms=6.5, mew=1.4, zorder=3, mfc=face, mec=edge)
        hint(dot, f"{row.label}: {number(mean)}, {cost:,.4g} {unit}")
    low, high = near(reach)
    least, most = min(means.values()), max(means.values())
    low, high = min(max(low, 0.0), least), max(min(high, 1.0), most)
    first = sweep.first_stage_mean
    if first is not None and low <= first <= high:
        axes.axhline(first, color=GREY, lw=1.2, ls=":")
        axes.annotate(
            sweep.first_stage_name, (1, first), xycoords=axes.get_yaxis_transform(),
            xytext=(0, 3), textcoords="offset points", ha="right", color=GREY, fontsize=9,
        )  # fmt: skip
    axes.set_ylim(low - 0.08 * (high - low) - 0.002, high + 0.08 * (high - low) + 0.002)
    _cost_axis(axes, list(cost_of.values()))
    named = dict.fromkeys([*front, *({sweep.baseline} & rows.keys())])
    _names(axes, {cell: (cost_of[cell], means[cell]) for cell in named}, analysis)
    axes.set(xlabel=unit, ylabel=f"{sweep.primary} on {sweep.split}")
    grid(axes)
    words = "Filled and named: on the Pareto front (no cheaper system is better)."
    words += " Bars: interval of the difference from the baseline." * bool(analysis.primary)
    words += " Cross: significantly dominated." * bool(beaten)
    words += f" Diamond: with {sweep.first_stage_name}." * bool(sweep.interpolated)
    return draw(
        figure,
        "pareto",
        f"scatter plot: {sweep.primary} of each system by {unit}",
        heading="Cost",
        caption=words,
    )


def _costs_of_front(analysis: Analysis) -> tuple[Mapping[str, float], str]:
    """{row: its cost} and the unit: the first cost of `--objective`, else what a use costs."""
    if not analysis.front:
        known = costs(analysis)
        return known.of, known.unit
    name = analysis.sweep.about.objectives[1]
    own = {point.system: point.costs[name] for point in analysis.front if point.costs[name] > 0}
    return own, COST_UNITS[name]  # without the first stage, which is a line


def _front(
    analysis: Analysis, cost_of: Mapping[str, float], means: Mapping[str, float]
) -> list[str]:
    """The systems that no system of at most their costs beats, by their cost."""
    if analysis.front:
        return [
            point.system for point in analysis.front if point.on_front and point.system in means
        ]
    front: list[str] = []
    for cell in sorted(means, key=lambda cell: (cost_of[cell], -means[cell])):
        if not front or means[cell] > means[front[-1]]:
            front.append(cell)
    return front


def _cost_axis(axes: Axes, costs: list[float]) -> None:
    """Logarithmic, with plain numbers, where costs span more than a factor of three."""
    low, high = min(costs), max(costs)
    if high <= 3 * low:
        axes.set_xlim(low - 0.08 * (high - low), high + 0.25 * (high - low))
        return
    axes.set_xscale("log")
    axes.set_xlim(low / 1.2, high * (high / low) ** 0.25)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=99))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())


def _names(axes: Axes, points: Mapping[str, tuple[float, float]], analysis: Analysis) -> None:
    """The names beside their points, on the side with more room, moved up until none overlap."""
    taken: list[tuple[float, float]] = []  # middles of names
    for cell, point in sorted(points.items(), key=lambda entry: entry[1][::-1]):
        x, y = axes.transAxes.inverted().transform(axes.transData.transform(point))
        is_left = x > 0.5
        place = y if is_left else y + 0.045  # its step leads to the right
        middle = x - 0.2 if is_left else x + 0.18
        while any(abs(middle - other) < 0.34 and abs(place - top) < 0.065 for other, top in taken):
            place += 0.01
        taken.append((middle, place))
        line = {"arrowstyle": "-", "color": GREY, "linewidth": 0.6} if place - y > 0.06 else None
        text = axes.annotate(
            shortened(analysis.sweep.label(cell), 18), (x, y), xycoords="axes fraction",
            xytext=(x - 0.05 if is_left else x + 0.03, place), textcoords="axes fraction",
            fontsize=9, ha="right" if is_left else "left", va="center", arrowprops=line, zorder=6,
        )  # fmt: skip
        text.set_path_effects([withStroke(linewidth=2.5, foreground=PAPER)])


def learning_curves(sweep: Sweep) -> "pd.Series[float]":
    """Loss of the batches and primary measure on dev by (kind, cell, seed, step), in the order of
    the cells; empty where the folder has none."""
    values: dict[tuple[str, str, int, int], float] = {}
    trials = sweep.trials[["cell", "seed"]].itertuples(index=False, name=None)
    for cell, seed in () if sweep.third_party else trials:
        for report in sweep.stored.history(trial_name(cell, seed)):
            values |= {("loss", cell, seed, int(p["step"])): p["loss"] for p in report["curve"]}
            if report["dev"] and sweep.primary in report["dev"]:
                values["dev", cell, seed, int(report["step"])] = report["dev"][sweep.primary]
    names = ["kind", "cell", "seed", "step"]
    keys = pd.MultiIndex.from_tuples(values, names=names) if values else None
    return pd.Series(list(values.values()), keys, dtype=float)


@style()
def learning_plot(analysis: Analysis) -> Drawing | None:
    """Training loss and the primary measure on dev by step: the mean of each cell's runs and the
    range of these; lost runs are lines of their own."""
    sweep = analysis.sweep
    curves = learning_curves(sweep)
    if "loss" not in curves.index.unique(0):  # nothing was trained
        return None
    steps = int(curves.index.get_level_values("step").max())
    window = max(1, steps // 12)  # the loss of single batches is mostly noise
    cells = curves.index.unique("cell")
    best = {analysis.choice.cell: BLUE} if analysis.choice else {}
    few = len(cells) <= len(_COLOURS)
    colours = dict(zip(cells, _COLOURS, strict=False)) if few else {sweep.baseline: INK} | best
    fates = {system.cell.cell: system.statuses for system in analysis.cells}
    figure = new_figure(WIDTH, 4.6)
    panels = dict(zip(("loss", "dev"), figure.subplots(2, 1, sharex=True), strict=True))
    lost = False
    for (kind, cell), own in curves.groupby(level=["kind", "cell"], sort=False, observed=True):
        axes, colour = panels[kind], colours.get(cell, _PALE)
        runs = own.droplevel(["kind", "cell"]).unstack("seed").sort_index()
        if kind == "loss":
            runs = runs.rolling(window, min_periods=min(window, len(runs))).mean().dropna(how="all")
        marker = "." if kind == "dev" or len(runs) == 1 else None
        for seed in [s for s in runs if fates[cell].get(s) in (*LOST, TrialStatus.COLLAPSED)]:
            axes.plot(runs.pop(seed).dropna(), color=ORANGE, lw=1.1, marker=marker, zorder=3)
            lost = True
        if runs.empty:
            continue
        named = cell in colours
        axes.plot(runs.mean(axis=1), color=colour, lw=1.3, marker=marker, zorder=3 + named)
        if named and runs.shape[1] > 1:
            low, high = runs.min(axis=1), runs.max(axis=1)
            axes.fill_between(runs.index, low, high, color=colour, alpha=0.2, lw=0)
    for kind, label in (("loss", "training loss"), ("dev", f"{sweep.primary} on dev")):
        panels[kind].set(ylabel=label, xlim=(0, steps * 1.04))
        grid(panels[kind])
    panels["dev"].set_xlabel("optimiser step")
    panels["loss"].set_ylim(bottom=0)
    marked = {sweep.label(cell): colour for cell, colour in colours.items()}
    marked |= {"other cells": _PALE} if len(colours) < len(cells) else {}
    marked |= {"failed, diverged or collapsed": ORANGE} if lost else {}
    for label, colour in marked.items():
        panels["loss"].plot([], [], color=colour, linewidth=1.6, label=shortened(label, 30))
    legend(figure)
    smooth = f"; loss: a mean of the last {window} steps" if window > 1 else ""
    return draw(
        figure,
        "learning",
        f"training loss and {sweep.primary} on dev by step",
        heading="Learning curves",
        caption=f"Line: mean of a configuration's training runs; band: their range{smooth}.",
    )
