"""`ranksweep measure RUN --qrels Q`: the measures of one run."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from scipy import stats

from rank_core.data.named_files import named_qrels
from rank_core.data.trec import RankedFile
from rank_core.errors import BadInput
from rank_core.evaluate import check_measures, per_query
from rank_core.records import Qrels
from sweeps.report.table import wrapped
from sweeps.systems.runs import (
    MEASURES,
    num_tied,
    order_notes,
    ranks_as_scores,
    ties_note,
)
from sweeps.systems.sources import measure_key, training_runs
from sweeps.terminal.command_line import Parser, check_writable
from sweeps.terminal.escape import csv_frame
from sweeps.terminal.notation import TIE_POLICY
from sweeps.terminal.text import columns, say


def main(argv: Sequence[str]) -> int:
    """Print the measures of one run over the judged queries, with 95% intervals for new queries
    (Student's t). Equal scores rank by ascending document id, as in `ranksweep compare`, which
    tests runs against each other."""
    parser = Parser("ranksweep measure", main.__doc__)
    add = parser.add_argument
    add("run", metavar="RUN", help="a TREC run, ir:ID, or a sweep's DIR:LABEL of one seed")
    add("--qrels", required=True, metavar="FILE|ir:ID", help="the judgments")
    shown = f"default: {' '.join(MEASURES)}; MODULE:FUNCTION is one of yours"
    add("--measures", nargs="+", default=MEASURES, metavar="MEASURE", help=shown)
    written = "also write query_id, measure, value, which `compare` reads"
    add("--per-query", type=Path, metavar="FILE.csv", help=written)
    given = parser.parse_args(argv)
    if (file := given.per_query) is not None:
        if file.suffix != ".csv":
            raise BadInput(f"--per-query must be a file .csv, got {file}")
        check_writable("the folder of --per-query", file.parent)
    qrels, ranked = named_qrels(given.qrels), _ranking(given.run)
    measures = [measure_key(name) for name in given.measures]
    check_measures(measures, [qrels])
    notes = [line for note in _notes(ranked, qrels) for line in wrapped(note)]
    values = per_query(qrels, ranks_as_scores(ranked.run), measures)
    rows = [["measure", "mean", "95% interval"]]
    for measure in measures:
        own = values.loc[values["measure"] == measure, "value"]
        half = stats.t.ppf(0.975, len(own) - 1) * own.std() / len(own) ** 0.5
        varies = len(own) > 1 and np.ptp(own) > 0  # else Student's t says nothing
        ends = f"[{own.mean() - half:.4f}, {own.mean() + half:.4f}]" if varies else "—"
        rows.append([measure, f"{own.mean():.4f}", ends])
    lines = [f"{given.run}: {len(qrels)} judged queries", "", *columns(rows, "lrr"), *notes]
    say("\n".join(lines))
    if file is not None:
        csv_frame(values).to_csv(file, index=False)
        say(f"Values of each query: {file}")
    return 0


def _ranking(source: str) -> RankedFile:
    """The one run of a source of `compare`."""
    [*runs] = (run for own in training_runs(source).values() for run in own)
    if len(runs) > 1:
        raise BadInput(f"{source} holds {len(runs)} runs: `ranksweep compare` reads them")
    if runs[0].ranking is None:
        raise BadInput(f"{source} must be a run, it has values of measures")
    return runs[0].ranking()


def _notes(ranked: RankedFile, qrels: Qrels) -> Iterator[str]:
    """What was counted as 0 or excluded, ties, and scores that contradict ranks. Raises `BadInput`
    where no ranked document is judged."""
    run = ranked.run
    if not any(qrels[query_id].keys() & run.get(query_id, {}).keys() for query_id in qrels):
        raise BadInput("no document of the run is judged: do the query and document ids match?")
    if missing := sum(not run.get(query_id) for query_id in qrels):
        yield f"Judged queries without a result, counted as 0: {missing}."
    if extra := len(run.keys() - qrels.keys()):
        yield f"Ranked queries without a judgment, excluded: {extra}."
    yield from (f"Note: {note}" for note in order_notes(ranked))
    if tied := ties_note(num_tied({q: run[q] for q in qrels if q in run}), TIE_POLICY):
        yield tied
