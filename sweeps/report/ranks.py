"""The ranks that a comparison leaves open: `compare --ranks`."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from rank_core.stats.ranks import rank_intervals
from rank_core.stats.scopes import LEAST_SEEDS
from sweeps.findings.analysis import Analysis
from sweeps.report.table import table, terminal_lines, wrapped
from sweeps.terminal.escape import from_csv
from sweeps.terminal.notation import MISSING, level_text, number

COLUMNS = ("rank_low", "rank_high", "rank_group")


@dataclass(frozen=True)
class RankRow:
    """A system's rank on a measure: the ends of its interval, and its group; None without three
    training runs."""

    measure: str
    system: str
    rank_low: int | None
    rank_high: int | None
    rank_group: int | None


def rank_rows(analysis: Analysis) -> list[RankRow]:
    """The ranks of all systems on every measure, the highest mean first."""
    rows = []
    for measure in analysis.cell_scores.plain:  # a mean over collections has no ranks
        matrix = analysis.cell_scores.tested[measure]
        ranks = rank_intervals(
            matrix,
            alpha=analysis.sweep.tests.alpha,
            deterministic=analysis.sweep.deterministic,
        )
        group_of = {cell: n for n, group in enumerate(ranks.groups, start=1) for cell in group}
        rows += [
            RankRow(measure, cell, low, high, group_of[cell])
            for cell, (low, high) in ranks.intervals.items()
        ]
        rows += [RankRow(measure, cell, None, None, None) for cell in ranks.unranked]
    return rows


def ranks_text(analysis: Analysis, rows: Sequence[RankRow]) -> list[str]:
    """The lines of a terminal: a table per measure, then the meaning of ranks and groups."""
    lines = []
    for measure, matrix in analysis.cell_scores.plain.items():
        cells = [
            (
                row.system,
                number(float(matrix.scores[row.system].mean()), analysis.sweep.digits),
                _interval(row),
                MISSING if row.rank_group is None else str(row.rank_group),
            )
            for row in rows
            if row.measure == measure
        ]
        drawn = terminal_lines(table(("system", "mean", "rank", "group"), cells))
        lines += ["", f"Ranks, {measure}", *drawn]
    level = level_text(analysis.sweep.tests.alpha)
    meaning = (
        "A system is better than another where the difference is significant for new queries and "
        "new training runs (Holm over all ordered pairs). The rank of a system lies between 1 + "
        "the number of better systems and K - the number of worse ones of K: all intervals of a "
        f"table hold at once at {level}. No two systems of a group can be told apart; two of "
        "different groups may be tied as well if their intervals overlap."
    )
    unranked = any(row.rank_group is None for row in rows)
    few = f"Systems of fewer than {LEAST_SEEDS} training runs have no rank." if unranked else ""
    return [*lines, "", *wrapped(meaning), *(wrapped(few) if few else ())]


def _interval(row: RankRow) -> str:
    if row.rank_low is None:
        return MISSING
    return str(row.rank_low) if row.rank_low == row.rank_high else f"{row.rank_low}-{row.rank_high}"


def with_ranks(table_csv: bytes, rows: Sequence[RankRow]) -> bytes:
    """The lines of `table.csv` with the ends of the rank and the group."""
    known = {(row.system, row.measure): row for row in rows}
    heading, *lines = csv.reader(io.StringIO(table_csv.decode()))
    cell, measure = heading.index("cell"), heading.index("measure")
    out = io.StringIO()
    written = csv.writer(out, lineterminator="\n")
    written.writerow([*heading, *COLUMNS])
    for line in lines:
        row = known.get((from_csv(line[cell]), line[measure]))
        written.writerow([*line, *(getattr(row, name, None) for name in COLUMNS)])
    return out.getvalue().encode()
