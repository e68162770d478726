"""Letters, signs, p-values and short names as terminal, page and figures write them."""

import math

from rank_core.table import ResultCell


def letter(cell: ResultCell, alpha: float) -> str:
    """`A` if the difference holds with queries and runs random, `a` if with queries only."""
    one = cell.comparison
    if one is None:
        return ""
    if one.p_both_adjusted < alpha:
        mark = "A"
    elif one.p_queries_adjusted < alpha:
        mark = "a"
    else:
        return ""
    return f"{mark}↓" if one.delta < 0 else mark


def p_text(p: float) -> str:
    """A p-value as a reader needs it: three decimals, `<.001` below, a dash where undefined."""
    if math.isnan(p):
        return "—"
    return "<.001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def signed(value: float, digits: int = 3) -> str:
    """A rounded difference with its sign, a true minus included."""
    return f"{value:+.{digits}f}".replace("-", "−")


def shortened(label: str, width: int) -> str:
    """The label in at most `width` characters, cut in its middle: labels differ at the end."""
    if len(label) <= width:
        return label
    tail = (width - 1) * 3 // 5
    return f"{label[: width - 1 - tail]}…{label[-tail:]}"
