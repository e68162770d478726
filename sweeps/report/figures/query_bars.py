"""The per-query differences of the best cell from the baseline, sorted."""

import numpy as np

from rank_core.stats.compare import TIE
from sweeps.report.analysis import Analysis
from sweeps.report.figures.figure import (
    BLUE,
    INK,
    ORANGE,
    WIDTH,
    Shown,
    draw,
    grid,
    new_figure,
    style,
)
from sweeps.report.notation import signed

_NAMED = 3
"""Queries named at each end."""
_DRAWN = 800
"""Thousands of steps would make a page of megabytes and show no more than these."""


def query_bars(analysis: Analysis) -> Shown | None:
    """The differences of all queries, sorted, on means over seeds."""
    best = analysis.best
    if best is None:
        return None
    sweep, matrix = analysis.sweep, analysis.matrices[analysis.sweep.primary]
    delta_Q = matrix.scores[best.system].mean(axis=0) - matrix.scores[best.baseline].mean(axis=0)
    order = np.argsort(-delta_Q, kind="stable")
    system, baseline = sweep.label(best.system), sweep.label(best.baseline)
    place_Q = np.unique(np.linspace(0, len(order) - 1, min(len(order), _DRAWN)).round().astype(int))
    height_Q = delta_Q[order][np.append(place_Q, place_Q[-1:])]  # the last bar has an end, too
    with style():
        figure = new_figure(WIDTH, 2.4)
        axes = figure.add_subplot()
        for sign, colour in ((1, BLUE), (-1, ORANGE)):
            side_Q = np.where(sign * height_Q > TIE, height_Q, 0.0)
            edge_Q = np.append(place_Q, len(order))
            axes.fill_between(edge_Q, side_Q, step="post", color=colour, linewidth=0)
        axes.axhline(0, color=INK, linewidth=0.8)
        axes.axhline(best.delta, color=INK, linewidth=1, linestyle=(0, (5, 3)))
        axes.annotate(
            f"mean {signed(best.delta)}", (1, best.delta), xycoords=axes.get_yaxis_transform(),
            xytext=(0, 4), textcoords="offset points", ha="right", fontsize=9,
        )  # fmt: skip
        axes.set_xlim(0, len(order))
        axes.set_xlabel(f"queries: {best.wins} better, {best.ties} equal, {best.losses} worse")
        axes.set_ylabel(f"difference in {sweep.primary}")
        grid(axes, "y")
        description = f"bar chart: difference of {system} from {baseline} on {len(order)} queries"
        drawing = draw(figure, name="queries", description=f"{description}, sorted")
    runs = max(len(matrix.seeds[best.system]), len(matrix.seeds[best.baseline]))
    words = f"{system} minus {baseline}{', means over seeds' * (runs > 1)}."
    gained = [matrix.query_ids[at] for at in order[:_NAMED] if delta_Q[at] > TIE]
    lost = [matrix.query_ids[at] for at in order[::-1][:_NAMED] if delta_Q[at] < -TIE]
    for names, title in ((gained, "Largest gains"), (lost, "Largest losses")):
        words += f" {title}: {', '.join(names)}." * bool(names)
    return Shown("Every query", drawing, words)
