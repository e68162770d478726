"""The results of systems as a table: rows of means with letters, and the caption that explains it.

Letters: the first baseline is `a`, the next `b`, ...; a baseline is a cell, or a mapping from each
system to its own. Lower case marks a difference with only the queries random (paired t-test on
means over seeds), upper case a difference that also holds over training runs.
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Any

from rank_core.stats.bootstrap import GainInterval
from rank_core.stats.compare import Comparison, Slot, letter
from rank_core.stats.multiplicity import CORRECTION_NAMES
from sweeps.report.notation import (
    ONE_RUN_WORDS,
    TIE_POLICY,
    TWO_RUNS_WORDS,
    bracketed,
    decisive_p,
    gain_text,
    has_two_runs,
    level_text,
    names_text,
    number,
    signed,
)
from sweeps.report.summary import CellSummary
from sweeps.report.table import Table, TableCell, csv_text, table, table_row

PAIRED = (
    "paired across systems: run i of each shares its initialisation, order of the data and "
    "negatives with run i of the others, and the test is over their differences"
)
"""The assumption of a test of paired seeds."""


@dataclass(frozen=True)
class Column:
    """A column of a table of systems."""

    heading: str
    cell: Callable[[CellSummary], str | TableCell]
    align: str = "r"


@dataclass(frozen=True)
class Scores:
    """The rows of a table, and its columns of means: rounded, with letters, the best marked."""

    rows: Sequence[CellSummary]
    slots: Sequence[Slot]
    alpha: float = 0.05
    digits: int = 3

    def column(self, measure: str, *, heading: str = "", spread: bool = False) -> Column:
        """The means of a measure; `spread` adds the deviation over seeds as a note. Means and
        letters align on the left, or one without a deviation would be shifted."""
        means = [round(row.mean(measure), self.digits) for row in self.rows]
        best = max((mean for mean in means if not math.isnan(mean)), default=math.nan)

        def cell(row: CellSummary) -> TableCell:
            mean, deviation, tests = row.mean(measure), row.deviation(measure), row.tests
            marks = enumerate(ascii_lowercase[: len(self.slots)])
            of = tests.get(measure, {})
            return TableCell(
                number(mean, self.digits),
                letters=tuple(letter(of.get(mark), at, self.alpha) for at, mark in marks),
                note=f"± {number(deviation, self.digits)}"
                if spread and not math.isnan(deviation)
                else "",
                face="best" if round(mean, self.digits) == best else "",
            )

        return Column(heading or measure, cell, "l")


def drawn(rows: Sequence[CellSummary], columns: Sequence[Column], **words: Any) -> Table:
    """The table of these columns; `words` as in `table`."""
    lines = [
        table_row(
            *(column.cell(row) for column in columns),
            group=row.cell.group,
            style="baseline" * row.is_baseline,
        )
        for row in rows
    ]
    align = "".join(column.align for column in columns)
    return table([column.heading for column in columns], lines, align, **words)


def results_table(
    rows: Sequence[CellSummary],
    *,
    alpha: float = 0.05,
    digits: int = 3,
    slots: Sequence[Slot] = (),
    third_party: bool = False,
    compact: bool = False,
    **words: Any,
) -> Table:
    """The table of a paper: the first measure with its test, the means alone of the others, so that
    it fits a column of text; a `compact` one has means and letters alone.

    `slots` are the baselines of the letters, in their order; `words` caption and notes. The number
    of runs that a third party launched is unknown.
    """
    scores = Scores(rows, slots, alpha, digits)
    first, *further = measures = list(rows[0].seed_means)

    def difference(row: CellSummary) -> str:
        if pair := row.test(first):
            return f"{signed(pair.delta, digits)} {bracketed(pair, digits)}"
        return f"= {row.same_as}" if row.same_as else ""

    def seeds(row: CellSummary) -> TableCell:
        lost = "lost" * (row.num_used < row.num_launched)
        return TableCell(str(row.num_used) if third_party else row.seeds_text, face=lost)

    system = Column("system", lambda row: row.label, "l")
    if compact:
        return drawn(rows, [system, *map(scores.column, measures)], **words)
    columns = [
        system,
        Column("runs" if third_party else "seeds", seeds, "c"),
        scores.column(first, spread=True),
        Column(f"Δ [{level_text(alpha)} CI]", difference),
        Column("p", lambda row: decisive_p(pair) if (pair := row.test(first)) else ""),
        *map(scores.column, further),
    ]
    if any(row.average_gain is not None for row in rows):
        columns.append(Column("avg. gain", lambda row: average_text(row.average_gain)))
    return drawn(rows, columns, **words)


def average_text(interval: GainInterval | None) -> str:
    """`+5.0% [+4.8, +5.2]`; the gain alone for one seed, which has no interval."""
    if interval is None:
        return ""
    if math.isnan(interval.low):
        return gain_text(interval.gain)
    low, high = (signed(100 * bound, 1) for bound in (interval.low, interval.high))
    return f"{gain_text(interval.gain)} [{low}, {high}]"


def results_csv(rows: Sequence[CellSummary]) -> str:
    """A line per system, measure and comparison, unrounded; a system without comparisons has a line
    without one."""
    fields = [column.name for column in dataclasses.fields(Comparison) if column.name != "measure"]
    own = "label group cell is_baseline seeds_used seeds_launched measure mean sd_seeds".split()
    average = ["average_gain", "average_gain_low", "average_gain_high"]
    return csv_text(
        [*own, *fields, *average],
        (
            [
                *(row.label, row.cell.group, row.cell.cell, row.is_baseline),
                *(row.num_used, row.num_launched),
                *(measure, row.mean(measure), row.deviation(measure)),
                *(getattr(comparison, name, None) for name in fields),
                *(getattr(row.average_gain, name, None) for name in ("gain", "low", "high")),
            ]
            for row in rows
            for measure in row.seed_means
            for comparison in row.tests.get(measure, {}).values() or (None,)
        ),
    )


def caption(
    rows: Sequence[CellSummary],
    *,
    alpha: float = 0.05,
    slots: Sequence[Slot] = (),
    deterministic: Collection[str] = (),
    compact: bool = False,
) -> str:
    """The caption of a table in a paper: runs, letters, correction, test; `notes` has the rest. A
    `compact` table has means and letters alone."""
    own = [row for row in rows if not row.derived]
    seeds = [row.num_used for row in own if row.cell.cell not in deterministic]
    fixed = [row.label for row in rows if row.cell.cell in deterministic]
    measures = list(rows[0].seed_means)
    comparisons = _comparisons(own)
    spread = not compact and any(not math.isnan(row.deviation(measures[0])) for row in rows)
    text = "Mean ± SD" if spread else "Mean"
    if seeds:
        text += f" over {_span(seeds)} training run{'s' * (max(seeds) != 1)} per system"
    if comparisons:
        text += f" on {_span([c.num_queries for c in comparisons])} queries"
    text += f" ({names_text(fixed)}: deterministic)" if fixed else ""
    text += "; best in bold."
    if not comparisons:
        return text
    decided = any(not math.isnan(c.p_both) for c in comparisons)
    details = "; ".join([_legend(rows, slots, decided=decided), f"p < {alpha:g}", *_family(own)])
    differ = f"significant difference in the paired t-test over queries ({details})"
    if decided:
        differ = (
            f"significant difference ({details}): upper case with queries and training runs as "
            "random effects, lower case only in the paired t-test over queries"
        )
    sentences = [text, f"Letters mark a {differ}; ↓: a loss."]
    if not compact:
        level, labels = level_text(alpha), {row.cell.cell: row.label for row in rows}
        label = labels.get(str(slots[0]), "the system's own baseline")
        tested = f"; its {level} interval and p are those of the test with both effects random"
        sentences.append(f"Δ is the difference from {label}{tested * decided}.")
        shown = [pair for row in rows if (pair := row.test(measures[0]))]
        sentences += [ONE_RUN_WORDS] * any(math.isnan(c.p_both) for c in shown)
        sentences += [TWO_RUNS_WORDS] * any(map(has_two_runs, shown))
        if rows[0].average_gain:
            sentences.append(
                f"Avg. gain: mean over the {len(measures)} columns of the relative gains over "
                f"the first baseline, with its {level} interval (crossed bootstrap; the k-th run "
                "of a system is the same training run in every column)."
            )
    return " ".join(sentences)


def notes(
    rows: Sequence[CellSummary],
    *,
    split: str,
    tie_policy: str = TIE_POLICY,
    ties: int | None = None,
    paired_seeds: bool = False,
    collapsed: int = 0,
    failed: int = 0,
    third_party: bool = False,
) -> list[str]:
    """The sentences below a table, which its caption has no room for: queries, test, ties, lost
    trials.

    `ties` is the number of tied scores that the tie policy ordered, if it was counted. Lost runs of
    a third party are unknown and not mentioned.
    """
    sentences = [f"{'Queries of' if third_party else 'Split'} {split}."]
    if any(not math.isnan(c.p_both) for c in _comparisons(rows)):
        nested = PAIRED if paired_seeds else "nested in systems"
        sentences.append(
            "The test with both effects random is a t-test with Welch's (1947) second-order "
            f"degrees of freedom; seeds are {nested}. Upper-case letters need three runs of each "
            "trained system."
        )
    if _family(rows):
        sentences.append(
            "A family is the comparisons of a measure with a baseline; intervals are not corrected."
        )
    tied = tie_policy if ties is None else f"{tie_policy} ({ties:,} tied scores)"
    sentences.append(f"Ties: {tied}.")
    if not third_party:
        own = [(row.num_used, row.num_launched) for row in rows if not row.derived]
        used, launched = map(sum, zip(*own, strict=True))
        kept = " (collapsed trials are kept)" * bool(collapsed)
        sentences.append(
            f"{used} of {launched} launched trials used; {failed} failed, {collapsed} collapsed"
            f"{kept}."
        )
    return sentences


def _comparisons(rows: Sequence[CellSummary]) -> list[Comparison]:
    return [c for row in rows for tests in row.tests.values() for c in tests.values()]


def _family(rows: Sequence[CellSummary]) -> list[str]:
    """`Holm over 2 comparisons`; empty where nothing needs a correction. The family of the test
    over queries alone has all systems, those of one run too."""
    comparisons = _comparisons(rows)
    tested = sum(row.test(next(iter(row.seed_means))) is not None for row in rows)
    one_run = {math.isnan(c.p_both) for c in comparisons}
    sizes = [*(c.family_size for c in comparisons), *[tested] * (len(one_run) > 1)]
    if not sizes or max(sizes) == 1:
        return []
    correction, size = comparisons[0].correction, _span(sizes)
    if correction == "none":
        return [f"not corrected for {size} comparisons"]
    return [f"{CORRECTION_NAMES[correction]} over {size} comparisons"]


def _legend(rows: Sequence[CellSummary], slots: Sequence[Slot], *, decided: bool) -> str:
    """`a/A: FirstP; b/B: the system's own baseline (FirstP BERT, FirstP ELECTRA)`; lower case alone
    where no test has both effects."""
    labels = {row.cell.cell: row.label for row in rows}
    parts = []
    for mark, slot in zip(ascii_lowercase, slots, strict=False):
        if isinstance(slot, str):
            text = labels.get(slot, slot)
        else:
            own = dict.fromkeys(labels.get(name, name) for name in slot.values())
            text = f"the system's own baseline ({', '.join(own)})"
        parts.append(f"{mark}/{mark.upper()}: {text}" if decided else f"{mark}: {text}")
    return "; ".join(parts)


def _span(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low}-{high}"
