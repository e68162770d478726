"""Several baselines in one table: the same for all rows, or one for every row.

A slot is the baseline that a letter of a results table names. A fixed slot names one cell; a slot
by row maps a system to its own baseline, such as FirstP with the same backbone. The comparisons of
a slot share a letter and are one family of the correction.
"""

from collections.abc import Collection, Mapping, Sequence
from string import ascii_lowercase

from rank_core.errors import BadInput, unknown
from rank_core.stats.compare import Comparison, compare_pairs
from rank_core.stats.matrix import ScoreMatrix

Slot = str | Mapping[str, str]
"""A baseline for all, or {system: its own baseline}; systems that are not named have none."""

ByLetter = dict[str, list[Comparison]]
"""{letter of a slot: its comparisons}, in the order of the slots."""


def compare_with(
    matrix: ScoreMatrix,
    *,
    baselines: Sequence[Slot],
    correction: str = "holm",
    alpha: float = 0.05,
    paired_seeds: bool = False,
    deterministic: Collection[str] = (),
) -> ByLetter:
    """The comparisons of every slot, in the order of the matrix. A cell that is its own baseline is
    excluded."""
    if not baselines:
        raise BadInput("at least one baseline must be given")
    for slot in baselines:
        _check(slot, matrix)
    return {
        letter: compare_pairs(
            matrix,
            [
                (cell, baseline)
                for cell in matrix.cells
                if (baseline := baseline_of(cell, slot)) is not None
            ],
            correction=correction,
            alpha=alpha,
            paired_seeds=paired_seeds,
            deterministic=deterministic,
        )
        for letter, slot in zip(ascii_lowercase, baselines, strict=False)
    }


def baseline_of(cell: str, slot: Slot) -> str | None:
    """The baseline of `cell` in this slot, or None."""
    baseline = slot if isinstance(slot, str) else slot.get(cell)
    return None if baseline == cell else baseline


def of_system(
    comparisons: ByLetter, system: str
) -> tuple[Comparison | None, tuple[Comparison, ...]]:
    """A system's comparison in the first slot, if it has one, and those in all later slots. They
    are `comparison` and `others` of a `ResultCell`, for comparisons of one measure."""
    first, *later = [
        next((c for c in slot if c.system == system), None) for slot in comparisons.values()
    ] or [None]
    return first, tuple(comparison for comparison in later if comparison is not None)


def by_slot(
    cell: str, comparisons: Sequence[Comparison], slots: Sequence[Slot]
) -> tuple[Comparison | None, ...]:
    """The comparison of every slot, or None, for one cell whose comparisons are in slot order. Two
    slots may have the same baseline in this row: the first gets the first comparison."""
    remaining = list(comparisons)
    of_slots: list[Comparison | None] = []
    for slot in slots:
        baseline = baseline_of(cell, slot)
        comparison = next((c for c in remaining if c.baseline == baseline), None)
        if comparison is not None:
            remaining.remove(comparison)
        of_slots.append(comparison)
    return tuple(of_slots)


def letter(comparison: Comparison | None, slot: int, alpha: float) -> str:
    """`A`, `a` or nothing, with an arrow for a loss; a NaN p-value marks nothing.

    The letter is that of the slot: upper case where the difference is significant with queries and
    training runs as random effects, lower case where it is with queries alone, or with too few
    seeds.
    """
    if comparison is None:
        return ""
    mark = ascii_lowercase[slot] if comparison.p_queries_adjusted < alpha else ""
    if comparison.significant(alpha):
        mark = ascii_lowercase[slot].upper()
    return f"{mark}↓" if mark and comparison.delta < 0 else mark


def _check(slot: Slot, matrix: ScoreMatrix) -> None:
    named = [slot] if isinstance(slot, str) else [*slot, *slot.values()]
    for cell in named:
        if cell not in matrix.cells:
            raise unknown("baseline" if cell in _baselines(slot) else "cell", cell, matrix.cells)


def _baselines(slot: Slot) -> Collection[str]:
    return [slot] if isinstance(slot, str) else list(slot.values())
