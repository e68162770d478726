"""What the terminal shows when a sweep ends: a table of 80 columns and a few sentences."""

import math
import textwrap
from pathlib import Path

from rank_core.table import ResultCell, ResultRow
from sweeps.report.analysis import Analysis
from sweeps.report.conclusions import conclusions
from sweeps.report.notation import letter, p_text, shortened

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
    return (
        f"a: differs from {baseline} with queries random only; A: with queries and training "
        "runs random; ↓: a loss."
    )


def _table(analysis: Analysis) -> list[str]:
    sweep = analysis.sweep
    others = [one for one in sweep.measures if one != sweep.primary][:_OTHERS]
    level = f"{100 * (1 - sweep.alpha):g} %"
    lines = [["system", "seeds", sweep.primary, "diff", f"{level} interval", "p", *others]]
    for row in analysis.rows:
        cells = {one.measure: one for one in row.cells}
        lines.append(
            [
                shortened(row.label, _LABEL),
                f"{row.seeds_used}/{row.seeds_launched}",
                _score(cells[sweep.primary], sweep.alpha),
                *_difference(row, cells[sweep.primary]),
                *(_score(cells[one], sweep.alpha) for one in others),
            ]
        )
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    # Scores and their letters align on the left, or a letter would shift the decimal point.
    left = {0, 2, *range(6, len(lines[0]))}
    drawn = [
        "  ".join(
            text.ljust(width) if at in left else text.rjust(width)
            for at, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return [drawn[0], "-" * max(map(len, drawn)), *drawn[1:]]


def _score(cell: ResultCell, alpha: float) -> str:
    return "-" if math.isnan(cell.mean) else f"{cell.mean:.3f} {letter(cell, alpha)}"


def _difference(row: ResultRow, cell: ResultCell) -> tuple[str, str, str]:
    """Difference, interval and p against the baseline; words where there is none."""
    one = cell.comparison
    if one is None:
        return ("baseline" if row.is_baseline else "-"), "", ""
    interval = "-" if math.isnan(one.ci_low) else _interval(one.ci_low, one.ci_high)
    return _signed(one.delta), interval, p_text(one.p_both_adjusted)


def _signed(value: float) -> str:
    """A difference in as few characters as it needs: `+.012`."""
    text = f"{value:+.3f}"
    return text[0] + text[1:].removeprefix("0")


def _interval(low: float, high: float) -> str:
    """Both ends; two seeds can leave an interval that no measure could fill."""
    if high - low > 2:
        return "says nothing"
    return f"[{_signed(low)}, {_signed(high)}]"
