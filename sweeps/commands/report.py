"""`python -m sweeps report DIR`: write the report of a sweep again from what is on disk."""

import shlex
from collections.abc import Sequence

from sweeps.plan.command_line import Parser
from sweeps.report.access import ACCESS_FILE
from sweeps.report.build import write_report
from sweeps.store.opened_sweep import opened


def main(argv: Sequence[str]) -> int:
    """Write the report of the named sweep folder and print what it found; exit code 0."""
    parser = Parser("python -m sweeps report", main.__doc__)
    parser.add_argument("sweep", metavar="DIR", help="the folder or URI of one sweep")
    command = shlex.join(["python", "-m", "sweeps", "report", *argv])
    with opened(parser.parse_args(argv).sweep) as store:
        report = write_report(store.folder, command, uri=store.uri)
        store.push("report", ACCESS_FILE)
    print(report.text, end="")
    return 0
