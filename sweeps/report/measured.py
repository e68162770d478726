"""The measures of one run: values of each query, means, their intervals."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from rank_core.data.judged import (
    depth_note,
    judged_depth,
    num_without_relevant,
    without_relevant_note,
)
from rank_core.data.own_documents import own_ids
from rank_core.data.trec import RankedFile, order_notes
from rank_core.errors import BadInput
from rank_core.evaluate import check_measures, per_query
from rank_core.records import Qrels
from sweeps.report.table import wrapped
from sweeps.systems.runs import (
    MEASURES,
    TREC_EVAL,
    means_by_rules,
    num_tied,
    ranks_as_scores,
    tie_notes,
)
from sweeps.systems.sources import measure_key
from sweeps.terminal.text import columns

DIGITS = 4  # of a mean that is shown


@dataclass(frozen=True, eq=False)
class MeasuredRun:
    """The measures of one run over the judged queries; `print` shows them as `ranksweep measure`.

    `per_query` has a row `query_id, measure, value` for each judged query and measure, 0 for a
    query without a result. `notes` say what was counted as 0 or excluded, and how ties rank.

    Examples:
        >>> import ranksweep
        >>> run = {"q1": {"d1": 2.0, "d2": 1.0}, "q2": {"d1": 2.0, "d2": 1.0}}
        >>> measured = ranksweep.measure(run, {"q1": {"d1": 1}, "q2": {"d2": 1}}, "RR")
        >>> measured.means
        {'RR': 0.75}
        >>> measured.per_query
          query_id measure  value
        0       q1      RR    1.0
        1       q2      RR    0.5
    """

    per_query: pd.DataFrame
    notes: tuple[str, ...] = ()

    @property
    def means(self) -> dict[str, float]:
        """{measure: its mean over the judged queries}, in the order of the call.

        Examples:
            >>> import ranksweep
            >>> ranksweep.measure({"q1": {"d1": 2.0}}, {"q1": {"d1": 1}}, ["RR", "P@1"]).means
            {'RR': 1.0, 'P@1': 1.0}
        """
        return {name: float(values.mean()) for name, values in self._values()}

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each measure: `measure, mean, ci_low, ci_high, queries`. The intervals are 95%
        intervals for new queries (Student's t), NaN where all queries have the same value.

        Examples:
            >>> import ranksweep
            >>> run = {"q1": {"d1": 2.0, "d2": 1.0}, "q2": {"d1": 2.0, "d2": 1.0}}
            >>> measured = ranksweep.measure(run, {"q1": {"d1": 1}, "q2": {"d2": 1}}, "RR")
            >>> measured.frame.round(2)
              measure  mean  ci_low  ci_high  queries
            0      RR  0.75   -2.43     3.93        2
        """
        rows = []
        for name, values in self._values():
            # Without variance over queries Student's t has no scale and says nothing.
            varies = len(values) > 1 and np.ptp(values) > 0
            half = stats.t.ppf(0.975, len(values) - 1) * values.std() / len(values) ** 0.5
            half = float(half) if varies else np.nan
            rows.append(
                (name, values.mean(), values.mean() - half, values.mean() + half, len(values))
            )
        return pd.DataFrame(rows, columns=["measure", "mean", "ci_low", "ci_high", "queries"])

    def _values(self) -> Iterator[tuple[str, "pd.Series[float]"]]:
        for name in self.per_query["measure"].unique():
            yield str(name), self.per_query.loc[self.per_query["measure"] == name, "value"]

    def __repr__(self) -> str:
        rows = [["measure", "mean", "95% interval"]]
        for row in self.frame.itertuples():
            low, mean, high = (f"{x:.{DIGITS}f}" for x in (row.ci_low, row.mean, row.ci_high))
            rows.append([row.measure, mean, "—" if np.isnan(row.ci_low) else f"[{low}, {high}]"])
        notes = [line for note in self.notes for line in wrapped(note)]
        return "\n".join([*columns(rows, "lrr"), *notes])


def measured_run(
    ranked: RankedFile, qrels: Qrels, measures: Sequence[str] = MEASURES, ties: str = TREC_EVAL
) -> MeasuredRun:
    """The measures of a run, with equal scores in the order of a rule. Raises `BadInput` for a
    measure that cannot be computed, and where no ranked document is judged."""
    names = [measure_key(name) for name in measures]
    check_measures(names, [qrels])
    notes = [*_notes(ranked, qrels)]
    values = per_query(qrels, ranks_as_scores(ranked.run, ties), names)
    order = {name: place for place, name in enumerate(names)}
    values = values.sort_values("measure", key=lambda own: own.map(order), kind="stable")
    judged = {query_id: ranked.run[query_id] for query_id in qrels if query_id in ranked.run}
    if num_tied(judged, TREC_EVAL):  # in single precision: ties by either rule
        moved = {
            ("", name): means for name, means in means_by_rules(qrels, judged, names, ties).items()
        }
        notes += tie_notes(num_tied(judged, ties), ties, moved, DIGITS)
    return MeasuredRun(values.reset_index(drop=True), tuple(notes))


def _notes(ranked: RankedFile, qrels: Qrels) -> Iterator[str]:
    """What was counted as 0 or excluded, and scores that contradict ranks. Raises `BadInput`
    where no ranked document is judged."""
    run = ranked.run
    if not any(grade > 0 for judged in qrels.values() for grade in judged.values()):
        raise BadInput("judgments need a relevant document (relevance above 0), found none")
    if not any(qrels[query_id].keys() & run.get(query_id, {}).keys() for query_id in qrels):
        raise BadInput("no document of the run is judged: do the query and document ids match?")
    if missing := sum(not run.get(query_id) for query_id in qrels):
        yield f"Judged queries without a result, counted as 0: {missing}."
    if extra := len(run.keys() - qrels.keys()):
        yield f"Ranked queries without a judgment, excluded: {extra}."
    yield from (f"Note: {note}" for note in order_notes(ranked))
    if note := own_ids(run, qrels):
        yield f"Note: {note}"
    if depth := judged_depth(qrels, run):
        yield f"Note: {depth_note(depth, 'the run')}."
    if number := num_without_relevant(qrels):
        yield f"Note: {without_relevant_note(number, len(qrels))}."
