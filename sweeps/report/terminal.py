"""The report in a terminal: a table that fits its width, and at most six lines."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rank_core.stats.compare import CellComparison
from sweeps.findings.analysis import Analysis
from sweeps.findings.every import findings
from sweeps.report.caption import warnings_of
from sweeps.report.finding_table import finding_table
from sweeps.report.headline import cost_text, headline
from sweeps.report.legend import legend_of_tests, marks_line
from sweeps.report.machines import machines_sentence
from sweeps.report.next_step import next_step
from sweeps.report.results import Column, Scores, drawn
from sweeps.report.table import Table, terminal_lines, wrapped
from sweeps.systems.summary import fate_word, lost_seeds
from sweeps.systems.system import System
from sweeps.terminal.notation import (
    MISSING,
    both_p,
    decisive_p,
    interval_text,
    level_text,
    p_text,
    signed,
)
from sweeps.terminal.text import numbered, shortened, terminal_columns

_BLOCK = 4
"""Number of collections whose means fit side by side."""
MOST_LINES = 6
"""Below the table, without `--verbose`."""


def terminal_text(analysis: Analysis, page: Path, uri: str = "", *, verbose: bool = False) -> str:
    """The table of a sweep, the headline, the next step and the path of the page; `verbose`
    adds all that the numbers rest on. `uri` is the sweep's, where the page is a copy."""
    sweep = analysis.sweep
    ending = [f"Report: {page}"]
    if uri not in ("", str(page.absolute().parents[1])):
        ending = [f"A copy to open: {page}", f"Report: {uri}/report/index.html"]
    lines = [*wrapped(f"{sweep.about.sweep}: {sweep.question}"), ""]
    if warning := machines_sentence(analysis):
        lines += [*wrapped(warning), ""]
    lines += table_text(analysis).split("\n")
    lines += [""] * bool(lines[-1])
    lines += answer_lines(analysis, uri or str(sweep.folder), ending, verbose=verbose)
    return "\n".join([*lines, ""])


def answer_lines(
    analysis: Analysis,
    where: str,
    ending: Sequence[str] = (),
    *,
    verbose: bool = False,
) -> list[str]:
    """The lines below a table: at most `MOST_LINES` with the `ending`, where names and commands are
    short; `verbose` adds all findings."""
    found, step = headline(analysis), next_step(analysis, where)
    after = [*(step.lines[1:] if step else []), *ending]
    if verbose:
        sentences = [found.text, cost_text(found), *analysis.sweep.notes, *warnings_of(analysis)]
        shown = terminal_lines(finding_table(findings(analysis), analysis.sweep.digits), (0, 1, 2))
        why = step.why if step else ""
        above = [line for text in filter(None, sentences) for line in wrapped(text)]
        return [*above, "", *shown, "", *(wrapped(why) if why else []), *after]
    why, notes = step.why if step else "", analysis.sweep.notes
    typed = analysis.sweep.about.command  # Python has no flags, and says all notes
    ranked = [
        (found.sentence, 0),
        (" ".join(found.more), 1),
        (cost_text(found), 3),
        (fates_in_brief(analysis), 0),
        *((note, 1 if typed and place else 0) for place, note in enumerate(notes)),
        *((text, 2) for text in warnings_of(analysis)),
        (why, 4 if step and step.command else 0),  # without a command the words are the step
        ("--verbose explains these numbers." * bool(typed), 5),
    ]
    count = f"--verbose prints {numbered(len(notes) - 1, 'more note')} on the runs."
    for least in range(5, -1, -1):
        parts = [text for text, rank in ranked if text and rank <= least]
        parts += [count] * bool(len(notes) > 1 and typed and not least)
        lines = [line for text in parts for line in wrapped(text)]
        if len(lines) + len(after) <= MOST_LINES:
            break
    return [*lines, *after]


def fates_in_brief(analysis: Analysis) -> str:
    """`Trials: 2 failed, 1 collapsed.`; "" where every trial finished."""
    sweep = analysis.sweep
    lost = {} if sweep.third_party else lost_seeds(analysis.cells)
    parts = [f"{sum(map(len, labels.values()))} {words}" for words, labels in lost.items()]
    stopped = "The sweep ended early. " if sweep.about.stopped else ""
    return f"{stopped}Trials: {', '.join(parts)}." if parts else stopped.strip()


def table_text(analysis: Analysis) -> str:
    """The table with the lines that explain its marks and tests."""
    lines = [*fitting_lines(analysis, analysis.sweep.primary, others=True), ""]
    return "\n".join([*lines, *legend_lines(analysis)])


def legend_lines(analysis: Analysis) -> list[str]:
    """The two lines below a table, wrapped where the terminal is narrow."""
    tests = legend_of_tests(analysis, with_spread=False)
    return [*filter(None, [marks_line(analysis)]), *(wrapped(tests) if tests else [])]


def fitting_lines(
    analysis: Analysis,
    measure: str,
    *,
    others: bool = False,
    before: Mapping[str, str] | None = None,
) -> list[str]:
    """The table of a measure in the terminal's width: with as many `others` as fit beside it, and
    without the columns of `_NARROW` where it is too wide; a line names what is left out."""
    further = [other for other in analysis.sweep.measures if other != measure] if others else []
    shown = [measure_table(analysis, measure, further[:n]) for n in range(len(further), 0, -1)]
    shown += [
        measure_table(analysis, measure, before=before, without=_NARROW[:n])
        for n in range(len(_NARROW) + 1)
    ]
    fits = next((table for table in shown if _fits(terminal_lines(table))), shown[-1])
    return [*terminal_lines(fits), *_left_out(shown[0], fits)]


_NARROW = ("p queries", "seeds", "interval")
"""The columns that a narrow terminal does without, in this order."""


def _left_out(whole: Table, fits: Table) -> list[str]:
    """The line that names the columns of the whole table for which there is no room."""
    names = [column for column in whole.heading if column not in (*fits.heading, "p", "p both")]
    text = f"Left out in {terminal_columns()} columns: {', '.join(names)}."
    return ["", *wrapped(text)] if names else []


def _fits(lines: Sequence[str]) -> bool:
    return max(map(len, lines)) <= terminal_columns()


def measure_table(
    analysis: Analysis,
    measure: str,
    others: Sequence[str] = (),
    *,
    before: Mapping[str, str] | None = None,
    without: Sequence[str] = (),
) -> Table:
    """A measure of every system, its difference and test, and the means of `others`; without others
    the p of both tests fit. `before` are other measures {measure: heading} that stand before this
    one; `without` are columns of `_NARROW` that are left out."""
    sweep, eliminated = analysis.sweep, analysis.sweep.about.eliminated
    scores = Scores(analysis.rows, analysis.slots, sweep.tests.alpha, sweep.digits)

    gains = analysis.gains if measure == sweep.primary else {}

    def test_of(row: System) -> CellComparison | None:
        return gains.get(row.name) if gains else row.test(measure)

    def of_test(draw: Callable[[CellComparison], str]) -> Callable[[System], str]:
        return lambda row: draw(test) if (test := test_of(row)) else ""

    def difference(row: System) -> str:
        if test := test_of(row):
            return signed(test.delta, sweep.digits)
        if row.is_baseline:
            return "baseline"
        same = f"= {row.same_as}" if row.same_as else MISSING
        return fate_word(sweep) if row.cell.cell in eliminated else same

    def seeds(row: System) -> str:
        return str(row.num_used) if sweep.third_party else row.seeds_text

    interval = of_test(lambda test: interval_text(test.in_family, sweep.digits))
    ps = [Column("p", of_test(decisive_p))]
    if not others and before is None and "p queries" not in without and analysis.has_seeds:
        by_queries = of_test(lambda test: p_text(test.p_queries_adjusted))
        ps = [Column("p queries", by_queries), Column("p both", of_test(both_p))]
    columns = [
        Column("system", lambda row: row.label, "l"),
        *[Column("runs" if sweep.third_party else "seeds", seeds)]
        * ("seeds" not in without and analysis.has_seeds),
        *(scores.column(key, heading=head) for key, head in (before or {}).items()),
        scores.column(measure, heading="mean" if sweep.third_party else _heading(measure)),
        Column("Δ", difference),
        *[Column(f"{level_text(sweep.tests.alpha)} interval", interval)]
        * ("interval" not in without),
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
    if _fits(lines):
        return lines
    scores, lines = Scores(analysis.rows, analysis.slots, sweep.tests.alpha, sweep.digits), []
    for at in range(0, len(headings), _BLOCK):
        block = [*headings.items()][at : at + _BLOCK]
        columns = [scores.column(key, heading=shortened(head, 13)) for key, head in block]
        names = Column("system", lambda row: row.label, "l")
        lines += [*terminal_lines(drawn(analysis.rows, [names, *columns])), ""]
    return [*lines, *fitting_lines(analysis, mean, before={})]
