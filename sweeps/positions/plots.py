"""Plots of lengths, positions and scores by position; the same numbers give the same files."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import FuncFormatter

from sweeps.positions.judged_chunks import JudgedSummary
from sweeps.positions.positions import Histogram
from sweeps.positions.rsv import CurvePoint
from sweeps.report.figures.figure import BLUE, GREY, INK, ORANGE, Drawing, draw, new_figure, style

WIDTH, HEIGHT = 7.4, 3.0  # inches
_PERCENT = FuncFormatter(lambda share, _: f"{100 * share:.3g}%")
_NUMBER = FuncFormatter(lambda number, _: f"{number:,.0f}")
_COLOURS = (BLUE, ORANGE, "#009e73", "#cc79a7", INK)
_MARKS = ("o", "s", "^", "D", "v")
_CHANCE, _HAVING, _FIRST = "every place equally likely", "has such a chunk", "a first window of "
_COMPARED = (_CHANCE, _HAVING, _FIRST)
_REFERENCE: dict[str, Any] = {"color": INK, "linewidth": 1.4, "linestyle": (0, (5, 2))}


def length_plot(lengths: Mapping[str, Histogram], *, window: int) -> Drawing:
    """Shares of documents by length, one outline per kind of document; a line at `window` words,
    where a model stops reading."""
    with style():
        figure, axes = _axes()
        for number, (label, histogram) in enumerate(lengths.items()):
            axes.stairs(
                histogram.shares,
                histogram.edges,
                label=label,
                color=_COLOURS[number],
                fill=number == 0,
                alpha=0.35 if number == 0 else 1,
                linewidth=1.6,
            )
        edges = next(iter(lengths.values())).edges
        grows = not np.allclose(np.diff(edges), edges[1] - edges[0])
        if grows:
            axes.set_xscale("log", base=2)
        axes.set_xlim(edges[0], edges[-1])
        _window_line(axes, window, edges)
        _words(axes, "words of the document" + (", log scale" if grows else ""))
        axes.set_ylabel("share of the documents")
        axes.yaxis.set_major_formatter(_PERCENT)
        _legend(figure, axes)
        return draw(figure, name="lengths", description="Documents by length in words")


def position_plot(histogram: Histogram, *, window: int) -> Drawing:
    """Relevant passages by the words before them, against chance."""
    with style():
        figure, axes = _axes()
        _bars(axes, histogram)
        _window_line(axes, window, histogram.edges)
        axes.set_xlim(0, histogram.edges[-1])
        _words(axes, "words before the relevant passage")
        _legend(figure, axes)
        description = "Relevant passages by the number of words before them"
        return draw(figure, name="positions", description=description)


def relative_plot(histogram: Histogram) -> Drawing:
    """Relevant passages by their relative position, against chance."""
    with style():
        figure, axes = _axes()
        _bars(axes, histogram)
        _relative(axes, "position of the relevant passage among all possible ones")
        _legend(figure, axes)
        description = "Relevant passages by their relative position"
        return draw(figure, name="relative-positions", description=description)


def judged_plot(summary: JudgedSummary) -> Drawing:
    """Documents by the number of their first relevant chunk, against how many have that chunk."""
    with style():
        figure, axes = _axes()
        numbers = np.arange(max(summary.sizes))
        axes.bar(
            numbers + 1, np.bincount(summary.first_relevant, minlength=len(numbers)), color=BLUE,
            width=0.9, label="first relevant chunk",
        )  # fmt: skip
        having = [sum(size > number for size in summary.sizes) for number in numbers]
        axes.stairs(
            having, np.arange(len(numbers) + 1) + 0.5, baseline=None, label=_HAVING,
            **_REFERENCE,
        )  # fmt: skip
        axes.set_xlim(0.5, len(numbers) + 0.5)
        axes.set_xlabel("chunk of the document")
        axes.set_ylabel("number of documents")
        axes.set_ylim(bottom=0)
        for axis in (axes.xaxis, axes.yaxis):
            axis.get_major_locator().set_params(integer=True)
        _legend(figure, axes)
        return draw(figure, name="judged", description="First relevant chunk of each document")


def rsv_plot(curves: Mapping[str, Sequence[CurvePoint]]) -> Drawing:
    """Mean scaled RSV by position, one curve with its interval per scorer."""
    with style():
        figure, axes = _axes()
        for number, (label, points) in enumerate(curves.items()):
            colour = _COLOURS[number % len(_COLOURS)]
            middle = [(point.low + point.high) / 2 for point in points]
            axes.plot(
                middle,
                [point.mean for point in points],
                marker=_MARKS[number % len(_MARKS)],
                color=colour,
                label=label,
                markersize=4.5,
            )
            low, high = [p.ci_low for p in points], [p.ci_high for p in points]
            axes.fill_between(middle, low, high, color=colour, alpha=0.15, linewidth=0)
        _relative(axes, "position of the chunk in its document")
        axes.set_ylabel("RSV, 0 worst to 1 best\nchunk of the document")
        axes.set_ylim(0, 1)
        _legend(figure, axes)
        return draw(figure, name="rsv", description="Scores of chunks by relative position")


def best_chunk_plot(curves: Mapping[str, Sequence[CurvePoint]]) -> Drawing:
    """Share of the documents whose best chunk is in each part, one group of bars per scorer."""
    with style():
        figure, axes = _axes()
        for number, (label, points) in enumerate(curves.items()):
            width = (points[0].high - points[0].low) * 0.86 / len(curves)
            left = [p.low + 0.07 * (p.high - p.low) + number * width for p in points]
            axes.bar(
                left,
                [point.best_share for point in points],
                width=width,
                align="edge",
                color=_COLOURS[number % len(_COLOURS)],
                label=label,
            )
        parts = next(iter(curves.values()))
        _chance(axes, [0, 1], [parts[0].high - parts[0].low])
        _relative(axes, "position of the best chunk in its document")
        axes.set_ylabel("share of the documents")
        axes.yaxis.set_major_formatter(_PERCENT)
        _legend(figure, axes)
        return draw(figure, name="best-chunk", description="Where the best chunk of a document is")


def _legend(figure: Any, axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    pairs = sorted(
        zip(handles, labels, strict=True), key=lambda pair: pair[1].startswith(_COMPARED)
    )
    figure.legend(
        [handle for handle, _ in pairs], [label for _, label in pairs],
        loc="outside upper left", ncols=4, frameon=False, fontsize=8,
    )  # fmt: skip


def _axes() -> tuple[Any, Any]:
    figure = new_figure(WIDTH, HEIGHT)
    axes = figure.add_subplot()
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.7)
    axes.set_axisbelow(True)
    return figure, axes


def _bars(axes: Any, histogram: Histogram) -> None:
    widths = np.diff(histogram.edges)
    axes.bar(
        histogram.edges[:-1], histogram.counts, width=widths * 0.94, align="edge", color=BLUE,
        label="found",
    )  # fmt: skip
    if histogram.expected is not None:
        _chance(axes, histogram.edges, histogram.expected)
    axes.set_ylabel("number of documents")
    axes.yaxis.get_major_locator().set_params(integer=True)


def _chance(axes: Any, edges: Any, heights: Any) -> None:
    axes.stairs(heights, edges, baseline=None, label=_CHANCE, **_REFERENCE)


def _window_line(axes: Any, window: int, edges: np.ndarray) -> None:
    """Only where there is anything on both sides of it."""
    if edges[0] < window < edges[-1]:
        axes.axvline(
            window, color=GREY, linewidth=1.5, linestyle=":", label=f"{_FIRST}{window} words"
        )


def _words(axes: Any, label: str) -> None:
    axes.set_ylim(bottom=0)
    axes.set_xlabel(label)
    axes.xaxis.set_major_formatter(_NUMBER)


def _relative(axes: Any, label: str) -> None:
    axes.set_xlim(0, 1)
    axes.set_ylim(bottom=0)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["start", "¼", "½", "¾", "end"])
    axes.set_xlabel(label)
