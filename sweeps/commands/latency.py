"""`ranksweep latency DIR`: what a query costs with each system of a sweep, beside its measure."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rank_core.errors import BadInput
from rank_core.models import model_class
from rank_core.settings.config import TrialConfig
from rank_core.units import MEBIBYTE
from sweeps.plan.flags import add_flags
from sweeps.report.files import write_files
from sweeps.report.table import Table, csv_text, markdown, table, terminal_lines, wrapped
from sweeps.store.records import trial_name
from sweeps.store.sweep_file import opened, send
from sweeps.systems.load import Sweep, load_sweep, trial_config
from sweeps.systems.summary import cells_of
from sweeps.systems.system import System
from sweeps.terminal.command_line import Parser, check_writable
from sweeps.terminal.notation import number
from sweeps.terminal.text import milliseconds, numbered, say

if TYPE_CHECKING:
    from sweeps.forecast.latency import Latency

FILES = ("latency.md", "latency.csv")


class TimedSystem(NamedTuple):
    """A system and what its queries cost."""

    row: System
    latency: "Latency"


def main(argv: Sequence[str]) -> int:
    """Measure on this machine what a query costs with each system of a finished sweep, beside the
    sweep's measure: milliseconds of a document and of a query (median and 95th percentile), encoder
    tokens and peak memory. Every system ranks the same test queries one by one, in a process of its
    own, in the sweep's precision. Prints the table and writes latency.md and latency.csv into
    DIR/report or --out."""
    args = parser().parse_args(argv)
    for name in ("queries", "repeats", "cpus_per_worker"):
        if vars(args)[name] < 1:
            raise BadInput(f"--{name.replace('_', '-')} >= 1 must hold, got {vars(args)[name]}")
    with opened(args.sweep) as records:
        out = args.out or records.folder / "report"
        check_writable("--out (default DIR/report)", out)
        sweep = load_sweep(records)
        timed = list(_timed(sweep, args.queries, args.repeats, args.cpus_per_worker))
        shown = latency_table(sweep, timed, args.cpus_per_worker)
        texts = markdown(shown), _csv(sweep, timed)
        write_files(out, {n: text.encode() for n, text in zip(FILES, texts, strict=True)})
        if not args.out:
            send(records, *(f"report/{name}" for name in FILES))
    say("\n".join([*terminal_lines(shown), "", *wrapped(shown.caption)]))
    say(f"Tables: {args.out or f'{records.uri}/report'}/{', '.join(FILES)}")
    return 0


def parser() -> Parser:
    """The arguments and flags of `ranksweep latency`."""
    parser = Parser("ranksweep latency", main.__doc__)
    add = parser.add_argument
    add("sweep", metavar="DIR", help="the folder or URI of one sweep")
    count = "test queries (default: %(default)s, or all that the sweep evaluated)"
    add("--queries", type=int, default=50, metavar="N", help=count)
    again = "repetitions of a query, of which the median counts (default: %(default)s)"
    add("--repeats", type=int, default=3, metavar="N", help=again)
    add_flags(parser, ("cpus_per_worker",))
    add("--out", type=Path, metavar="DIR", help="default: DIR/report of the sweep")
    return parser


def _timed(sweep: Sweep, queries: int, repeats: int, threads: int) -> Iterator[TimedSystem]:
    """Every system that reads texts with an encoder, in the order of the plan."""
    from sweeps.forecast.latency import measured

    if sweep.aggregates or sweep.indexes:
        raise BadInput(f"{sweep.folder} has the milliseconds of a query in its own report")
    rows = [(row, config) for row in cells_of(sweep) for config in _configs(sweep, row)]
    if not rows:
        raise BadInput(f"{sweep.folder} has no finished system that reads documents")
    for number_, (row, config) in enumerate(rows, start=1):
        say(f"measuring   {row.label}, {number_} of {len(rows)}")
        yield TimedSystem(row, measured(config, queries=queries, repeats=repeats, threads=threads))


def _configs(sweep: Sweep, row: System) -> Iterator[TrialConfig]:
    """The settings of a trial of a system; nothing for one without an encoder or a finished
    trial."""
    for seed in row.seed_means[sweep.primary]:
        config = trial_config(sweep.stored, trial_name(row.name, seed))
        kind = model_class(config.model.name)
        if kind.trains and not kind.retrieves:
            yield config
        return


def latency_table(sweep: Sweep, timed: Sequence[TimedSystem], threads: int) -> Table:
    """The table, with what was measured."""
    first = timed[0].latency
    heading = ("system", sweep.primary, "ms/document", "ms/query", "p95", "tokens/query", "MiB")
    rows = [
        (
            one.row.label,
            number(one.row.mean(sweep.primary), sweep.digits),
            milliseconds(one.latency.ms_per_document),
            *map(milliseconds, one.latency.ms_per_query),
            f"{one.latency.tokens_per_query:,.0f}",
            f"{one.latency.peak_bytes / MEBIBYTE:,.0f}",
        )
        for one in timed
    ]
    caption = (
        f"{len(first.milliseconds)} test queries of {max(first.documents)} candidates at most, one "
        "after the other; documents are tokenised beforehand. ms/query: the median, then the 95th "
        "percentile; MiB: peak memory of the process, or on its GPU. On "
        f"{first.device}, {numbered(threads, 'thread')}. {sweep.primary} is the sweep's, over all "
        "of its queries."
    )
    return table(heading, rows, caption=caption)


def _csv(sweep: Sweep, timed: Sequence[TimedSystem]) -> str:
    """A line for each system, unrounded."""
    columns = "label cell measure mean ms_per_document ms_per_query_p50 ms_per_query_p95".split()
    columns += "tokens_per_query peak_memory_bytes queries documents device".split()
    return csv_text(
        columns,
        (
            [
                *(one.row.label, one.row.name, sweep.primary, one.row.mean(sweep.primary)),
                *(one.latency.ms_per_document, *one.latency.ms_per_query),
                *(one.latency.tokens_per_query, one.latency.peak_bytes),
                *(len(one.latency.milliseconds), sum(one.latency.documents), one.latency.device),
            ]
            for one in timed
        ),
    )
