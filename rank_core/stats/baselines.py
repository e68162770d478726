"""Several baselines in one table: the same one for all rows, or for every row its own.

A slot is what one letter of a results table stands for. A fixed slot names one cell; a slot by row
maps a system to its own baseline, such as FirstP with the same backbone. The comparisons of a slot
are what a reader can read off one letter, so they are one family of the correction.
"""

from collections.abc import Collection, Mapping, Sequence
from string import ascii_lowercase

from rank_core.errors import BadInput, unknown
from rank_core.stats.compare import Comparison, compare_pairs
from rank_core.stats.matrix import ScoreMatrix

Slot = str | Mapping[str, str]
"""A baseline for all, or {system: its own baseline}; systems that are not named have none."""


def compare_with(
    matrix: ScoreMatrix,
    *,
    baselines: Sequence[Slot],
    correction: str = "holm",
    alpha: float = 0.05,
    paired_seeds: bool = False,
    deterministic: Collection[str] = (),
) -> list[list[Comparison]]:
    """The comparisons of every slot, in the order of the slots and of the matrix.

    A cell that is its own baseline is left out.
    """
    if not baselines:
        raise BadInput("at least one baseline must be given")
    for slot in baselines:
        _check(slot, matrix)
    return [
        compare_pairs(
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
        for slot in baselines
    ]


def baseline_of(cell: str, slot: Slot) -> str | None:
    """What `cell` is compared with in this slot, if with anything."""
    baseline = slot if isinstance(slot, str) else slot.get(cell)
    return None if baseline == cell else baseline


def of_system(
    found: Sequence[Sequence[Comparison]], system: str
) -> tuple[Comparison | None, tuple[Comparison, ...]]:
    """A system's comparison in the first slot, if it has one, and those in all later slots.

    They are `comparison` and `others` of a `ResultCell`, for comparisons of one measure.
    """
    by_slot = [next((one for one in slot if one.system == system), None) for slot in found]
    return by_slot[0], tuple(one for one in by_slot[1:] if one is not None)


def by_slot(
    cell: str, comparisons: Sequence[Comparison], slots: Sequence[Slot]
) -> tuple[Comparison | None, ...]:
    """The comparison of every slot, or None, for one cell whose comparisons are in slot order.

    Two slots may have the same baseline in this row: the first gets the first comparison.
    """
    left = list(comparisons)
    found: list[Comparison | None] = []
    for slot in slots:
        wanted = baseline_of(cell, slot)
        one = next((one for one in left if one.baseline == wanted), None)
        if one is not None:
            left.remove(one)
        found.append(one)
    return tuple(found)


def letter(comparison: Comparison | None, slot: int, alpha: float) -> str:
    """`A`, `a` or nothing, with an arrow for a loss; a NaN p-value marks nothing.

    The letter is that of the slot: upper case where the difference holds with queries and training
    runs random, lower case where it holds with queries random only, or with fewer seeds than can
    tell.
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
