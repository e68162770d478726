"""The report in a terminal: a table that fits its width, and at most six lines."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase

from rank_core.stats.compare import CellComparison, Slot, letter
from sweeps.report.analysis import OWN_MODEL, Analysis
from sweeps.report.caption import interpolated_sentence, near_best_sentence, remarks_on_values
from sweeps.report.conclusions import conclusions, fates_in_brief
from sweeps.report.headline import cost_text, headline
from sweeps.report.machines import machines_sentence
from sweeps.report.next_step import next_step
from sweeps.report.reliability import pairing_of, pairing_sentence
from sweeps.report.results import Column, Scores, drawn
from sweeps.report.table import Table, terminal_lines, wrapped
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
    lines += table_text(analysis, verbose=verbose).split("\n")
    lines += [""] * bool(lines[-1])
    lines += answer_lines(analysis, uri or str(sweep.folder), ending, verbose=verbose)
    return "\n".join([*lines, ""])


def answer_lines(
    analysis: Analysis,
    where: str,
    ending: Sequence[str] = (),
    *,
    verbose: bool = False,
    more: Sequence[str] = (),
) -> list[str]:
    """The lines below a table: at most `MOST_LINES` with the `ending`, where names and commands are
    short; `verbose` adds every conclusion, and `more`."""
    found, step = headline(analysis), next_step(analysis, where)
    after = [*(step.lines[1:] if step else []), *ending]
    if verbose:
        said = [found.text, cost_text(found)]
        gain = pairing_sentence(analysis.sweep, pairing_of(analysis), paired=analysis.paired)
        said += [*conclusions(analysis), gain, *more, *([step.why] if step else [])]
        return [*(line for text in filter(None, said) for line in wrapped(text)), *after]
    why, notes = step.why if step else "", analysis.sweep.notes
    typed = analysis.sweep.about.command  # Python has no flags, and says all notes
    ranked = [
        (found.sentence, 0),
        (" ".join(found.more), 1),
        (cost_text(found), 3),
        (fates_in_brief(analysis), 0),
        *((note, 1 if typed and place else 0) for place, note in enumerate(notes)),
        *((text, 2) for text in _warnings(analysis)),
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


def _warnings(analysis: Analysis) -> list[str]:
    """What a reader must know before the numbers: rows that are missing, queries that are alike."""
    missing = "" if analysis.sweep.interpolated else interpolated_sentence(analysis)
    return [text for text in (missing, *remarks_on_values(analysis)) if text]


def table_text(analysis: Analysis, *, verbose: bool = False) -> str:
    """The table with a line that explains its marks; `verbose` explains them, its columns and its
    rows in sentences."""
    sweep = analysis.sweep
    lines = [*fitting_lines(analysis, sweep.primary, others=True), ""]
    if not verbose:
        return "\n".join([*lines, *filter(None, [marks_line(analysis)])])
    return "\n".join([*lines, *(line for note in _meanings(analysis) for line in wrapped(note))])


def _meanings(analysis: Analysis) -> list[str]:
    """What letters, columns and rows of a table mean, in sentences."""
    both = p_columns(analysis) if len(analysis.sweep.measures) == 1 else ""
    two = TWO_RUNS_WORDS * any(map(has_two_runs, analysis.comparisons))
    notes = [legend(analysis), both, two, interpolated_sentence(analysis)]
    notes += [near_best_sentence(analysis), *remarks_on_values(analysis)]
    return [*filter(None, notes)]


def fitting_lines(
    analysis: Analysis,
    measure: str,
    *,
    others: bool = False,
    before: Mapping[str, str] | None = None,
) -> list[str]:
    """The table of a measure in the terminal's width: with as many `others` as fit beside it, and
    without the columns of `_NARROW` where it is too wide."""
    further = [own for own in analysis.sweep.measures if own != measure] if others else []
    shown = [measure_table(analysis, measure, further[:n]) for n in range(len(further), 0, -1)]
    shown += [
        measure_table(analysis, measure, before=before, without=_NARROW[:n])
        for n in range(len(_NARROW) + 1)
    ]
    drawn = map(terminal_lines, shown)
    return next((own for own in drawn if _fits(own)), terminal_lines(shown[-1]))


_NARROW = ("p queries", "seeds", "interval")
"""The columns that a narrow terminal does without, in this order."""


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
    sweep, fates = analysis.sweep, analysis.sweep.about.eliminated
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
    if not others and before is None and "p queries" not in without:
        by_queries = of_test(lambda test: p_text(test.p_queries_adjusted))
        ps = [Column("p queries", by_queries), Column("p both", of_test(both_p))]
    columns = [
        Column("system", lambda row: row.label, "l"),
        *[Column("runs" if sweep.third_party else "seeds", seeds)] * ("seeds" not in without),
        *(scores.column(own, heading=head) for own, head in (before or {}).items()),
        scores.column(measure, heading="mean" if sweep.third_party else _heading(measure)),
        Column("diff", difference),
        *[Column(f"{level_text(sweep.about.alpha)} interval", interval)]
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
    scores, lines = Scores(analysis.rows, analysis.slots, sweep.about.alpha, sweep.digits), []
    for at in range(0, len(headings), _BLOCK):
        block = [*headings.items()][at : at + _BLOCK]
        columns = [scores.column(own, heading=shortened(head, 13)) for own, head in block]
        names = Column("system", lambda row: row.label, "l")
        lines += [*terminal_lines(drawn(analysis.rows, [names, *columns])), ""]
    return [*lines, *fitting_lines(analysis, mean, before={})]


@dataclass(frozen=True)
class _Form:
    """The words of the line on letters and marks."""

    differs: str  # of `upper` letters and the `names` of their baselines
    behind: str  # what stands between a letter and its words
    queries: str  # of letters of queries alone
    marks: Mapping[str, str]  # {mark: the mark with its words}


_FORMS = (
    _Form(
        "{upper}: a significant difference from {names}", ": ", "over queries only",
        {"↓": "↓: a loss", "†": "†: one training run, queries only",
         "(p)": "(p): two runs, too few", "out": "out: eliminated", "stopped": "stopped: by ASHA"},
    ),
    _Form(
        "{upper}: differs from {names}", ": ", "queries only",
        {"↓": "↓: loss", "†": "†: one run", "(p)": "(p): two runs", "out": "out: eliminated",
         "stopped": "stopped: by ASHA"},
    ),
    _Form(
        "{upper} ≠ {names}", " ", "by queries",
        {"↓": "↓ loss", "†": "† 1 run", "(p)": "(p) 2 runs"},
    ),
)  # fmt: skip
"""From the longest to the shortest."""


def marks_line(analysis: Analysis) -> str:
    """The letters and marks of a table in a line, in fewer words where the terminal is narrow; ""
    where it has none."""
    marks = _marks(analysis)
    labels = [_slot_label(analysis, slot) for slot in analysis.slots]
    lines = []
    for columns in (200, 24, 16, 10, 6):
        for form in _FORMS[columns < 24 :]:
            names = [shortened(label, columns) for label in labels]
            line = _marks_in(form, marks, names)
            if len(line) <= terminal_columns():
                return line
            lines.append(line)
    return min(lines, key=len)


def _marks(analysis: Analysis) -> set[str]:
    """The letters and marks that the table has."""
    found = set[str]()
    for (mark, _, _), pair in analysis.compared.items():
        if mark == OWN_MODEL:  # in a sentence, and no letter of the table
            continue
        found |= {*letter(pair, ascii_lowercase.index(mark), analysis.sweep.about.alpha)}
    found |= {"†"} if analysis.undecided else set()
    found |= {fate_word(analysis.sweep)} if analysis.sweep.about.eliminated else set()
    return found | ({"(p)"} if any(map(has_two_runs, analysis.comparisons)) else set())


def _slot_label(analysis: Analysis, slot: Slot) -> str:
    label = analysis.sweep.label(slot) if isinstance(slot, str) else "the system's own baseline"
    return f"system {label}" if len(label) == 1 else label  # itself called A


def _marks_in(form: _Form, marks: set[str], names: Sequence[str]) -> str:
    letters = [x for x in ascii_lowercase[: len(names)] if {x, x.upper()} & marks]
    used = ", ".join(names[ascii_lowercase.index(x)] for x in letters)
    parts = []
    if any(x.upper() in marks for x in letters):
        upper = ", ".join(x.upper() for x in letters)
        parts.append(form.differs.format(upper=upper, names=used))
        lower = ", ".join(x for x in letters if x in marks)
        parts += [f"{lower}{form.behind}{form.queries}"] if lower else []
    elif letters:
        words = form.differs.format(upper=", ".join(letters), names=used)
        parts.append(f"{words} ({form.queries})")
    parts += [text for mark, text in form.marks.items() if mark in marks]
    return f"{'; '.join(parts)}." if parts else ""


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
