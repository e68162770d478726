"""`ranksweep report DIR`: write the report of a sweep again from its files."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from sweeps.plan.command_line import INTERPOLATE, Parser, check_writable
from sweeps.report.access import ACCESS_FILE
from sweeps.report.build import write_report
from sweeps.store.opened_sweep import opened
from sweeps.store.storage_retry import answered
from sweeps.store.sweep_file import INTERPOLATED


def main(argv: Sequence[str]) -> int:
    """Write the report of a finished or running sweep and print its table and verdict; exit code
    0."""
    parser = Parser("ranksweep report", main.__doc__)
    parser.add_argument("sweep", metavar="DIR", help="the folder or URI of one sweep")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: DIR/report of the sweep")
    parser.add_argument(
        "--published",
        action="store_true",
        help="add published values of the same collection, measure and system; they are not tested",
    )
    parser.add_argument(
        "--interpolate",
        choices=INTERPOLATE,
        default="",
        help="the systems with a row interpolated with the first stage: the baseline and the best "
        "on dev, all, or none (default: those of the sweep's command)",
    )
    command = shlex.join(["python", "-m", "sweeps", "report", *argv])
    arguments = parser.parse_args(argv)
    with opened(arguments.sweep, trials=True) as store:
        out = arguments.out or store.folder / "report"
        check_writable("--out (default DIR/report)", out)
        report = write_report(
            store.folder,
            command,
            uri="" if arguments.out else store.uri,
            out=out,
            with_published=arguments.published,
            interpolate=arguments.interpolate,
        )
        changed = (*(() if arguments.out else ("report",)), INTERPOLATED, ACCESS_FILE)
        answered(store, lambda: store.push(*changed))
    print(report.text, end="")
    return 0
