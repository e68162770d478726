"""A positional analysis as files: CSV tables, JSON, plots and a page without outside files."""

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from sweeps.positions.analysis import PositionResult, Settings, relative_of
from sweeps.positions.judged_chunks import RELEVANT, JudgedSummary
from sweeps.positions.plots import (
    best_chunk_plot,
    judged_plot,
    length_plot,
    position_plot,
    relative_plot,
    rsv_plot,
)
from sweeps.positions.positions import Histogram, Position, position_histogram
from sweeps.positions.rsv import ChunkScore, CurvePoint
from sweeps.report.figures.figure import Drawing

PAGE = "index.html"


class Described(NamedTuple):
    """The collection and pairs of an analysis."""

    collection: str
    content_hash: str
    split: str
    num_pairs: int
    facts: Mapping[str, str]


class Plot(NamedTuple):
    """A drawing, its heading and its caption."""

    heading: str
    drawing: Drawing
    caption: str


def write_analysis(
    folder: Path, result: PositionResult, settings: Settings, described: Described
) -> Path:
    """Write all files into `folder` and return the page."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_tables(folder, result)
    content = {
        "collection": described.collection,
        "content_hash": described.content_hash,
        "split": described.split,
        "relevant_pairs": described.num_pairs,
        "settings": vars(settings) | dict(described.facts),
        "summary": dict(result.summary) | _judged(result),
    }
    (folder / "summary.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    shown = plots(result, settings)
    for plot in shown:
        (folder / f"{plot.drawing.name}.svg").write_text(plot.drawing.svg, encoding="utf-8")
        (folder / f"{plot.drawing.name}.png").write_bytes(plot.drawing.png)
    page = folder / PAGE
    page.write_text(_page(result, shown, described), encoding="utf-8")
    return page


def plots(result: PositionResult, settings: Settings) -> list[Plot]:
    """The plots of all results, the most informative first."""
    shown: list[Plot] = []
    if any(position.found for position in result.positions):
        shown += _position_plots(result, settings)
    if result.curves:
        shown += _rsv_plots(result, settings)
    if result.judged_summary:
        shown.append(_judged_plot(result.judged_summary))
    drawing = length_plot(result.lengths, window=settings.first)
    caption = "Documents by length; those right of the line are longer than one first window."
    shown.append(Plot("Document lengths", drawing, caption))
    return shown


def _position_plots(result: PositionResult, settings: Settings) -> list[Plot]:
    matched = [position for position in result.positions if position.found]
    missing = len(result.positions) - len(matched)
    counts = f"{len(matched)} relevant passages were found in their documents, {missing} were not. "
    chance = "The dashed line is chance: each passage anywhere in its own document."
    histogram = position_histogram(result.positions)
    more = " The last bar has all that start later." if histogram.open_end else ""
    relative = relative_plot(relative_of(result, settings))
    return [
        Plot(
            "First relevant position",
            position_plot(histogram, window=settings.first),
            counts + chance + more,
        ),
        Plot("Relative position of the relevant passage", relative, chance),
    ]


def _rsv_plots(result: PositionResult, settings: Settings) -> list[Plot]:
    num_documents = {
        name: len({(score.query_id, score.doc_id) for score in scores})
        for name, scores in result.scores.items()
    }
    counted = ", ".join(f"{name} {count}" for name, count in num_documents.items())
    return [
        Plot(
            "Scores by position",
            rsv_plot(result.curves),
            f"Chunks of {settings.window} words of relevant documents ({counted}), scored against "
            "their query and put on a scale within each document; the band is the 95% interval of "
            "the mean over queries. A flat line is no positional bias.",
        ),
        Plot(
            "Where the best chunk is",
            best_chunk_plot(result.curves),
            "Relevant documents by the place of their best chunk, divided among equally good "
            "ones. A chunk in several parts counts in each by its share there.",
        ),
    ]


def _judged_plot(summary: JudgedSummary) -> Plot:
    caption = (
        f"{len(summary.first_relevant)} of {len(summary.sizes)} documents by their first chunk of "
        f"grade {RELEVANT} or more, against the number of documents with that many chunks; "
        f"{summary.without_relevant} have no such chunk, {summary.malformed} of "
        f"{summary.num_chunks} answers had no grade."
    )
    return Plot("First relevant chunk, graded by a chat model", judged_plot(summary), caption)


def _write_tables(folder: Path, result: PositionResult) -> None:
    rows = [
        (kind, *row) for kind, of_kind in result.lengths.items() for row in _histogram_rows(of_kind)
    ]
    _write_csv(folder / "lengths.csv", ("documents", "from_words", "to_words", "count"), rows)
    if result.positions:
        names = (*Position._fields, "relative")
        values = ((*p, f"{p.relative:.6g}" if p.found else "") for p in result.positions)
        _write_csv(folder / "positions.csv", names, values)
    if result.curves:
        curve = [(name, *point) for name, of_kind in result.curves.items() for point in of_kind]
        _write_csv(folder / "rsv.csv", ("scorer", *CurvePoint._fields), curve)
        scores = [(name, *score) for name, of_kind in result.scores.items() for score in of_kind]
        _write_csv(folder / "rsv_chunks.csv", ("scorer", *ChunkScore._fields), scores)
    if result.judged:
        _write_csv(folder / "judged.csv", type(result.judged[0])._fields, result.judged)


def _histogram_rows(histogram: Histogram) -> list[tuple[float, float, int]]:
    edges = histogram.edges.tolist()
    return list(zip(edges[:-1], edges[1:], histogram.counts.tolist(), strict=True))


def _write_csv(path: Path, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for row in rows:
            writer.writerow([f"{v:.6g}" if isinstance(v, float) else v for v in row])


def _judged(result: PositionResult) -> dict[str, int]:
    judged = result.judged_summary
    if judged is None:
        return {}
    return {
        "judged: documents": len(judged.sizes),
        "judged: chunks": judged.num_chunks,
        "judged: answers without a grade": judged.malformed,
        "judged: documents without a relevant chunk": judged.without_relevant,
    }


def _page(result: PositionResult, shown: Sequence[Plot], described: Described) -> str:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    summary = dict(result.summary) | _judged(result)
    return environment.from_string(_TEMPLATE).render(
        described=described,
        summary=[(name, _number(name, value)) for name, value in summary.items()],
        plots=[(plot, Markup(plot.drawing.inline)) for plot in shown],
    )


def _number(name: str, value: float | int | str) -> str:
    if "share" in name:
        return f"{value:.1%}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3g}"


_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Positional bias of {{ described.collection }}</title>
<style>
body { margin: 0 auto; max-width: 52rem; padding: 2rem 1.25rem 4rem; color: #222; background: #fff;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .5rem; }
.facts, figcaption { color: #666; font-size: .88rem; }
figure { margin: 0; overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
td { padding: .2rem .8rem .2rem 0; border-bottom: 1px solid #ddd; }
td:last-child { text-align: right; padding: 0; }
@media print { figure, tr { break-inside: avoid; } h2 { break-after: avoid; } }
</style>
</head>
<body>
<h1>Where is {{ described.collection }} relevant?</h1>
<p class="facts">split {{ described.split }} · {{ described.num_pairs }} relevant documents ·
content {{ described.content_hash }}{% for name, value in described.facts.items() %}
 · {{ name }} {{ value }}{% endfor %}</p>
<table>
{% for name, value in summary %}
<tr><td>{{ name }}</td><td>{{ value }}</td></tr>
{% endfor %}
</table>
{% for plot, drawing in plots %}
<h2>{{ plot.heading }}</h2>
<figure>{{ drawing }}<figcaption>{{ plot.caption }}</figcaption></figure>
{% endfor %}
</body>
</html>
"""
