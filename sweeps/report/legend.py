"""The legend of a table in two lines: its letters and marks, and its tests."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_lowercase

from rank_core.stats.compare import Slot, letter
from sweeps.findings.analysis import OWN_MODEL, Analysis
from sweeps.findings.clusters import num_clusters
from sweeps.systems.summary import fate_word
from sweeps.terminal.notation import has_two_runs, level_text
from sweeps.terminal.text import shortened, terminal_columns

WIDE = 1000


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
         "(p)": "(p): two runs, too few", "=": "= X: the model has weight 0 or 1",
         "out": "out: eliminated", "stopped": "stopped: by ASHA"},
    ),
    _Form(
        "{upper}: differs from {names}", ": ", "queries only",
        {"↓": "↓: loss", "†": "†: one run", "(p)": "(p): two runs", "=": "= X: the same",
         "out": "out: eliminated", "stopped": "stopped: by ASHA"},
    ),
    _Form(
        "{upper} ≠ {names}", " ", "by queries",
        {"↓": "↓ loss", "†": "† 1 run", "(p)": "(p) 2 runs"},
    ),
)  # fmt: skip
"""From the longest to the shortest."""


def legend_of_letters(analysis: Analysis, width: int = WIDE) -> str:
    """The letters and marks of a table in a line, in fewer words where it is narrow; "" where it
    has none."""
    marks = _marks(analysis)
    labels = [_slot_label(analysis, slot) for slot in analysis.slots]
    lines = []
    for columns in (200, 24, 16, 10, 6):
        for form in _FORMS[columns < 24 :]:
            names = [shortened(label, columns) for label in labels]
            line = _marks_in(form, marks, names)
            if len(line) <= width:
                return line
            lines.append(line)
    return min(lines, key=len)


def marks_line(analysis: Analysis) -> str:
    """The same in a terminal."""
    return legend_of_letters(analysis, terminal_columns())


def legend_of_tests(analysis: Analysis, *, with_spread: bool) -> str:
    """`Δ over BM25 [95% interval of all 5 comparisons at once]; p: max-t over 5 comparisons; ...`;
    "" without a test. `with_spread`: the table has deviations."""
    test = next(iter(analysis.gains.values()), None)
    if test is None:
        return ""
    sweep = analysis.sweep
    level, size = level_text(sweep.tests.alpha), test.family_size
    at_once = f" of all {size} comparisons at once" if size > 1 else ""
    parts = [f"Δ: over {sweep.label(test.baseline)} [{level} interval{at_once}]"]
    if size > 1:
        parts.append(f"p: {test.correction}")
    deviations = [row.deviation(sweep.primary) for row in analysis.rows] if with_spread else []
    if any(not math.isnan(deviation) for deviation in deviations):
        parts.append("± SD over seeds")
    matrix = analysis.cell_scores.tested[sweep.primary]
    parts.append(sweep.count_text(matrix.num_queries, num_clusters(matrix)))
    return f"{'; '.join(parts)}."


def _marks(analysis: Analysis) -> set[str]:
    """The letters and marks that the table has."""
    found = set[str]()
    for (mark, _, _), pair in analysis.compared.items():
        if mark == OWN_MODEL:  # a finding, and no letter of the table
            continue
        found |= {*letter(pair, ascii_lowercase.index(mark), analysis.sweep.tests.alpha)}
    found |= {"†"} if analysis.undecided else set()
    found |= {"="} if any(row.same_as and row.of for row in analysis.rows) else set()
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
