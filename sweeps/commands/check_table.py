"""`python -m sweeps check-table`: do the derived numbers of a published table follow from it?"""

import argparse
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from rank_core.errors import BadInput, unknown
from rank_core.stats.published_checks import Finding, check_table
from rank_core.stats.published_tables import PublishedTable, read_table, shipped_tables

_SHOWN = 3
"""Rows of one claim that are listed before the rest is counted."""


def main(argv: Sequence[str]) -> int:
    """Recompute derived numbers from rounded cells; 1 if something is not as the file expects."""
    parser = argparse.ArgumentParser(
        prog="python -m sweeps check-table",
        description=main.__doc__,
        epilog="The format of a file is described in rank_core/stats/published_tables.py; the "
        "tables in rank_core/stats/published are examples.",
    )
    parser.add_argument(
        "table",
        nargs="?",
        metavar="FILE|NAME",
        help="a JSON file, or a shipped table (default all)",
    )
    chosen = parser.parse_args(argv).table
    shipped = shipped_tables()
    tables = list(shipped.values()) if chosen is None else [_table(chosen, shipped)]
    if chosen is not None and not tables[0].checks:
        print(f"{tables[0].name}: {tables[0].title} ({tables[0].source})")
        print("  no derived numbers to check")
        return 0
    findings = []
    for table in tables:
        found = check_table(table, shipped)
        findings += found
        if found:
            print(table_text(table, found))
    print(verdict(findings))
    return 0 if all(one.matches == one.expected for one in findings) else 1


def table_text(table: PublishedTable, findings: Sequence[Finding]) -> str:
    """The table's name and source and a block for each claim; few rows are shown, all counted."""
    lines = [f"{table.name}: {table.title}", f"  {table.source}"]
    lines += [f"  {table.note}"] if table.note else []
    for claim, group in groupby(findings, key=lambda one: one.claim):
        rows = list(group)
        for matches in (True, False):
            some = [one for one in rows if one.matches == matches]
            if not some:
                continue
            mark = "ok      " if matches else "MISMATCH"
            count = f" ({len(some)} of {len(rows)} rows)" if len(rows) > 1 else ""
            lines.append(f"  {mark}  {claim}{count}")
            lines += [_line(one) for one in some[:_SHOWN]]
            if len(some) > _SHOWN:
                lines.append(f"              and {len(some) - _SHOWN} more")
    return "\n".join([*lines, ""])


def verdict(findings: Sequence[Finding]) -> str:
    """How many numbers match, and which of them differ from what was expected."""
    matches = sum(one.matches for one in findings)
    text = f"{len(findings)} claims recomputed: {matches} match, {len(findings) - matches} do not"
    strange = [one for one in findings if one.matches != one.expected]
    if not strange:
        return f"{text}; all as recorded with the tables."
    named = "; ".join(f"{one.table}, {one.claim}, {one.row}" for one in strange)
    return f"{text}; not as expected: {named}."


def _table(chosen: str, shipped: dict[str, PublishedTable]) -> PublishedTable:
    if chosen in shipped:
        return shipped[chosen]
    path = Path(chosen)
    if path.exists():
        return read_table(path)
    if path.suffix == ".json":
        raise BadInput(f"{path} does not exist")
    raise unknown("table", chosen, shipped)


def _line(one: Finding) -> str:
    return f"              {one.row}: printed {one.printed}, from the cells {one.recomputed}"
