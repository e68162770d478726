"""From a sweep folder to its `report/`."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rank_core.stats.compare import Comparison
from rank_core.table import render_csv, render_latex, render_markdown
from sweeps.report.analysis import Analysis, analyse
from sweeps.report.load import load_sweep
from sweeps.report.page import page
from sweeps.report.results import comparisons_csv, results_json
from sweeps.report.terminal import terminal_text


@dataclass(frozen=True)
class Report:
    """A written report: its folder, its comparisons, and what a terminal shows of it."""

    folder: Path
    comparisons: list[Comparison]
    text: str


def write_report(sweep_dir: Path) -> Report:
    """Compare what the sweep in `sweep_dir` left and write `report/`; the same input gives the
    same bytes. A reader of an older report never sees half a file."""
    analysis = analyse(load_sweep(sweep_dir))
    folder = sweep_dir / "report"
    _write(folder, _files(analysis))
    return Report(
        folder=folder,
        comparisons=analysis.comparisons,
        text=terminal_text(analysis, folder / "index.html"),
    )


def _files(analysis: Analysis) -> dict[str, str]:
    """{file name: contents}."""
    sweep, rows, caption = analysis.sweep, analysis.rows, analysis.caption
    baselines = (sweep.baseline,) if analysis.comparisons else ()
    return {
        "comparisons.csv": comparisons_csv(analysis.comparisons),
        "table.md": render_markdown(rows, alpha=sweep.alpha, baselines=baselines, caption=caption),
        "table.tex": render_latex(
            rows,
            alpha=sweep.alpha,
            baselines=baselines,
            caption=caption,
            label=f"tab:{sweep.name}",
        ),
        "table.csv": render_csv(rows),
        "results.json": results_json(analysis),
        "index.html": page(analysis),
    }


def _write(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=".report-", dir=folder.parent))
    try:
        for name, text in files.items():
            (building / name).write_text(text, encoding="utf-8")
        for name in files:
            (building / name).replace(folder / name)
    finally:
        shutil.rmtree(building)
