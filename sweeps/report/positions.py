"""The place of the evidence in a report: the rows of results.json, a table and a figure."""

from dataclasses import asdict
from typing import Any

from rank_core.stats.positions import IndexInterval, PositionCurves
from sweeps.findings.analysis import Analysis
from sweeps.report.drawing import (
    BLUE,
    INK,
    ORANGE,
    WIDTH,
    Drawing,
    draw,
    grid,
    legend,
    new_figure,
    style,
)
from sweeps.report.table import Table, table
from sweeps.systems.positions import curves_of
from sweeps.terminal.notation import level_text, number, range_text, signed

INDEX = "Position Sensitivity Index"
DRAWN = (INK, BLUE, ORANGE, "#009e73", "#cc79a7", "#56b4e9")
"""A colour for each curve of a figure; the table has all systems."""


def position_findings(analysis: Analysis) -> PositionCurves | None:
    """The curves of the cells by the primary measure; None for a third party's runs, for several
    collections, and where the collection does not know the place of the evidence."""
    sweep = analysis.sweep
    matrix = analysis.cell_scores.plain.get(sweep.primary)
    if sweep.third_party or matrix is None or len(sweep.collections) > 1:
        return None
    names = [row.name for row in analysis.cells if row.num_used and row.name not in analysis.copies]
    return curves_of(matrix, names, sweep.folder, sweep.split, sweep.tests.alpha)


def position_results(analysis: Analysis, found: PositionCurves) -> dict[str, Any]:
    """The bins, the curves and the differences of the indexes from the baseline."""
    return {
        "bins": [asdict(one) for one in found.bins],
        "systems": {name: asdict(curve) for name, curve in found.curves.items()},
        "differences": {
            name: asdict(index) for name, index in _differences(analysis, found).items()
        },
    }


def position_table(analysis: Analysis, found: PositionCurves) -> Table:
    """A row for each system: its mean in each bin, its index and the difference."""
    level, measure = level_text(found.alpha), analysis.sweep.primary
    gaps = _differences(analysis, found)
    rows = [
        (
            analysis.sweep.label(name),
            *(
                f"{number(mean)} {range_text(low, high)}"
                for mean, low, high in zip(curve.means, curve.low, curve.high, strict=True)
            ),
            _text(curve.index),
            _signed_text(gaps[name]) if name in gaps else "",
        )
        for name, curve in found.curves.items()
    ]
    heading = [f"{b.first:.0f}-{b.last:.0f} ({b.num_queries})" for b in found.bins]
    return table(
        ["system", *heading, INDEX, f"difference from {analysis.baseline.label}"],
        rows,
        caption=(
            f"{measure} by the tokens before the first relevant text (queries in brackets), with "
            f"the {level} band over all bins and systems. {INDEX}: 1 - the smallest mean / the "
            f"largest one, with its {level} interval over all systems; one that begins at 0 is no "
            "evidence of a bias."
        ),
    )


@style()
def position_plot(analysis: Analysis, found: PositionCurves) -> Drawing:
    """The primary measure by the place of the evidence, with the band."""
    figure = new_figure(WIDTH, 3.2)
    axes = figure.add_subplot()
    grid(axes, "y")
    places = range(len(found.bins))
    for (name, curve), colour in zip(found.curves.items(), DRAWN, strict=False):
        axes.fill_between(places, curve.low, curve.high, color=colour, alpha=0.12, linewidth=0)
        label = analysis.sweep.label(name)
        axes.plot(places, curve.means, "o-", color=colour, ms=4, lw=1.4, label=label)
    axes.set_xticks(list(places), [f"{b.first:.0f}-{b.last:.0f}" for b in found.bins])
    axes.set(xlabel="tokens before the first relevant text", ylabel=analysis.sweep.primary)
    axes.set_ylim(bottom=0)
    legend(figure)
    more = len(found.curves) - len(DRAWN)
    rest = f" The table has {more} more." if more > 0 else ""
    return draw(
        figure,
        "positions",
        f"curves: {analysis.sweep.primary} by the place of the evidence",
        heading="Place of the evidence",
        caption=f"Band: {level_text(found.alpha)}, over all bins and systems at once.{rest}",
    )


def _differences(analysis: Analysis, found: PositionCurves) -> dict[str, IndexInterval]:
    base = found.curves.get(analysis.baseline.name)
    if base is None:
        return {}
    return {n: c.index - base.index for n, c in found.curves.items() if c is not base}


def _text(index: IndexInterval) -> str:
    return f"{number(index.value)} {range_text(index.low, index.high)}"


def _signed_text(index: IndexInterval) -> str:
    return f"{signed(index.value)} {range_text(index.low, index.high)}"
