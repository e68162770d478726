"""Findings as a table, for the page and a terminal: the only place that writes their numbers."""

import math
from collections.abc import Iterable

from sweeps.findings.finding import Finding, Unit
from sweeps.report.table import Table, TableCell, table
from sweeps.terminal.notation import names_text, number, p_text, percent, signed

EXPLAINED = "docs/statistics.md"


def finding_table(found: Iterable[Finding], digits: int = 3, most: int = 8) -> Table:
    """A row for each: its name, what it is about, its number."""
    rows = [
        (one.name, one.about, TableCell(value_text(one, digits, most), hint=_hint(one)))
        for one in found
    ]
    return table(("finding", "of", "value"), rows, "lll")


def _hint(one: Finding) -> str:
    return f"{EXPLAINED}#{one.link}" if one.link else ""


def value_text(one: Finding, digits: int = 3, most: int = 8) -> str:
    """`+0.177 [0.082, 0.272], p .002`, `19%`, `2: MaxP 40/40 and MaxP 40/20`."""
    names = names_text([*one.names], most) if one.names else ""
    if math.isnan(one.value):
        return names or f"p {p_text(one.p)}"
    text = _number(one, digits)
    if not math.isnan(one.low):
        text += f" [{number(one.low, digits)}, {number(one.high, digits)}]"
    if not math.isnan(one.p):
        text += f", p {p_text(one.p)}"
    return f"{text}: {names}" if names else text


def _number(one: Finding, digits: int) -> str:
    match one.unit:
        case Unit.DIFFERENCE:
            return signed(one.value, digits)
        case Unit.SCORE:
            return number(one.value, digits)
        case Unit.SHARE:
            return percent(one.value)
        case Unit.COUNT:
            return f"{one.value:,.0f}"
    return f"{one.value:,.0f}" if one.value >= 100 else f"{one.value:.3g}"
