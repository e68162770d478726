"""The files of a report, from an analysis."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rank_core.files import atomic_write
from sweeps.findings.analysis import Analysis
from sweeps.report.figures import figures
from sweeps.report.over_sets import OverSets
from sweeps.report.page import Content, page, results_json
from sweeps.report.positions import position_findings, position_plot
from sweeps.report.query_page import QUERY_PAGE, Moved, query_page
from sweeps.report.results import comparisons_csv, paper_table, results_csv
from sweeps.report.selected_blocks import selected_plot
from sweeps.report.table import latex, markdown
from sweeps.systems.access_log import Access

PLOTS = "plots"


def report_files(
    analysis: Analysis,
    *,
    label: str,
    accesses: Sequence[Access] = (),
    queries: Sequence[Moved] = (),
    remarks: Sequence[str] = (),
    compact: bool = False,
    more: Mapping[str, Any] | None = None,
    over: OverSets | None = None,
) -> dict[str, bytes]:
    """{file name below the folder: contents}. `label` is the table's in LaTeX; `remarks` end its
    notes; `compact` shows means and letters alone; `more` is added to results.json; `over` is
    the table over all test sets."""
    drawn = figures(analysis)
    if places := position_findings(analysis):
        drawn.append(position_plot(analysis, places))
    if analysis.sweep.selected_blocks:
        drawn.append(selected_plot(analysis.sweep))
    content = Content(analysis, drawn, accesses, queries, places, over)
    shown = paper_table(analysis, remarks, compact=compact)
    texts = {
        "comparisons.csv": comparisons_csv(analysis),
        "table.md": markdown(shown),
        "table.tex": latex(shown, label),
        "table.csv": results_csv(analysis.rows),
        "results.json": results_json(content, more),
        "index.html": page(content),
        **({QUERY_PAGE: query_page(analysis, queries)} if queries else {}),
        **{f"{PLOTS}/{figure.name}.svg": figure.svg for figure in drawn},
    }
    pictures = {f"{PLOTS}/{figure.name}.png": figure.png for figure in drawn}
    return {name: text.encode() for name, text in texts.items()} | pictures


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes all of them, and their folders."""
    for parent in {(folder / name).parent for name in files}:
        parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:  # none is renamed before all are written, the first one last
        for name, data in files.items():
            stack.enter_context(atomic_write(folder / name)).write_bytes(data)
