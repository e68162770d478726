"""What one results table contains, and the caption that says how to read it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import ascii_lowercase

from rank_core.errors import BadInput
from rank_core.stats.compare import Comparison

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
    """One line of the table: a system and its measures; equal `group`s stand together."""

    label: str
    group: str
    cell: str
    is_baseline: bool
    seeds_used: int
    seeds_launched: int
    cells: tuple[ResultCell, ...]


def caption(
    rows: Sequence[ResultRow],
    *,
    split: str,
    alpha: float = 0.05,
    baselines: Sequence[str] = (),
    tie_policy: str = TIE_POLICY,
    paired_seeds: bool = False,
    collapsed: int = 0,
    failed: int = 0,
) -> str:
    """What a reader must know to read the table: test, scope, S, Q, alpha, family, lost trials."""
    found = [c for row in rows for cell in row.cells for c in cell.comparisons]
    launched = sum(row.seeds_launched for row in rows)
    used = sum(row.seeds_used for row in rows)
    lost = f"{used} of {launched} launched trials used; {failed} failed, {collapsed} collapsed"
    lost += " (collapsed trials are kept)." if collapsed else "."
    seeds = f"S = {_span(row.seeds_used for row in rows)} seeds per system"
    if not found:
        return f"Split {split}, {seeds}, mean ± SD over seeds; ties: {tie_policy}. {lost}"
    names = baselines_in_order(rows, baselines)
    labels = {row.cell: row.label for row in rows}
    letters = "; ".join(
        f"{letter}/{letter.upper()}: {labels.get(name, name)}"
        for letter, name in zip(ascii_lowercase, names, strict=False)
    )
    corrections = ", ".join(sorted({CORRECTION_NAMES[c.correction] for c in found}))
    if any(min(c.num_seeds_system, c.num_seeds_baseline) == 1 for c in found):
        lost = f"A system with one seed has no upper-case letter: it is that one run. {lost}"
    nested = "paired across systems" if paired_seeds else "nested in systems"
    return (
        f"Split {split}, {seeds}, Q = {_span(c.num_queries for c in found)} queries, mean ± SD "
        f"over seeds. Letters mark a difference from a baseline ({letters}) at alpha = {alpha:g}: "
        "lower case with the queries random and the runs fixed (paired t-test on means over "
        "seeds), upper case with queries and training runs random (Satterthwaite t-test, seeds "
        f"{nested}); ↓ marks a loss. Correction: {corrections} over a family of "
        f"{_span(c.family_size for c in found)} comparisons per measure and baseline. The "
        f"interval of Δ ({100 * (1 - alpha):g} %, not adjusted) and p (adjusted) are those of "
        "queries and runs random, against the first baseline. Bold: best mean after rounding. "
        f"Ties: {tie_policy}. {lost}"
    )


def baselines_in_order(rows: Sequence[ResultRow], baselines: Sequence[str]) -> list[str]:
    """The baselines in the order of their letters: the given ones, or by first appearance."""
    found = [c.baseline for row in rows for cell in row.cells for c in cell.comparisons]
    names = list(dict.fromkeys([*baselines, *found]))
    if len(names) > len(ascii_lowercase):
        raise BadInput(f"at most {len(ascii_lowercase)} baselines have letters, got {len(names)}")
    return names


def _span(counts: Iterator[int]) -> str:
    values = list(counts)
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}-{high}"
