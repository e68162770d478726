"""One value of a results table as a reader sees it: rounded, marked, never before."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rank_core.stats.baselines import Slot, by_slot, letter
from rank_core.stats.gain import GainInterval
from rank_core.stats.results import ResultRow

MISSING = "—"


@dataclass(frozen=True)
class Shown:
    """What a reader sees of one measure: the mean, its letter per baseline, and plain columns."""

    mean: str
    bold: bool
    hollow: bool  # not told from the best of its column
    letters: tuple[str, ...]  # one per baseline, "" without a difference
    spread: str  # " ± 0.004", the standard deviation over seeds; "" for one seed
    plain: tuple[str, ...]  # gain, W/T/L, interval, p


def shown_cell(
    row: ResultRow,
    rows: Sequence[ResultRow],
    column: int,
    *,
    alpha: float,
    digits: int,
    slots: Sequence[Slot],
    hollow: bool,
) -> Shown:
    """The measure number `column` of one row; bold if it is the best of `rows` after rounding."""
    cell = row.cells[column]
    means = [round(one.cells[column].mean, digits) for one in rows]
    best = max((mean for mean in means if not math.isnan(mean)), default=math.nan)
    found = by_slot(row.cell, cell.comparisons, slots)
    plain = ("", "", "", "")
    if cell.comparison is not None:
        c = cell.comparison
        interval = f"[{_number(c.ci_low, digits)}, {_number(c.ci_high, digits)}]"
        plain = (
            MISSING if math.isnan(c.relative_gain) else f"{_percent(c.relative_gain)} %",
            f"{c.wins}/{c.ties}/{c.losses}",
            MISSING if math.isnan(c.ci_low) else interval,
            _p(c.p_both_adjusted),
        )
    return Shown(
        mean=_number(cell.mean, digits),
        bold=round(cell.mean, digits) == best,
        hollow=hollow,
        letters=tuple(letter(one, slot, alpha) for slot, one in enumerate(found)),
        spread="" if math.isnan(cell.sd_seeds) else f" ± {_number(cell.sd_seeds, digits)}",
        plain=plain,
    )


def average_text(one: GainInterval | None) -> str:
    """`+5.0 % [+4.8, +5.2]`; the gain alone where one seed leaves no interval."""
    if one is None:
        return ""
    gain = f"{_percent(one.gain)} %"
    if math.isnan(one.low):
        return gain
    return f"{gain} [{_percent(one.low)}, {_percent(one.high)}]"


def _number(value: float, digits: int) -> str:
    """The rounded number with a true minus sign; adding 0 turns a rounded -0 into 0."""
    if math.isnan(value):
        return MISSING
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def _percent(share: float) -> str:
    return f"{100 * share:+.1f}".replace("-", "−")


def _p(p: float) -> str:
    if math.isnan(p):
        return MISSING
    return "<.001" if p < 0.001 else f"{p:.3f}".removeprefix("0")
