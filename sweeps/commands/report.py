"""`ranksweep report DIR`: write the report of a sweep again from its files."""

from collections.abc import Sequence
from pathlib import Path

from sweeps.plan.next_command import our_command
from sweeps.report.build import write_report
from sweeps.store.sweep_file import INTERPOLATED, opened, send
from sweeps.store.test_options import CORRECT_OVER
from sweeps.systems.access_log import ACCESS_FILE
from sweeps.terminal.command_line import (
    CLUSTERS_HELP,
    CLUSTERS_OF,
    CORRECT_OVER_HELP,
    INTERPOLATE,
    VERBOSE,
    Parser,
    check_writable,
)
from sweeps.terminal.text import say


def main(argv: Sequence[str]) -> int:
    """Write the report of a finished or running sweep and print its table and recommendation;
    exit code 0."""
    command = our_command("report", *argv)
    arguments = parser().parse_args(argv)
    with opened(arguments.sweep) as records:
        out = arguments.out or records.folder / "report"
        check_writable("--out (default DIR/report)", out)
        report = write_report(
            records.folder,
            command,
            uri="" if arguments.out else records.uri,
            out=out,
            with_published=arguments.published,
            interpolate=arguments.interpolate,
            clusters=arguments.clusters,
            verbose=arguments.verbose,
            correct_over=arguments.correct_over,
        )
        changed = (*(() if arguments.out else ("report",)), INTERPOLATED, ACCESS_FILE)
        send(records, *changed)
    say("\n".join(filter(None, [report.text, report.text_of_sets])), end="")
    return 0


def parser() -> Parser:
    """The arguments and flags of `ranksweep report`."""
    parser = Parser("ranksweep report", main.__doc__)
    add = parser.add_argument
    add("sweep", metavar="DIR", help="the folder or URI of one sweep")
    add("--out", type=Path, metavar="DIR", help="default: DIR/report of the sweep")
    add("--verbose", action="store_true", help=VERBOSE)
    published = "add published values of the same collection, measure and system; not tested"
    add("--published", action="store_true", help=published)
    rows = "the systems with a row interpolated with the first stage: the baseline and the best "
    rows += "on dev, all, or none (default: those of the sweep's command)"
    add("--interpolate", choices=INTERPOLATE, default="", help=rows)
    clusters = f"{CLUSTERS_HELP}, or none (default: those of the sweep's command)"
    over = f"{CORRECT_OVER_HELP} (default: as the sweep's command)"
    add("--correct-over", choices=CORRECT_OVER, default="", help=over)
    add("--clusters", default="", metavar=f"{CLUSTERS_OF}|none", help=clusters)
    return parser
