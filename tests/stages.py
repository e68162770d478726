"""The stages of a run of all tests, in a table at its end: `python tests/stages.py FILE`.

Where RANKSWEEP_STAGES names a file, each run of pytest adds a line to it (tests/conftest.py), named
by RANKSWEEP_STAGE; what is no pytest, or did not begin, is added by `python tests/stages.py FILE
STAGE OUTCOME [SECONDS]`."""

import csv
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

COLUMNS = ("stage", "outcome", "passed", "failed", "skipped", "late", "seconds")
NO_TIME = "no time left for long tests"
"""The reason of a test that is skipped because it would begin too late: `late` counts these."""


def add(path: str | Path, stage: str, outcome: str, seconds: float, **counts: int) -> None:
    """Adds a stage to the file; numbers that are not given are empty."""
    row = {"stage": stage, "outcome": outcome, "seconds": round(seconds), **counts}
    with open(path, "a", newline="") as file:
        csv.writer(file).writerow([row.get(name, "") for name in COLUMNS])


def counts(reports: Mapping[str, Sequence[Any]]) -> dict[str, int]:
    """The numbers of a run from pytest's reports by kind; an error in a fixture is a failure."""
    skipped = reports.get("skipped", [])
    late = sum(NO_TIME in str(report.longrepr) for report in skipped)
    return {
        "passed": len(reports.get("passed", [])),
        "failed": len(reports.get("failed", [])) + len(reports.get("error", [])),
        "skipped": len(skipped) - late,
        "late": late,
    }


def table(path: str | Path) -> str:
    """The stages with their sums, as lines; the last one counts the tests."""
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in csv.reader(Path(path).open())]
    number = {name: sum(int(row[name] or 0) for row in rows) for name in COLUMNS[2:]}
    total = {"stage": "all", "outcome": "", **{name: str(n) for name, n in number.items()}}
    shown = [dict(zip(COLUMNS, COLUMNS, strict=True)), *rows, total]
    width = {name: max(len(row[name]) for row in shown) for name in COLUMNS}
    lines = [
        "  ".join(
            row[name].ljust(width[name]) if name in COLUMNS[:2] else row[name].rjust(width[name])
            for name in COLUMNS
        ).rstrip()
        for row in shown
    ]
    late = number["late"]
    if late:
        lines.append(f"late: {late} tests were skipped because they would have begun too late")
    sums = f"{number['passed']} passed, {number['failed']} failed"
    return "\n".join([*lines, f"total: {sums}, {number['skipped'] + late} skipped"])


if __name__ == "__main__":
    file, *words = sys.argv[1:]
    if words:
        stage, outcome, *seconds = words
        add(file, stage, outcome, float(*seconds or [0]))
    elif os.path.exists(file):
        print(table(file))
