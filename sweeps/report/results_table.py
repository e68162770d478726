"""The results of systems as a table: rows of means with letters, and the caption that explains it.

Letters: the first baseline is `a`, the next `b`, ...; a baseline is a cell, or a mapping from each
system to its own. Lower case marks a difference with only the queries random (paired t-test on
means over seeds), upper case a difference that also holds over training runs.
"""

import dataclasses
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from string import ascii_lowercase

from rank_core.errors import BadInput
from rank_core.stats.baselines import Slot, baseline_of, by_slot, letter
from rank_core.stats.compare import Comparison
from rank_core.stats.gain import GainInterval
from rank_core.stats.multiplicity import CORRECTION_NAMES
from sweeps.report.notation import (
    TIE_POLICY,
    bracketed,
    decisive_p,
    gain_text,
    level_text,
    number,
    signed,
    wins_text,
)
from sweeps.report.table import Cell, Table, csv_text, table, table_row

PAIRED = (
    "paired across systems: run i of each shares its initialisation, order of the data and "
    "negatives with run i of the others, and the test is over their differences"
)
"""The assumption of a test of paired seeds."""


@dataclass(frozen=True)
class ResultCell:
    """A measure of a system; `others` are comparisons with further baselines."""

    measure: str
    mean: float  # over seeds and queries
    sd_seeds: float  # of the seed means; NaN for one seed
    comparison: Comparison | None
    others: tuple[Comparison, ...] = ()

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """All comparisons of this value, the first baseline's first."""
        return (() if self.comparison is None else (self.comparison,)) + self.others


@dataclass(frozen=True)
class ResultRow:
    """A line of the table: a system and its measures; equal `group`s are adjacent.

    `average_gain` is that over all columns and against the first baseline, where the table spans
    several collections.
    """

    label: str
    group: str
    cell: str
    is_baseline: bool
    seeds_used: int
    seeds_launched: int
    cells: tuple[ResultCell, ...]
    average_gain: GainInterval | None = None
    derived: bool = False  # from the trials of another row, or from none

    @property
    def seeds_text(self) -> str:
        """`3/3`, used and launched; `—` of a system without seeds."""
        if self.derived and not self.seeds_launched:
            return "—"
        return f"{self.seeds_used}/{self.seeds_launched}"


@dataclass(frozen=True)
class Scores:
    """The means of a table as cells: rounded, with letters, the best of a column marked."""

    rows: Sequence[ResultRow]
    slots: Sequence[Slot]
    alpha: float = 0.05
    digits: int = 3

    def cell(self, row: ResultRow, column: int) -> Cell:
        """The mean of measure number `column`, its deviation over seeds as the note."""
        own = row.cells[column]
        means = [round(other.cells[column].mean, self.digits) for other in self.rows]
        best = max((mean for mean in means if not math.isnan(mean)), default=math.nan)
        compared = by_slot(row.cell, own.comparisons, self.slots)
        return Cell(
            number(own.mean, self.digits),
            letters=tuple(letter(c, at, self.alpha) for at, c in enumerate(compared)),
            note="" if math.isnan(own.sd_seeds) else f"± {number(own.sd_seeds, self.digits)}",
            face="best" if round(own.mean, self.digits) == best else "",
        )


def results_table(
    rows: Sequence[ResultRow],
    *,
    alpha: float = 0.05,
    digits: int = 3,
    slots: Sequence[Slot] = (),
    caption: str = "",
    third_party: bool = False,
) -> Table:
    """The table of a paper: per measure mean, gain, W/T/L, interval and p.

    `slots` are the baselines of the letters, in their order. The number of runs that a third party
    launched is unknown.
    """
    measures = _measures(rows)
    scores = Scores(rows, slots_in_order(rows, slots), alpha, digits)
    averaged = any(row.average_gain is not None for row in rows)
    heading = ["system", "runs" if third_party else "seeds"]
    for measure in measures:
        heading += [measure, "gain", "W/T/L", f"{level_text(alpha)} CI of Δ", "p"]
    heading += ["avg. gain"] if averaged else []
    lines = []
    for row in rows:
        cells: list[str | Cell] = [
            row.label,
            str(row.seeds_used) if third_party else row.seeds_text,
        ]
        for column in range(len(measures)):
            cells += [scores.cell(row, column), *_compared(row.cells[column].comparison, digits)]
        cells += [average_text(row.average_gain)] if averaged else []
        lines.append(table_row(*cells, group=row.group))
    return table(heading, lines, "lc".ljust(len(heading), "r"), caption=caption)


def compact_table(
    rows: Sequence[ResultRow],
    *,
    alpha: float = 0.05,
    digits: int = 3,
    slots: Sequence[Slot] = (),
    caption: str = "",
) -> Table:
    """One column per measure: the mean with its letters and nothing else."""
    measures = _measures(rows)
    scores = Scores(rows, slots_in_order(rows, slots), alpha, digits)
    lines = [
        table_row(
            row.label,
            *(dataclasses.replace(scores.cell(row, at), note="") for at in range(len(measures))),
            group=row.group,
        )
        for row in rows
    ]
    return table(["system", *measures], lines, "l" * (1 + len(measures)), caption=caption)


def compact_caption(rows: Sequence[ResultRow], *, alpha: float, slots: Sequence[Slot]) -> str:
    """The caption of a table of means and letters."""
    comparisons = [c for row in rows for cell in row.cells for c in cell.comparisons]
    seeds = _span(row.seeds_used for row in rows if not row.derived)
    text = f"Means over {seeds} training runs per system"
    if not comparisons:
        return f"{text}."
    corrections = ", ".join(sorted({CORRECTION_NAMES[c.correction] for c in comparisons}))
    return (
        f"{text} and {_span(c.num_queries for c in comparisons)} queries. Letters mark a "
        f"significant difference ({_legend(rows, slots)}; alpha = {alpha:g}, {corrections}): "
        "lower case in the paired t-test over queries (seeds averaged), upper case with queries "
        "and seeds (training runs) as random effects; ↓ marks a loss. Bold: best mean."
    )


def _compared(comparison: Comparison | None, digits: int) -> tuple[str, str, str, str]:
    """Gain, W/T/L, interval and p of one comparison."""
    if comparison is None:
        return "", "", "", ""
    return (
        gain_text(comparison.relative_gain),
        wins_text(comparison),
        bracketed(comparison, digits),
        decisive_p(comparison),
    )


def average_text(interval: GainInterval | None) -> str:
    """`+5.0% [+4.8, +5.2]`; the gain alone for one seed, which has no interval."""
    if interval is None:
        return ""
    if math.isnan(interval.low):
        return gain_text(interval.gain)
    low, high = (signed(100 * bound, 1) for bound in (interval.low, interval.high))
    return f"{gain_text(interval.gain)} [{low}, {high}]"


def results_csv(rows: Sequence[ResultRow]) -> str:
    """A line per system, measure and comparison, unrounded; a system without comparisons has a line
    without one."""
    fields = [column.name for column in dataclasses.fields(Comparison) if column.name != "measure"]
    own = "label group cell is_baseline seeds_used seeds_launched measure mean sd_seeds".split()
    average = ["average_gain", "average_gain_low", "average_gain_high"]
    return csv_text(
        [*own, *fields, *average],
        (
            [
                *(row.label, row.group, row.cell, row.is_baseline),
                *(row.seeds_used, row.seeds_launched, cell.measure, cell.mean, cell.sd_seeds),
                *(getattr(comparison, name, None) for name in fields),
                *(getattr(row.average_gain, name, None) for name in ("gain", "low", "high")),
            ]
            for row in rows
            for cell in row.cells
            for comparison in cell.comparisons or (None,)
        ),
    )


def _measures(rows: Sequence[ResultRow]) -> list[str]:
    if not rows:
        raise BadInput("a results table needs at least one row")
    measures = [cell.measure for cell in rows[0].cells]
    for row in rows:
        if [cell.measure for cell in row.cells] != measures:
            raise BadInput(
                f"every row needs the measures {', '.join(measures)} in this order, "
                f"got {', '.join(cell.measure for cell in row.cells)} for {row.label}"
            )
    return measures


def caption(
    rows: Sequence[ResultRow],
    *,
    split: str,
    alpha: float = 0.05,
    slots: Sequence[Slot] = (),
    tie_policy: str = TIE_POLICY,
    ties: int | None = None,
    paired_seeds: bool = False,
    deterministic: Collection[str] = (),
    collapsed: int = 0,
    failed: int = 0,
    third_party: bool = False,
) -> str:
    """The caption of a table in a paper: test, scope, S, Q, alpha, family, lost trials.

    `ties` is the number of tied scores that the tie policy ordered, if it was counted. Lost runs of
    a third party are unknown and not mentioned.
    """
    own = [row for row in rows if not row.derived]
    comparisons = [c for row in own for cell in row.cells for c in cell.comparisons]
    end = "" if third_party else " " + _lost(rows, failed=failed, collapsed=collapsed)
    tied = tie_policy if ties is None else f"{tie_policy} ({ties:,} tied scores)"
    where = "Queries of" if third_party else "Split"
    seeds = f"S = {_span(row.seeds_used for row in own)} seeds per system"
    if not comparisons:
        return f"{where} {split}, {seeds}, mean ± SD over seeds; ties: {tied}.{end}"
    corrections = ", ".join(sorted({CORRECTION_NAMES[c.correction] for c in comparisons}))
    family = _span(c.family_size for c in comparisons)
    nested = PAIRED if paired_seeds else "nested in systems"
    return (
        f"{where} {split}, {seeds}, Q = {_span(c.num_queries for c in comparisons)} queries, "
        f"mean ± SD over seeds. Letters mark a difference from a baseline "
        f"({_legend(rows, slots)}) at alpha = {alpha:g}: "
        "lower case in the paired t-test over queries (seeds averaged), upper case with queries "
        "and seeds (training runs) as random effects (Welch's second-order t-test, "
        f"seeds {nested}, three or more of each trained system); ↓ marks a loss. "
        f"Correction: {corrections} over "
        f"{family} comparison{'s' * (family != '1')} per measure and baseline. The "
        f"interval of Δ ({100 * (1 - alpha):g}%, not adjusted) and p (adjusted) are those with "
        "both effects random, against the first baseline. Gain: relative, of the mean; W/T/L: "
        "queries won, tied and lost. Bold: best mean after rounding. "
        f"{_average(rows, alpha)}"
        f"Ties: {tied}.{_deterministic(rows, deterministic)}{end}"
    )


def slots_in_order(rows: Sequence[ResultRow], given: Sequence[Slot]) -> list[Slot]:
    """The baselines in the order of their letters: the given ones, then by first appearance."""
    slots = list(given)
    for row in rows:
        for comparison in (c for cell in row.cells for c in cell.comparisons):
            if all(baseline_of(row.cell, slot) != comparison.baseline for slot in slots):
                slots.append(comparison.baseline)
    if len(slots) > len(ascii_lowercase):
        raise BadInput(f"at most {len(ascii_lowercase)} baselines have letters, got {len(slots)}")
    return slots


def _legend(rows: Sequence[ResultRow], slots: Sequence[Slot]) -> str:
    """`a/A: FirstP; b/B: the system's own baseline (FirstP BERT, FirstP ELECTRA)`."""
    labels = {row.cell: row.label for row in rows}
    parts = []
    for mark, slot in zip(ascii_lowercase, slots_in_order(rows, slots), strict=False):
        if isinstance(slot, str):
            text = labels.get(slot, slot)
        else:
            own = dict.fromkeys(labels.get(name, name) for name in slot.values())
            text = f"the system's own baseline ({', '.join(own)})"
        parts.append(f"{mark}/{mark.upper()}: {text}")
    return "; ".join(parts)


def _lost(rows: Sequence[ResultRow], *, failed: int, collapsed: int) -> str:
    launched = sum(row.seeds_launched for row in rows if not row.derived)
    used = sum(row.seeds_used for row in rows if not row.derived)
    text = f"{used} of {launched} launched trials used; {failed} failed, {collapsed} collapsed"
    return text + (" (collapsed trials are kept)." if collapsed else ".")


def _deterministic(rows: Sequence[ResultRow], deterministic: Collection[str]) -> str:
    fixed = [row.label for row in rows if row.cell in deterministic]
    return f" Deterministic, without seed variance: {', '.join(fixed)}." if fixed else ""


def _average(rows: Sequence[ResultRow], alpha: float) -> str:
    if all(row.average_gain is None for row in rows):
        return ""
    return (
        f"Avg. gain: unweighted mean over the {len(rows[0].cells)} columns of the relative gains "
        f"over the first baseline (ratios of means), with its {100 * (1 - alpha):g}% interval "
        "(crossed bootstrap; the k-th run of a system is the same training run in every column). "
    )


def _span(counts: Iterable[int]) -> str:
    values = list(counts)
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}-{high}"
