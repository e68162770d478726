"""A positional analysis as files: CSV tables, JSON, figures and a page without outside files."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rank_core.files import write_json
from sweeps.positions.analysis import PositionResult
from sweeps.positions.judged_chunks import RELEVANT, JudgedSummary
from sweeps.positions.passages import Position, position_histogram
from sweeps.positions.rsv import RsvPoint
from sweeps.report.drawing import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    Drawing,
    draw,
    grid,
    legend,
    new_figure,
    style,
)
from sweeps.report.html import Section, render
from sweeps.report.table import table
from sweeps.terminal.escape import csv_frame

PAGE = "index.html"
WIDTH, HEIGHT = 6.4, 3.2  # inches
_CHANCE: dict[str, Any] = {
    "baseline": None,
    "label": "every place equally likely",
    "color": INK,
    "linewidth": 1.4,
    "linestyle": (0, (5, 2)),
}


def write_analysis(folder: Path, result: PositionResult) -> Path:
    """Writes all files into `folder` and returns the page."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in _tables(result).items():
        csv_frame(rows).to_csv(folder / name, index=False, float_format="%.6g", lineterminator="\n")
    content = {
        "collection": result.collection,
        "content_hash": result.content_hash,
        "split": result.split,
        "relevant_pairs": result.num_pairs,
        "settings": asdict(result.settings) | dict(result.facts),
        "summary": dict(result.summary),
    }
    write_json(folder / "summary.json", content)
    shown = figures(result)
    for figure in shown:
        (folder / f"{figure.name}.svg").write_text(figure.svg, encoding="utf-8")
        (folder / f"{figure.name}.png").write_bytes(figure.png)
    facts = [f"split {result.split}", f"{result.num_pairs} relevant documents"]
    facts += [f"{name} {value}" for name, value in result.facts.items()]
    numbers = [(name, _number(name, value)) for name, value in result.summary.items()]
    tables = Section("Numbers", tables=[table(("", "value"), numbers)])
    page = render(
        "page.html",
        title=f"Where is {result.collection} relevant?",
        answer=result.answer,
        notes=[],
        facts=[*facts, f"content {result.content_hash}"],
        sections=[Section(figures=shown), tables],
    )
    (folder / PAGE).write_text(page, encoding="utf-8")
    return folder / PAGE


def figures(result: PositionResult) -> list[Drawing]:
    """The figures of the evidence that there is, the most informative first."""
    shown = []
    if any(position.found for position in result.positions):
        shown.append(position_figure(result.positions, first=result.settings.first))
    if result.curves:
        shown.append(rsv_figure(result.curves, window=result.settings.window))
    if result.judged_summary:
        shown.append(judged_figure(result.judged_summary))
    return shown


def _tables(result: PositionResult) -> dict[str, pd.DataFrame]:
    positions = pd.DataFrame(result.positions)
    if result.positions:
        positions["relative"] = [p.relative if p.found else None for p in result.positions]
    points = [(name, *point) for name, curve in result.curves.items() for point in curve]
    curves = pd.DataFrame(points, columns=["scorer", *RsvPoint._fields])
    judged = pd.DataFrame(result.judged).astype({"grade": "Int64"} if result.judged else {})
    tables = {"positions.csv": positions, "rsv.csv": curves, "judged.csv": judged}
    return {name: rows for name, rows in tables.items() if len(rows)}


def _number(name: str, value: float) -> str:
    if "share" in name:
        return f"{value:.1%}"
    return f"{value:,.0f}" if isinstance(value, int) or value >= 100 else f"{value:.3g}"


@style()
def position_figure(positions: Sequence[Position], *, first: int) -> Drawing:
    """Relevant passages by the words before them, against chance; a line at `first` words, where a
    first window ends."""
    histogram = position_histogram(positions)
    found = sum(position.found for position in positions)
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
    return draw(
        figure,
        "positions",
        "Relevant passages by position",
        heading="First relevant position",
        caption=f"{found} relevant passages were found in their documents, "
        f"{len(positions) - found} were not. The dashed line is chance: each passage anywhere in "
        f"its own document.{' The last bar has all that start later.' * histogram.open_end}",
    )


@style()
def rsv_figure(curves: Mapping[str, Sequence[RsvPoint]], *, window: int) -> Drawing:
    """Mean scaled RSV by position, one curve with its interval per scorer."""
    figure, axes = _axes(
        "position of the chunk in its document", "RSV, 0 worst to 1 best\nchunk of the document"
    )
    for (label, points), colour in zip(curves.items(), (BLUE, ORANGE), strict=False):
        middle = [(point.low + point.high) / 2 for point in points]
        axes.plot(middle, [point.mean for point in points], "o-", color=colour, label=label)
        low, high = [p.ci_low for p in points], [p.ci_high for p in points]
        axes.fill_between(middle, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["start", "¼", "½", "¾", "end"])
    legend(figure)
    return draw(
        figure,
        "rsv",
        "Scores of chunks by relative position",
        heading="Scores by position",
        caption=f"Chunks of {window} words of relevant documents, scored against their query and "
        "put on a scale within each document; the band is the 95% interval of the mean over "
        "queries. A flat line means no positional bias.",
    )


@style()
def judged_figure(summary: JudgedSummary) -> Drawing:
    """Documents by the number of their first relevant chunk, against how many have that chunk."""
    figure, axes = _axes("chunk of the document", "number of documents")
    numbers = np.arange(max(summary.sizes))
    counts = np.bincount(summary.first_relevant, minlength=len(numbers))
    axes.bar(numbers + 1, counts, 0.9, color=BLUE, label="first relevant chunk")
    having = [sum(size > number for size in summary.sizes) for number in numbers]
    edges = np.arange(len(numbers) + 1) + 0.5
    axes.stairs(having, edges, **_CHANCE | {"label": "has such a chunk"})
    axes.set(xlim=(0.5, len(numbers) + 0.5), ylim=(0, None))
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_major_locator().set_params(integer=True)
    legend(figure)
    return draw(
        figure,
        "judged",
        "First relevant chunk of each document",
        heading="First relevant chunk, graded by a chat model",
        caption=f"{len(summary.first_relevant)} of {len(summary.sizes)} documents by their first "
        f"chunk of grade {RELEVANT} or more, against the number of documents with that many "
        f"chunks; {summary.without_relevant} have no such chunk, {summary.malformed} of "
        f"{summary.num_chunks} answers had no grade.",
    )


def _axes(across: str, up: str) -> tuple[Any, Any]:
    figure = new_figure(WIDTH, HEIGHT)
    axes = figure.add_subplot()
    grid(axes, "y")
    axes.set(xlabel=across, ylabel=up)
    return figure, axes
