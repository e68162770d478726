"""The places of the blocks that systems select, in a report: rows of results.json, a table, a
figure."""

from dataclasses import asdict
from typing import Any

from sweeps.report.drawing import GREY, WIDTH, Drawing, draw, grid, legend, new_figure, style
from sweeps.report.positions import DRAWN
from sweeps.report.table import Table, table
from sweeps.systems.load import Sweep
from sweeps.systems.selected_blocks import TENTHS

_EDGES = [f"{100 * at // TENTHS}-{100 * (at + 1) // TENTHS} %" for at in range(TENTHS)]


def selected_results(sweep: Sweep) -> dict[str, Any]:
    """The counts of each system, and the share of its selected blocks in each tenth."""
    return {
        cell: asdict(blocks) | {"tenths": blocks.tenths}
        for cell, blocks in sweep.selected_blocks.items()
    }


def selected_table(sweep: Sweep) -> Table:
    """A row for each system that selects: documents read in part, with all blocks, and shares."""
    rows = [
        (
            sweep.label(cell),
            f"{sum(blocks.documents.values()):,}",
            f"{blocks.whole:,}",
            *(f"{100 * share:.1f}" for share in blocks.tenths),
        )
        for cell, blocks in sweep.selected_blocks.items()
    ]
    return table(
        ["system", "read in part", "all blocks", *_EDGES],
        rows,
        title="Selected blocks",
        caption="Test candidates of all runs, and the percentage of the blocks selected from "
        "those read in part that lies in each tenth of its document, from its start.",
    )


@style()
def selected_plot(sweep: Sweep) -> Drawing:
    """The share of the selected blocks in each tenth of a document."""
    figure = new_figure(WIDTH, 3.2)
    axes = figure.add_subplot()
    grid(axes, "y")
    edges = [at / TENTHS for at in range(TENTHS + 1)]
    for (cell, blocks), colour in zip(sweep.selected_blocks.items(), DRAWN, strict=False):
        shares = [100 * share for share in blocks.tenths]
        axes.stairs(shares, edges, baseline=None, color=colour, lw=1.6, label=sweep.label(cell))
    axes.axhline(100 / TENTHS, color=GREY, lw=1, ls=":", label="by chance")
    axes.set(xlabel="place in the document", ylabel="selected blocks, %", xlim=(0, 1))
    axes.set_xticks([0, 0.5, 1], ["start", "middle", "end"])
    axes.set_ylim(bottom=0)
    legend(figure)
    more = len(sweep.selected_blocks) - len(DRAWN)
    return draw(
        figure,
        "selected_blocks",
        "histogram: the selected blocks by their place in the document",
        heading="Selected blocks",
        caption="Of documents that were read in part, by tenths of a document."
        + (f" The table has {more} more." if more > 0 else ""),
    )
