"""The report in a terminal: a table of 80 columns and a few sentences."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import ascii_lowercase

from rank_core.stats.compare import CellComparison, letter
from sweeps.report.analysis import Analysis
from sweeps.report.caption import interpolated_sentence
from sweeps.report.clusters import sentences_on_clusters
from sweeps.report.conclusions import conclusions
from sweeps.report.next_step import HERE, next_step
from sweeps.report.results import Column, Scores, drawn
from sweeps.report.table import Table, terminal_lines, wrapped
from sweeps.systems.best import left_after
from sweeps.systems.summary import fate_word
from sweeps.systems.system import System
from sweeps.terminal.notation import (
    MISSING,
    ONE_RUN_WORDS,
    TWO_RUNS_WORDS,
    both_p,
    decisive_p,
    has_two_runs,
    interval_text,
    level_text,
    p_text,
    short_signed,
)
from sweeps.terminal.text import shortened, terminal_columns

_BLOCK = 4
"""Number of collections whose means fit side by side."""
_OTHERS = 1
"""Number of further measures that fit in the width; the page has them all."""


def terminal_text(analysis: Analysis, page: Path, uri: str = "") -> str:
    """The table of a sweep, the conclusions, and the path of the page; `uri` is the sweep's, where
    the page is a copy."""
    sweep = analysis.sweep
    lines = [*wrapped(f"{sweep.about.sweep}: {sweep.question}"), "", table_text(analysis)]
    lines += [""] * (lines[-1][-1] != "\n")
    lines += [line for sentence in conclusions(analysis) for line in wrapped(sentence)]
    lines += next_lines(analysis, uri or str(sweep.folder))
    if uri in ("", str(page.absolute().parents[1])):
        return "\n".join([*lines, f"Report: {page}", ""])
    return "\n".join([*lines, f"A copy to open: {page}", f"Report: {uri}/report/index.html", ""])


def next_lines(analysis: Analysis, where: str = HERE) -> list[str]:
    """The reason of the next step, and its command on one line, which runs as it is printed."""
    step = next_step(analysis, where)
    return [*wrapped(step.why), *step.lines[1:]] if step else []


def table_text(analysis: Analysis) -> str:
    """The table with its legend alone; names of systems are wrapped where the width needs it."""
    sweep = analysis.sweep
    others = [measure for measure in sweep.measures if measure != sweep.primary][:_OTHERS]
    lines = terminal_lines(measure_table(analysis, sweep.primary, others))
    both = p_columns(analysis) if len(sweep.measures) == 1 else ""
    two = TWO_RUNS_WORDS * any(map(has_two_runs, analysis.comparisons))
    notes = [legend(analysis), both, two, interpolated_sentence(analysis)]
    notes += sentences_on_clusters(analysis)
    return "\n".join([*lines, "", *(line for note in notes for line in wrapped(note))])


def measure_table(
    analysis: Analysis,
    measure: str,
    others: Sequence[str] = (),
    *,
    before: Mapping[str, str] | None = None,
) -> Table:
    """A measure of every system, its difference and test, and the means of `others`; without others
    the p of both tests fit. `before` are other measures {measure: heading} that stand before this
    one."""
    sweep, fates = analysis.sweep, left_after(analysis.sweep)
    scores = Scores(analysis.rows, analysis.slots, sweep.about.alpha, sweep.digits)

    def of_test(draw: Callable[[CellComparison], str]) -> Callable[[System], str]:
        return lambda row: draw(test) if (test := row.test(measure)) else ""

    def difference(row: System) -> str:
        if test := row.test(measure):
            return short_signed(test.delta, sweep.digits)
        if row.is_baseline:
            return "baseline"
        same = f"= {row.same_as}" if row.same_as else MISSING
        return fate_word(sweep) if row.cell.cell in fates else same

    def seeds(row: System) -> str:
        return str(row.num_used) if sweep.third_party else row.seeds_text

    interval = of_test(lambda test: interval_text(test, sweep.digits, "terminal"))
    ps = [Column("p", of_test(decisive_p))]
    if not others and before is None:
        by_queries = of_test(lambda test: p_text(test.p_queries_adjusted))
        ps = [Column("p queries", by_queries), Column("p both", of_test(both_p))]
    columns = [
        Column("system", lambda row: row.label, "l"),
        Column("runs" if sweep.third_party else "seeds", seeds),
        *(scores.column(own, heading=head) for own, head in (before or {}).items()),
        scores.column(measure, heading="mean" if sweep.third_party else _heading(measure)),
        Column("diff", difference),
        Column(f"{level_text(sweep.about.alpha)} interval", interval),
        *ps,
        *(scores.column(other, heading=_heading(other)) for other in others),
    ]
    return drawn(analysis.rows, columns)


def _heading(measure: str) -> str:
    """Of a measure of one's own, `module:function`, the function."""
    return measure.rpartition(":")[2]


def collections_lines(analysis: Analysis, mean: str) -> list[str]:
    """The means on every collection, then that over them with its test; in blocks where they do not
    fit side by side."""
    sweep = analysis.sweep
    headings = dict(zip(sweep.means[mean], sweep.collections, strict=True))
    lines = terminal_lines(measure_table(analysis, mean, before=headings))
    if max(map(len, lines)) <= terminal_columns():
        return lines
    scores, lines = Scores(analysis.rows, analysis.slots, sweep.about.alpha, sweep.digits), []
    for at in range(0, len(headings), _BLOCK):
        block = [*headings.items()][at : at + _BLOCK]
        columns = [scores.column(own, heading=shortened(head, 13)) for own, head in block]
        names = Column("system", lambda row: row.label, "l")
        lines += [*terminal_lines(drawn(analysis.rows, [names, *columns])), ""]
    return [*lines, *terminal_lines(measure_table(analysis, mean, before={}))]


def legend(analysis: Analysis) -> str:
    """The letters and marks of a table; "" where it has none."""
    sweep, compared = analysis.sweep, [*analysis.comparisons, *analysis.interpolated_comparisons]
    marks = "".join(letter(c, 0, sweep.about.alpha) for c in (*compared, *analysis.further))
    baseline = sweep.label(sweep.baseline)
    baseline = f"system {baseline}" if len(baseline) == 1 else baseline  # itself called A
    different = f"a significant difference from {baseline}"
    words = [f"A marks {different}"] if "A" in marks else []
    if "a" in marks and all(math.isnan(c.p_both) for c in compared):
        words = [f"a marks {different}"]
    elif "a" in marks:
        own = "one " if words else f"{different} "
        words.append(f"a marks {own}only in the paired t-test over queries (seeds averaged)")
    words += ["↓ marks a loss"] if "↓" in marks else []
    parts = [f"{'; '.join(words)}."] if words else []
    if marks:
        for mark, slot in zip(ascii_lowercase[1:], analysis.slots[1:], strict=False):
            against = sweep.label(slot) if isinstance(slot, str) else "the system's own baseline"
            both = f"{mark.upper()} marks a significant difference from {against}"
            parts.append(f"{both}, {mark} one over queries only.")
    if analysis.undecided:
        parts.append(ONE_RUN_WORDS)
    return " ".join(parts)


def p_columns(analysis: Analysis) -> str:
    """The meaning of the columns of p in a table that has both; "" where the runs have one only."""
    if all(math.isnan(c.p_both) for c in analysis.comparisons):
        return ""
    primary = analysis.primary
    corrected = len(primary) > 1 and analysis.sweep.correction != "none"
    both = f"Both are corrected; p both by {primary[0].correction}." if corrected else ""
    return (
        "p queries: paired t-test over queries; p both: queries and seeds random, the p to report, "
        f"with its interval and the upper-case letters. {both}"
    ).strip()
