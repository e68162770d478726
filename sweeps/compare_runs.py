"""`python -m sweeps compare A.run B.run --qrels Q`: the tested table for any TREC runs.

Several runs of one system are its seeds. With one run per system only the queries can be random:
the table says so wherever it matters.
"""

import argparse
import glob
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rank_core.errors import BadInput
from rank_core.stats.multiplicity import CORRECTIONS
from rank_core.table import caption, render_csv, render_latex, render_markdown
from sweeps.report.results import comparisons_csv
from sweeps.run_comparison import MEASURES, RunComparison, compare_runs
from sweeps.run_comparison_text import SYNTAX, comparison_text, reservations


def main(argv: Sequence[str]) -> int:
    """Test TREC runs against a baseline and print the table; exit code 0."""
    parser = argparse.ArgumentParser(
        prog="python -m sweeps compare",
        description=main.__doc__,
        epilog="SYSTEM is a run, or NAME=run1,run2,run3 for several runs (seeds) of one system. "
        "A pattern in quotes stands for its files: 'NAME=runs/maxp.*.run'. A run by itself is a "
        "system with the name of its file.",
    )
    parser.add_argument("systems", nargs="+", metavar="SYSTEM")
    parser.add_argument("--qrels", type=Path, required=True, metavar="FILE")
    parser.add_argument("--baseline", metavar="NAME", help="default: the first system")
    parser.add_argument("--measures", nargs="+", default=MEASURES, metavar="MEASURE")
    parser.add_argument("--alpha", type=float, default=0.05)
    parser.add_argument("--correction", choices=CORRECTIONS, default="holm")
    parser.add_argument(
        "--deterministic",
        action="append",
        default=[],
        metavar="NAME",
        help="a system (BM25) whose one run is the only one there is; may be repeated",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="write the table there as well")
    given = parser.parse_args(argv)
    found = compare_runs(
        systems_of(given.systems),
        given.qrels,
        baseline=given.baseline,
        measures=given.measures,
        alpha=given.alpha,
        correction=given.correction,
        deterministic=given.deterministic,
    )
    print(comparison_text(found), end="")
    if given.out is not None:
        write_files(found, given.out)
        print(f"Tables: {given.out}")
    return 0


def systems_of(arguments: Sequence[str]) -> dict[str, tuple[Path, ...]]:
    """{name: its runs} from `NAME=run1,run2`, patterns and plain paths, in the given order."""
    systems: dict[str, tuple[Path, ...]] = {}
    for text in arguments:
        name, equals, rest = text.partition("=")
        if equals and not Path(text).exists():
            parts = rest.split(",")
            if not name or not all(parts):
                raise BadInput(f"a system is a run or NAME=run1,run2,run3, got {text!r}")
            found = {name: tuple(path for part in parts for path in _files(part))}
        else:
            paths = _files(text)
            found = {_stem(path): (path,) for path in paths}
            if len(found) < len(paths):
                raise BadInput(f"runs of {text} share a file name: {SYNTAX}")
        for name, runs in found.items():
            if name in systems:
                raise BadInput(f"a system must be named once, got {name!r} twice: {SYNTAX}")
            systems[name] = runs
    if len(systems) < 2:
        raise BadInput(f"a comparison needs two systems or more, got {', '.join(systems)}")
    return systems


def write_files(found: RunComparison, folder: Path) -> None:
    """Write `table.md`, `table.tex`, `table.csv` and `comparisons.csv`."""
    text = caption(
        found.rows,
        split=found.qrels.name,
        alpha=found.alpha,
        baselines=(found.baseline,),
        ties=found.tied,
        deterministic=found.deterministic,
        third_party=True,
    )
    text = " ".join([text, *reservations(found), *found.notes])
    aim: dict[str, Any] = {"alpha": found.alpha, "baselines": (found.baseline,), "caption": text}
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in {
        "table.md": render_markdown(found.rows, **aim),
        "table.tex": render_latex(found.rows, label="tab:comparison", **aim),
        "table.csv": render_csv(found.rows),
        "comparisons.csv": comparisons_csv(found.comparisons),
    }.items():
        (folder / name).write_text(content, encoding="utf-8")


def _files(text: str) -> list[Path]:
    """The file, or what a pattern stands for, in sorted order."""
    if Path(text).exists() or not glob.has_magic(text):
        return [Path(text)]
    found = sorted(glob.glob(text, recursive=True))
    if not found:
        raise BadInput(f"a pattern must stand for a file, found none for {text}")
    return [Path(one) for one in found]


def _stem(path: Path) -> str:
    """`maxp.1` for `runs/maxp.1.run.gz`."""
    return Path(path.name.removesuffix(".gz")).stem
