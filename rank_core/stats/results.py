"""What one results table contains, and the caption that says how to read it."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from string import ascii_lowercase

from rank_core.errors import BadInput
from rank_core.stats.baselines import Slot, baseline_of
from rank_core.stats.compare import Comparison
from rank_core.stats.gain import GainInterval

CORRECTION_NAMES = {
    "holm": "Holm",
    "bh": "Benjamini-Hochberg (exploratory)",
    "none": "no correction",
}
TIE_POLICY = "equal scores rank by ascending document id"


@dataclass(frozen=True)
class ResultCell:
    """One measure of one system; `others` holds comparisons with further baselines."""

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
    """One line of the table: a system and its measures; equal `group`s stand together.

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


def caption(
    rows: Sequence[ResultRow],
    *,
    split: str,
    alpha: float = 0.05,
    baselines: Sequence[Slot] = (),
    tie_policy: str = TIE_POLICY,
    ties: int | None = None,
    paired_seeds: bool = False,
    deterministic: Collection[str] = (),
    collapsed: int = 0,
    failed: int = 0,
    third_party: bool = False,
) -> str:
    """What a reader must know to read the table: test, scope, S, Q, alpha, family, lost trials.

    `ties` is the number of tied scores that the tie policy ordered, if it was counted. Of runs by
    a third party nobody here knows how many were launched, so nothing is said about lost ones.
    """
    found = [c for row in rows for cell in row.cells for c in cell.comparisons]
    end = "" if third_party else " " + _lost(rows, failed=failed, collapsed=collapsed)
    tied = tie_policy if ties is None else f"{tie_policy} ({ties:,} tied scores)"
    seeds = f"S = {_span(row.seeds_used for row in rows)} seeds per system"
    if not found:
        return f"Split {split}, {seeds}, mean ± SD over seeds; ties: {tied}.{end}"
    corrections = ", ".join(sorted({CORRECTION_NAMES[c.correction] for c in found}))
    nested = "paired across systems" if paired_seeds else "nested in systems"
    return (
        f"Split {split}, {seeds}, Q = {_span(c.num_queries for c in found)} queries, mean ± SD "
        f"over seeds. Letters mark a difference from a baseline ({_legend(rows, baselines)}) at "
        f"alpha = {alpha:g}: "
        "lower case with the queries random and the runs fixed (paired t-test on means over "
        "seeds), upper case with queries and training runs random (Satterthwaite t-test, seeds "
        f"{nested}); ↓ marks a loss. Correction: {corrections} over a family of "
        f"{_span(c.family_size for c in found)} comparisons per measure and baseline. The "
        f"interval of Δ ({100 * (1 - alpha):g} %, not adjusted) and p (adjusted) are those of "
        "queries and runs random, against the first baseline. Bold: best mean after rounding. "
        f"{_average(rows, alpha)}"
        f"Ties: {tied}.{_single_runs(rows, found, deterministic)}{end}"
    )


def slots_in_order(rows: Sequence[ResultRow], baselines: Sequence[Slot]) -> list[Slot]:
    """The baselines in the order of their letters: the given ones, then by first appearance."""
    slots = list(baselines)
    for row in rows:
        for comparison in (c for cell in row.cells for c in cell.comparisons):
            if all(baseline_of(row.cell, slot) != comparison.baseline for slot in slots):
                slots.append(comparison.baseline)
    if len(slots) > len(ascii_lowercase):
        raise BadInput(f"at most {len(ascii_lowercase)} baselines have letters, got {len(slots)}")
    return slots


def _legend(rows: Sequence[ResultRow], baselines: Sequence[Slot]) -> str:
    """`a/A: FirstP; b/B: the system's own baseline (FirstP BERT, FirstP ELECTRA)`."""
    labels = {row.cell: row.label for row in rows}
    parts = []
    for letter, slot in zip(ascii_lowercase, slots_in_order(rows, baselines), strict=False):
        if isinstance(slot, str):
            text = labels.get(slot, slot)
        else:
            own = dict.fromkeys(labels.get(name, name) for name in slot.values())
            text = f"the system's own baseline ({', '.join(own)})"
        parts.append(f"{letter}/{letter.upper()}: {text}")
    return "; ".join(parts)


def _lost(rows: Sequence[ResultRow], *, failed: int, collapsed: int) -> str:
    launched = sum(row.seeds_launched for row in rows)
    used = sum(row.seeds_used for row in rows)
    text = f"{used} of {launched} launched trials used; {failed} failed, {collapsed} collapsed"
    return text + (" (collapsed trials are kept)." if collapsed else ".")


def _single_runs(
    rows: Sequence[ResultRow], found: Sequence[Comparison], deterministic: Collection[str]
) -> str:
    """What a system with one run can be told, unless it is declared to have no other."""
    sides = {(c.system, c.num_seeds_system) for c in found}
    sides |= {(c.baseline, c.num_seeds_baseline) for c in found}
    text = ""
    if any(num == 1 and name not in deterministic for name, num in sides):
        text += " A system with one seed has no upper-case letter: it is that one run."
    fixed = [row.label for row in rows if row.cell in deterministic]
    if fixed:
        text += f" Deterministic by declaration, without seed variance: {', '.join(fixed)}."
    return text


def _average(rows: Sequence[ResultRow], alpha: float) -> str:
    if all(row.average_gain is None for row in rows):
        return ""
    return (
        f"Avg. gain: unweighted mean over the {len(rows[0].cells)} columns of the relative gains "
        f"over the first baseline (ratios of means), with its {100 * (1 - alpha):g} % interval "
        "(crossed bootstrap; the k-th run of a system is the same training run in every column). "
    )


def _span(counts: Iterator[int]) -> str:
    values = list(counts)
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}-{high}"
