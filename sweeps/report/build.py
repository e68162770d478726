"""From a sweep folder to its `report/`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rank_core.errors import BadInput
from rank_core.files import FULL
from rank_core.records import Collection
from rank_core.stats.compare import CellComparison
from sweeps.findings.analysis import Analysis, analyse
from sweeps.findings.unjudged import with_unjudged
from sweeps.report.chunk_sizes import chunking
from sweeps.report.chunking_file import FILE as CHUNKING
from sweeps.report.comparison_files import comparison_files, sets_text
from sweeps.report.files import PLOTS, report_files, write_files
from sweeps.report.over_sets import SETS, over_sets
from sweeps.report.published import published, published_lines, with_reference
from sweeps.report.query_page import QUERY_PAGE, moved_queries, remember_texts
from sweeps.report.results import json_text
from sweeps.report.terminal import terminal_text
from sweeps.systems.access import record_access
from sweeps.systems.derived import with_interpolated
from sweeps.systems.load import load_sweep, with_clusters


@dataclass(frozen=True)
class Report:
    """A written report: its folder, its comparisons, and its text for a terminal."""

    folder: Path
    comparisons: list[CellComparison]
    text: str
    text_of_sets: str = ""  # of the table over all test sets


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
            tests = replace(sweep.tests, correct_over=correct_over)
            sweep = replace(sweep, about=replace(sweep.about, tests=tests))
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
    over = over_sets(sweep, uri)
    files = report_files(
        analysis, accesses=accesses, queries=queries, label=f"tab:{sweep.about.sweep}", over=over
    )
    if over:
        files |= {f"{SETS}/{name}": content for name, content in comparison_files(over).items()}
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
    of_sets = sets_text(over, folder, verbose=verbose) if over else ""
    return Report(folder, analysis.comparisons, text, of_sets)
