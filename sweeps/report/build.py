"""From a sweep folder to its `report/`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rank_core.errors import BadInput
from rank_core.files import FULL, atomic_write
from rank_core.records import Collection
from rank_core.stats.compare import CellComparison
from sweeps.findings.analysis import Analysis, analyse
from sweeps.findings.unjudged import with_unjudged
from sweeps.report.chunk_sizes import chunking
from sweeps.report.chunking_file import FILE as CHUNKING
from sweeps.report.figures import figures
from sweeps.report.page import Content, page, results_json
from sweeps.report.positions import position_findings, position_plot
from sweeps.report.published import published, published_lines, with_reference
from sweeps.report.query_page import QUERY_PAGE, Moved, moved_queries, query_page, remember_texts
from sweeps.report.results import comparisons_csv, json_text, paper_table, results_csv
from sweeps.report.table import latex, markdown
from sweeps.report.terminal import terminal_text
from sweeps.systems.access import record_access
from sweeps.systems.access_log import Access
from sweeps.systems.derived import with_interpolated
from sweeps.systems.load import load_sweep, with_clusters

PLOTS = "plots"


@dataclass(frozen=True)
class Report:
    """A written report: its folder, its comparisons, and its text for a terminal."""

    folder: Path
    comparisons: list[CellComparison]
    text: str


@contextmanager
def _room_in(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise BadInput(
            f"{error.filename or folder}: {error.strerror}. The trials are kept; free some space "
            "there, and give the same command again"
        ) from None


def write_report(
    sweep_dir: Path,
    command: str | None = None,
    uri: str = "",
    out: Path | None = None,
    collection: Collection | None = None,
    with_published: bool = False,
    interpolate: str = "",
    clusters: str = "",
    verbose: bool = False,
    correct_over: str = "",
) -> Report:
    """Compare the systems of the sweep in `sweep_dir` and write `report/`, or `out`. The same input
    makes the same bytes. Files are replaced whole. `command` is logged as opening the test values;
    by default the sweep's own. `uri` is the address of the sweep where `sweep_dir` is a copy. With
    a `collection` the texts that the page shows are stored for later reports. `interpolate` names
    the cells that have a row with the first stage, `clusters` the clusters of queries,
    `correct_over` what p is corrected over; by default those of the sweep's command. `verbose`
    gives the text for a terminal in full. Raises `BadInput` where there is no room for it.
    """
    with _room_in(out or sweep_dir / "report"):
        sweep = load_sweep(sweep_dir)
        sweep = with_clusters(sweep, clusters) if clusters else sweep
        if correct_over:
            sweep = replace(sweep, about=replace(sweep.about, correct_over=correct_over))
        analysis = with_unjudged(analyse(with_interpolated(sweep, interpolate)))
        return _write_report(analysis, command, uri, out, collection, with_published, verbose)


def _write_report(
    analysis: Analysis,
    command: str | None,
    uri: str,
    out: Path | None,
    collection: Collection | None,
    with_published: bool,
    verbose: bool,
) -> Report:
    sweep = analysis.sweep
    sweep_dir = sweep.folder
    folder = out or sweep_dir / "report"
    if with_published or sweep.about.published:
        values = published(sweep) if with_published else {}
        analysis = replace(analysis, published=with_reference(values, analysis))
    accesses = record_access(sweep, command or sweep.about.command)
    queries = moved_queries(analysis)
    if collection is not None and queries:
        remember_texts(sweep_dir, queries, collection)
    files = report_files(
        analysis, accesses=accesses, queries=queries, label=f"tab:{sweep.about.sweep}"
    )
    if sweep.serving and sweep.serving.file:
        files[sweep.serving.file] = json_text(sweep.serving.setting).encode()
    if stated := chunking(analysis):
        files[CHUNKING] = json_text(stated).encode()
    write_files(folder, files)
    if not queries:
        (folder / QUERY_PAGE).unlink(missing_ok=True)  # of a report of other runs
    for path in [] if out else (folder / PLOTS).glob("*"):  # of an older report
        if f"{PLOTS}/{path.name}" not in files and path.suffix in (".svg", ".png"):
            path.unlink()
    text = terminal_text(analysis, folder / "index.html", uri, verbose=verbose)
    text += "".join(f"{line}\n" for line in published_lines(analysis))
    return Report(folder, analysis.comparisons, text)


def report_files(
    analysis: Analysis,
    *,
    label: str,
    accesses: Sequence[Access] = (),
    queries: Sequence[Moved] = (),
    remarks: Sequence[str] = (),
    compact: bool = False,
    more: Mapping[str, Any] | None = None,
) -> dict[str, bytes]:
    """{file name below the folder: contents}. `label` is the table's in LaTeX; `remarks` end its
    notes; `compact` shows means and letters alone; `more` is added to results.json."""
    drawn = figures(analysis)
    if places := position_findings(analysis):
        drawn.append(position_plot(analysis, places))
    content = Content(analysis, drawn, accesses, queries, places)
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
