"""Letters, signs, p-values, short names and plain tables, for terminal, page and figures."""

import math
from collections.abc import Collection, Sequence

from rank_core.stats.baselines import Slot, by_slot, letter
from rank_core.stats.compare import Comparison
from rank_core.stats.table import ResultCell


def letters(system: str, cell: ResultCell, slots: Sequence[Slot], alpha: float) -> str:
    """One letter per baseline from which the system differs; see `baselines.letter`."""
    found = by_slot(system, cell.comparisons, slots)
    return "".join(letter(one, slot, alpha) for slot, one in enumerate(found))


def p_text(p: float) -> str:
    """A p-value as a reader needs it: three decimals, `<.001` below, a dash where undefined."""
    if math.isnan(p):
        return "—"
    return "<.001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def relation(p: float) -> str:
    """`= .012` or `<.001`, for a sentence."""
    text = p_text(p)
    return text if text.startswith("<") else f"= {text}"


def percent(share: float) -> str:
    """A share of 1 in whole percent; what is neither never nor always does not read as that."""
    if math.isnan(share):
        return "—"
    if 0 < share < 0.01:
        return "under 1 %"
    if 0.99 < share < 1:
        return "over 99 %"
    return f"{100 * share:.0f} %"


def signed(value: float, digits: int = 3) -> str:
    """A rounded difference with its sign, a true minus included."""
    return f"{value:+.{digits}f}".replace("-", "−")


def short_signed(value: float) -> str:
    """A difference in as few characters as it needs: `+.012`."""
    text = f"{value:+.3f}"
    return text[0] + text[1:].removeprefix("0")


def short_interval(one: Comparison) -> str:
    """Both ends; two seeds can leave an interval that no measure could fill, one seed none."""
    if math.isnan(one.ci_low):
        return "—"
    if one.ci_high - one.ci_low > 2:
        return "says nothing"
    return f"[{short_signed(one.ci_low)}, {short_signed(one.ci_high)}]"


def shortened(label: str, width: int) -> str:
    """The label in at most `width` characters, cut in its middle: labels differ at the end."""
    if len(label) <= width:
        return label
    tail = (width - 1) * 3 // 5
    return f"{label[: width - 1 - tail]}…{label[-tail:]}"


def aligned(lines: Sequence[Sequence[str]], *, left: Collection[int]) -> list[str]:
    """A table of a terminal, the first line its heading; columns not in `left` align right."""
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    drawn = [
        "  ".join(
            text.ljust(width) if at in left else text.rjust(width)
            for at, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return [drawn[0], "-" * max(map(len, drawn)), *drawn[1:]]
