"""The A/A check drawn: p-values of splits that are equal by construction should be uniform."""

import numpy as np

from rank_core.stats.aa_values import aa_p_values
from sweeps.report.analysis import Analysis
from sweeps.report.figures.figure import BLUE, GREY, INK, Shown, draw, new_figure, style

_LEAST = 5
"""With fewer splits the curve says nothing."""


def aa_plot(analysis: Analysis) -> Shown | None:
    """Sorted p-values against those of a uniform distribution."""
    matrix = analysis.matrices.get(analysis.sweep.primary)
    values = aa_p_values(matrix) if matrix else {"queries": [], "both": []}
    if len(values["queries"]) < _LEAST:
        return None
    with style():
        figure = new_figure(4.4, 3.9)
        axes = figure.add_subplot()
        axes.plot((0, 1), (0, 1), color=GREY, linewidth=1, linestyle=(0, (5, 3)))
        for scope, colour, words in (
            ("queries", BLUE, "queries random (customary)"),
            ("both", INK, "queries and runs random"),
        ):
            p_N = np.array(values[scope])
            if len(p_N):
                expected_N = (np.arange(len(p_N)) + 0.5) / len(p_N)
                axes.plot(
                    expected_N,
                    p_N,
                    "o-",
                    color=colour,
                    ms=3,
                    linewidth=1,
                    label=words,
                    clip_on=False,
                )
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        axes.set_aspect("equal")
        axes.set_xlabel("expected p if the test is right (uniform)")
        axes.set_ylabel("observed p")
        axes.grid(color="#e6e6e6", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.legend(frameon=False, fontsize=8, loc="upper left", borderaxespad=0.2)
        drawing = draw(figure, name="aa", description="p-values of equal halves of the seeds")
    return Shown(
        "A/A check",
        drawing,
        f"p-values of {len(values['queries'])} splits of the seeds of one cell against another "
        "half of the same cell. On the dashed line a test is right; below it, it calls chance a "
        "difference. Splits of a cell overlap, so small bends mean nothing.",
        appendix=True,
    )
