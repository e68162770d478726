"""The figures of a positional analysis; the same numbers give the same files."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sweeps.positions.judged_chunks import RELEVANT, JudgedSummary
from sweeps.positions.positions import Position, position_histogram
from sweeps.positions.rsv import RsvPoint
from sweeps.report.figures.figure import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    Shown,
    draw,
    grid,
    legend,
    new_figure,
    style,
)

WIDTH, HEIGHT = 6.4, 3.2  # inches
_COLOURS = (BLUE, ORANGE)  # of BM25 and of an encoder
_CHANCE: dict[str, Any] = {
    "baseline": None,
    "label": "every place equally likely",
    "color": INK,
    "linewidth": 1.4,
    "linestyle": (0, (5, 2)),
}


def position_figure(positions: Sequence[Position], *, first: int) -> Shown:
    """Relevant passages by the words before them, against chance; a line at `first` words, where a
    first window ends."""
    histogram = position_histogram(positions)
    found = sum(position.found for position in positions)
    with style():
        figure, axes = _axes("words before the relevant passage", "number of documents")
        left, widths = histogram.edges[:-1], np.diff(histogram.edges)
        axes.bar(left, histogram.counts, 0.94 * widths, align="edge", color=BLUE, label="found")
        axes.stairs(histogram.expected, histogram.edges, **_CHANCE)
        if histogram.edges[0] < first < histogram.edges[-1]:
            axes.axvline(first, color=GREY, ls=":", label=f"a first window of {first} words")
        axes.set(xlim=(0, histogram.edges[-1]), ylim=(0, None))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.yaxis.get_major_locator().set_params(integer=True)
        legend(figure, 3)
        drawing = draw(figure, name="positions", description="Relevant passages by position")
    caption = (
        f"{found} relevant passages were found in their documents, {len(positions) - found} were "
        "not. The dashed line is chance: each passage anywhere in its own document."
        + " The last bar has all that start later."
        * histogram.open_end
    )
    return Shown("First relevant position", drawing, caption)


def rsv_figure(curves: Mapping[str, Sequence[RsvPoint]], *, window: int) -> Shown:
    """Mean scaled RSV by position, one curve with its interval per scorer."""
    with style():
        figure, axes = _axes(
            "position of the chunk in its document", "RSV, 0 worst to 1 best\nchunk of the document"
        )
        for (label, points), colour in zip(curves.items(), _COLOURS, strict=False):
            middle = [(point.low + point.high) / 2 for point in points]
            axes.plot(middle, [point.mean for point in points], "o-", color=colour, label=label)
            low, high = [p.ci_low for p in points], [p.ci_high for p in points]
            axes.fill_between(middle, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["start", "¼", "½", "¾", "end"])
        legend(figure)
        drawing = draw(figure, name="rsv", description="Scores of chunks by relative position")
    caption = (
        f"Chunks of {window} words of relevant documents, scored against their query and put on a "
        "scale within each document; the band is the 95% interval of the mean over queries. A flat "
        "line is no positional bias."
    )
    return Shown("Scores by position", drawing, caption)


def judged_figure(summary: JudgedSummary) -> Shown:
    """Documents by the number of their first relevant chunk, against how many have that chunk."""
    with style():
        figure, axes = _axes("chunk of the document", "number of documents")
        numbers = np.arange(max(summary.sizes))
        counts = np.bincount(summary.first_relevant, minlength=len(numbers))
        axes.bar(numbers + 1, counts, 0.9, color=BLUE, label="first relevant chunk")
        having = [sum(size > number for size in summary.sizes) for number in numbers]
        edges = np.arange(len(numbers) + 1) + 0.5
        axes.stairs(having, edges, **{**_CHANCE, "label": "has such a chunk"})
        axes.set(xlim=(0.5, len(numbers) + 0.5), ylim=(0, None))
        for axis in (axes.xaxis, axes.yaxis):
            axis.get_major_locator().set_params(integer=True)
        legend(figure)
        drawing = draw(figure, name="judged", description="First relevant chunk of each document")
    caption = (
        f"{len(summary.first_relevant)} of {len(summary.sizes)} documents by their first chunk of "
        f"grade {RELEVANT} or more, against the number of documents with that many chunks; "
        f"{summary.without_relevant} have no such chunk, {summary.malformed} of "
        f"{summary.num_chunks} answers had no grade."
    )
    return Shown("First relevant chunk, graded by a chat model", drawing, caption)


def _axes(across: str, up: str) -> tuple[Any, Any]:
    figure = new_figure(WIDTH, HEIGHT)
    axes = figure.add_subplot()
    grid(axes, "y")
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    return figure, axes
