"""What the terminal shows when a sweep ends: a table of 80 columns and a few sentences."""

import math
import textwrap
from pathlib import Path

from rank_core.stats.table import ResultCell, ResultRow
from sweeps.report.analysis import Analysis
from sweeps.report.notation import (
    aligned,
    letters,
    p_text,
    short_interval,
    short_signed,
    shortened,
)
from sweeps.report.sections.conclusions import conclusions
from sweeps.report.sections.race import fate_word, left_after

WIDTH = 80
_LABEL = 20
_OTHERS = 1
"""Further measures beside the primary one that fit in the width; the page has them all."""


def terminal_text(analysis: Analysis, page: Path) -> str:
    """The table, the conclusions, and where the page lies."""
    sweep = analysis.sweep
    sentences = [
        textwrap.fill(one, WIDTH, break_long_words=False, break_on_hyphens=False)
        for one in (*conclusions(analysis), _legend(analysis))
        if one
    ]
    return "\n".join(
        [
            *textwrap.wrap(f"{sweep.name}: {sweep.question}", WIDTH),
            "",
            *_table(analysis),
            "",
            *sentences,
            f"Report: {page}",
            "",
        ]
    )


def _legend(analysis: Analysis) -> str:
    if not analysis.comparisons:
        return ""
    baseline = analysis.baseline.cell.label
    own = " b, B: the same against the system's own baseline." if analysis.sweep.baselines else ""
    return (
        f"a: differs from {baseline} with queries random only; A: with queries and training "
        f"runs random; ↓: a loss.{own}"
    )


def _table(analysis: Analysis) -> list[str]:
    sweep = analysis.sweep
    others = [one for one in sweep.measures if one != sweep.primary][:_OTHERS]
    level = f"{100 * (1 - sweep.alpha):g} %"
    fates = dict.fromkeys(left_after(sweep), fate_word(sweep))
    lines = [["system", "seeds", sweep.primary, "diff", f"{level} interval", "p", *others]]
    for row in analysis.rows:
        cells = {one.measure: one for one in row.cells}
        lines.append(
            [
                shortened(row.label, _LABEL),
                f"{row.seeds_used}/{row.seeds_launched}",
                _score(analysis, row, cells[sweep.primary]),
                *_difference(row, cells[sweep.primary], fates.get(row.cell, "—")),
                *(_score(analysis, row, cells[one]) for one in others),
            ]
        )
    # Scores and their letters align on the left, or a letter would shift the decimal point.
    return aligned(lines, left={0, 2, *range(6, len(lines[0]))})


def _score(analysis: Analysis, row: ResultRow, cell: ResultCell) -> str:
    if math.isnan(cell.mean):
        return "—"
    return f"{cell.mean:.3f} {letters(row.cell, cell, analysis.slots, analysis.sweep.alpha)}"


def _difference(row: ResultRow, cell: ResultCell, fate: str) -> tuple[str, str, str]:
    """Difference, interval and p against the baseline; words where there is none."""
    one = cell.comparison
    if one is None:
        return ("baseline" if row.is_baseline else fate), "", ""
    return short_signed(one.delta), short_interval(one), p_text(one.p_both_adjusted)
