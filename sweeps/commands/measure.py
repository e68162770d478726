"""`ranksweep measure RUN --qrels Q`: the measures of one run."""

from collections.abc import Sequence
from pathlib import Path

from rank_core.data.named_files import named_qrels
from rank_core.errors import BadInput
from rank_core.files import atomic_write, is_there
from sweeps.report.measured import measured_run
from sweeps.systems.runs import MEASURES, TIES, TREC_EVAL
from sweeps.systems.sources import ranking_of
from sweeps.terminal.command_line import TIES_HELP, Parser, check_writable
from sweeps.terminal.escape import csv_frame
from sweeps.terminal.text import say


def main(argv: Sequence[str]) -> int:
    """Print the measures of one run over the judged queries, with 95% intervals for new queries
    (Student's t). Equal scores rank as trec_eval sorts them, as in `ranksweep compare`, which tests
    runs against each other."""
    args = parser().parse_args(argv)
    if (file := args.per_query) is not None:
        if file.suffix != ".csv":
            raise BadInput(f"--per-query must be a file .csv, got {file}")
        check_writable("the folder of --per-query", file.parent)
        for read in (args.run, args.qrels):
            if file.exists() and is_there(read) and file.samefile(read):
                raise BadInput(f"--per-query would replace {read}, which is read; name another")
    qrels, ranked = named_qrels(args.qrels), ranking_of(args.run)
    measured = measured_run(ranked, qrels, args.measures, args.ties)
    say(f"{args.run}: {len(qrels)} judged queries\n\n{measured!r}")
    if file is not None:
        # As `per_query` of every trial: by measure, then by query.
        by_name = measured.per_query.sort_values("measure", kind="stable")
        with atomic_write(file) as unfinished:
            csv_frame(by_name).to_csv(unfinished, index=False)
        say(f"Values of each query: {file}")
    return 0


def parser() -> Parser:
    """The arguments and flags of `ranksweep measure`."""
    parser = Parser("ranksweep measure", main.__doc__)
    add = parser.add_argument
    add("run", metavar="RUN", help="a TREC run, ir:ID, or a sweep's DIR:LABEL of one seed")
    add("--qrels", required=True, metavar="FILE|ir:ID", help="the judgments")
    shown = f"default: {' '.join(MEASURES)}; MODULE:FUNCTION is one of yours"
    add("--measures", nargs="+", default=MEASURES, metavar="MEASURE", help=shown)
    add("--ties", choices=TIES, default=TREC_EVAL, help=TIES_HELP)
    written = "also write query_id, measure, value, which `compare` reads"
    add("--per-query", type=Path, metavar="FILE.csv", help=written)
    return parser
