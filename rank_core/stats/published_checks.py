"""Do the derived numbers of a published table follow from its cells?

Cells are rounded, so what follows from them is an interval: every cell may lie anywhere within half
a unit of its last digit. A printed number matches if its own rounding interval meets that interval.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rank_core.errors import BadInput, unknown
from rank_core.stats.published_tables import PublishedTable, Rounded, rounded

_CLOSE = 1e-9
"""Intervals that touch meet; decimal fractions are not exact in binary."""

Tables = Mapping[str, PublishedTable]


@dataclass(frozen=True)
class Finding:
    """One claim of a table, recomputed: what is printed, what follows, and whether they meet."""

    table: str
    claim: str
    row: str
    printed: str
    recomputed: str
    value: float  # from the cells as printed; NaN where text is compared
    low: float
    high: float
    matches: bool
    expected: bool  # whether the file says that it matches


def check_table(table: PublishedTable, tables: Tables | None = None) -> list[Finding]:
    """All checks of a table in their order; `tables` are those its checks may refer to."""
    findings: list[Finding] = []
    for number, check in enumerate(table.checks, start=1):
        place = f"{table.name}, check {number}"
        kind = _field(check, "kind", place)
        if kind not in KINDS:
            raise unknown(f"kind of {place}", str(kind), KINDS)
        if check.get("expect", "match") not in ("match", "mismatch"):
            raise unknown(f"expect of {place}", str(check["expect"]), ("match", "mismatch"))
        findings += KINDS[kind](table, check, place, tables or {})
    return findings


def mean_gain(
    table: PublishedTable, *, row: str, base: str, columns: Sequence[str], over: str | None = None
) -> tuple[float, float, float]:
    """The mean over columns of 100 (row - over) / base as printed, and its least and largest value.

    Without `over` the gain is over the base itself. Columns count alike and each gives a ratio of
    means, as papers print it, not a mean of ratios per query.
    """
    if not columns:
        raise BadInput(f"{table.name}: a gain needs one column or more")
    parts = []
    for column in columns:
        top, bottom = table.cell(row, column), table.cell(base, column)
        less = bottom if over is None else table.cell(over, column)
        if bottom.low <= 0:
            raise BadInput(f"{table.name}: a gain needs a base above 0 in {column} of {base}")
        # The base is one number: where the gain is over it, both move together.
        corners = [
            100 * (t - (b if over is None else o)) / b
            for t in (top.low, top.high)
            for b in (bottom.low, bottom.high)
            for o in (less.low, less.high)
        ]
        parts.append((100 * (top.value - less.value) / bottom.value, min(corners), max(corners)))
    middle, low, high = (sum(values) / len(columns) for values in zip(*parts, strict=True))
    return middle, low, high


def _check_gain(
    table: PublishedTable, check: Mapping[str, Any], place: str, tables: Tables
) -> list[Finding]:
    row, base = _field(check, "row", place), _field(check, "base", place)
    columns, printed = _field(check, "columns", place), str(_field(check, "printed", place))
    over = check.get("over")
    middle, low, high = mean_gain(table, row=row, base=base, columns=columns, over=over)
    if printed in ("+", "-"):
        matches = high > 0 if printed == "+" else low < 0
    else:
        matches = _meet(rounded(printed), low, high)
        printed += " %"
    name = f"{row} over {over or base}"
    shown = f"{middle:+.2f} % [{low:.2f}, {high:.2f}]"
    return [_finding(table, check, name, printed, shown, (middle, low, high), matches)]


def _check_mean(
    table: PublishedTable, check: Mapping[str, Any], place: str, tables: Tables
) -> list[Finding]:
    columns, printed_column = (
        _field(check, "columns", place),
        _field(check, "printed_column", place),
    )
    weights = check.get("weights", [1] * len(columns))
    if len(weights) != len(columns) or not sum(weights) > 0:
        raise BadInput(f"{place}: weights must be one positive number per column, got {weights}")
    rows = check.get("rows") or list(table.cells)
    findings = []
    for row in rows:
        cells = [table.cell(row, column) for column in columns]
        middle, low, high = (
            sum(weight * getattr(cell, part) for weight, cell in zip(weights, cells, strict=True))
            / sum(weights)
            for part in ("value", "low", "high")
        )
        printed = table.cell(row, printed_column)
        shown = f"{middle:.4f} [{low:.4f}, {high:.4f}]"
        matches = _meet(printed, low, high)
        text = _text(printed)
        turned = row in check.get("except", ())
        findings.append(
            _finding(table, check, row, text, shown, (middle, low, high), matches, turned)
        )
    return findings


def _check_same(
    table: PublishedTable, check: Mapping[str, Any], place: str, tables: Tables
) -> list[Finding]:
    row, columns = _field(check, "row", place), _field(check, "columns", place)
    other = _field(check, "table", place)
    if other not in tables:
        raise unknown(f"table of {place}", other, tables)
    own = [table.cell(row, column) for column in columns]
    others = [tables[other].cell(row, column) for column in columns]
    texts = [" ".join(map(_text, cells)) for cells in (own, others)]
    nothing = (math.nan, math.nan, math.nan)
    recomputed = f"{texts[1]} in {other}"
    return [_finding(table, check, row, texts[0], recomputed, nothing, own == others)]


KINDS: dict[str, Callable[[PublishedTable, Mapping[str, Any], str, Tables], list[Finding]]] = {
    "gain": _check_gain,
    "mean": _check_mean,
    "same": _check_same,
}


def _finding(
    table: PublishedTable,
    check: Mapping[str, Any],
    row: str,
    printed: str,
    recomputed: str,
    numbers: tuple[float, float, float],
    matches: bool,
    turned: bool = False,
) -> Finding:
    return Finding(
        table=table.name,
        claim=str(check.get("claim", check["kind"])),
        row=row,
        printed=printed,
        recomputed=recomputed,
        value=numbers[0],
        low=numbers[1],
        high=numbers[2],
        matches=matches,
        expected=(check.get("expect", "match") == "match") != turned,
    )


def _meet(printed: Rounded, low: float, high: float) -> bool:
    return printed.low <= high + _CLOSE and low <= printed.high + _CLOSE


def _text(cell: Rounded) -> str:
    decimals = max(0, round(-math.log10(2 * cell.half)))
    return f"{cell.value:.{decimals}f}".removeprefix("0") + cell.letters


def _field(check: Mapping[str, Any], name: str, place: str) -> Any:
    if name not in check:
        raise BadInput(f"{place}: needs {name!r}, found {', '.join(check)}")
    return check[name]
