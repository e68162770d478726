"""A positional analysis as files: CSV tables, JSON, figures and a page without outside files."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rank_core.files import write_json
from sweeps.positions.analysis import PositionResult
from sweeps.positions.judged_chunks import JudgedChunk
from sweeps.positions.plots import judged_figure, position_figure, rsv_figure
from sweeps.positions.positions import Position
from sweeps.positions.rsv import RsvPoint
from sweeps.report.figures.figure import Shown
from sweeps.report.html import render
from sweeps.report.sections.section import Section
from sweeps.report.table import csv_text, table

PAGE = "index.html"


def write_analysis(folder: Path, result: PositionResult) -> Path:
    """Writes all files into `folder` and returns the page."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_tables(folder, result)
    content = {
        "collection": result.collection,
        "content_hash": result.content_hash,
        "split": result.split,
        "relevant_pairs": result.num_pairs,
        "settings": vars(result.settings) | dict(result.facts),
        "summary": dict(result.summary),
    }
    write_json(folder / "summary.json", content)
    shown = figures(result)
    for one in shown:
        (folder / f"{one.drawing.name}.svg").write_text(one.drawing.svg, encoding="utf-8")
        (folder / f"{one.drawing.name}.png").write_bytes(one.drawing.png)
    page = folder / PAGE
    page.write_text(_page(result, shown), encoding="utf-8")
    return page


def figures(result: PositionResult) -> list[Shown]:
    """The figures of the evidence that there is, the most informative first."""
    shown = []
    if any(position.found for position in result.positions):
        shown.append(position_figure(result.positions, first=result.settings.first))
    if result.curves:
        shown.append(rsv_figure(result.curves, window=result.settings.window))
    if result.judged_summary:
        shown.append(judged_figure(result.judged_summary))
    return shown


def _write_tables(folder: Path, result: PositionResult) -> None:
    def write(name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        rounded = ([f"{v:.6g}" if isinstance(v, float) else v for v in row] for row in rows)
        (folder / name).write_text(csv_text(columns, rounded), encoding="utf-8")

    if result.positions:
        rows = ((*p, p.relative if p.found else None) for p in result.positions)
        write("positions.csv", (*Position._fields, "relative"), rows)
    if result.curves:
        points = ((name, *point) for name, curve in result.curves.items() for point in curve)
        write("rsv.csv", ("scorer", *RsvPoint._fields), points)
    if result.judged:
        write("judged.csv", JudgedChunk._fields, result.judged)


def _page(result: PositionResult, shown: Sequence[Shown]) -> str:
    rows = [(name, _number(name, value)) for name, value in result.summary.items()]
    facts = [f"split {result.split}", f"{result.num_pairs} relevant documents"]
    facts += [f"{name} {value}" for name, value in result.facts.items()]
    return render(
        "page.html",
        title=f"Where is {result.collection} relevant?",
        answer=result.answer,
        notes=[],
        facts=[*facts, f"content {result.content_hash}"],
        sections=[
            Section("", figures=shown),
            Section("Numbers", tables=[table(("", "value"), rows)]),
        ],
    )


def _number(name: str, value: float) -> str:
    if "share" in name:
        return f"{value:.1%}"
    return f"{value:,.0f}" if isinstance(value, int) or value >= 100 else f"{value:.3g}"
