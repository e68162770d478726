"""The results: the tested table, the search's standings, own baselines, query sets."""

import math

from rank_core.stats.gain import GainInterval
from sweeps.report.analysis import Analysis
from sweeps.report.notation import (
    MISSING,
    decisive_p,
    gain_text,
    interval_text,
    level_text,
    signed,
    wins_text,
)
from sweeps.report.published import beside
from sweeps.report.results_table import ResultRow, Scores
from sweeps.report.search import fate_word, left_after, standings
from sweeps.report.sections.section import Findings, Section
from sweeps.report.summary import CellSummary, query_set_means, query_sets
from sweeps.report.table import Cell, Row, Table, table, table_row

_COSTS = {
    "coverage": "document read",
    "encoder_tokens_per_document": "tokens / document",
}


def section(found: Findings) -> Section:
    """The table of the sweep, and the tables that belong to it."""
    analysis = found.analysis
    sweep, sets = analysis.sweep, _query_sets(analysis)
    tables = [beside(_results(analysis), analysis), standings(sweep), _own_baselines(analysis)]
    return Section(
        "Results",
        tables=[one for one in tables if one],
        folded={sets.title: [sets]} if sets else {},
        results={"query_sets": {"sizes": query_sets(sweep), "means": query_set_means(sweep)}},
    )


def _results(analysis: Analysis) -> Table:
    """The table of the page: the primary measure with its comparison, other measures, costs."""
    sweep, level = analysis.sweep, level_text(analysis.sweep.alpha)
    costs = [one for one in _COSTS if any(getattr(c, one) is not None for c in sweep.cells)]
    heading = ["system", "seeds used / launched", sweep.primary]
    if analysis.comparisons:
        gain = f"gain, {level} interval" if analysis.gains else "gain"
        heading += ["difference", f"{level} interval", "p", gain, "won / tied / lost"]
    heading += [one for one in sweep.measures if one != sweep.primary]
    heading += [_COSTS[one] for one in costs]
    scores = Scores(analysis.rows, analysis.slots, sweep.alpha)
    summaries = {one.cell.cell: one for one in (*analysis.cells, *analysis.interpolated)}
    rows = [_row(analysis, one, scores, summaries[one.cell], costs) for one in analysis.rows]
    return table(heading, rows, caption=analysis.caption)


def _row(
    analysis: Analysis, shown: ResultRow, scores: Scores, summary: CellSummary, costs: list[str]
) -> Row:
    sweep = analysis.sweep
    at = sweep.measures.index(sweep.primary)
    cells: list[str | Cell] = [
        f"{shown.label} (baseline)" if shown.is_baseline else shown.label,
        _seeds(analysis, summary),
        scores.cell(shown, at),
    ]
    one = shown.cells[at].comparison
    if one is not None:
        gain = analysis.gains.get((one.measure, one.system, one.baseline))
        cells += [signed(one.delta), interval_text(one), decisive_p(one)]
        cells += [_gain(one.relative_gain, gain), wins_text(one)]
    elif analysis.comparisons:
        cells += [""] * 5
    cells += [scores.cell(shown, other) for other in range(len(sweep.measures)) if other != at]
    cells += [_cost(getattr(summary.cell, one), one) for one in costs]
    return table_row(*cells, group=shown.group, style="baseline" if shown.is_baseline else "")


def _seeds(analysis: Analysis, summary: CellSummary) -> Cell:
    """Seeds used of those launched, and why some are missing."""
    collapsed = len(summary.seeds("collapsed"))
    parts = [summary.used_of_launched]
    if summary.cell.cell in left_after(analysis.sweep):
        parts.append(fate_word(analysis.sweep))
    if collapsed:
        parts.append(f"{collapsed} collapsed")
    missing = summary.num_used + len(summary.seeds("stopped")) < summary.num_launched
    return Cell(", ".join(parts), face="lost" if missing or collapsed else "")


def _gain(gain: float, interval: GainInterval | None) -> Cell:
    """The relative gain and its interval, which one seed does not have."""
    if interval is None or math.isnan(gain):
        return Cell(gain_text(gain))
    note = f"{signed(100 * interval.low, 0)} to {signed(100 * interval.high, 0)}"
    return Cell(gain_text(gain), note=note)


def _cost(value: float | None, name: str) -> str:
    if value is None:
        return MISSING
    return f"{value:.0%}" if name == "coverage" else f"{value:,.0f}"


def _own_baselines(analysis: Analysis) -> Table | None:
    """The comparisons with each system's own baseline, on the primary measure."""
    sweep, level = analysis.sweep, level_text(analysis.sweep.alpha)
    rows = [
        (
            sweep.label(one.system),
            sweep.label(one.baseline),
            signed(one.delta),
            interval_text(one),
            decisive_p(one),
            _gain(one.relative_gain, analysis.gains.get((one.measure, one.system, one.baseline))),
            wins_text(one),
        )
        for one in analysis.further
        if one.measure == sweep.primary
    ]
    heading = ("system", "own baseline", f"difference in {sweep.primary}", f"{level} interval")
    return (
        rows
        and table(
            (*heading, "p", f"gain, {level} interval", "won / tied / lost"),
            rows,
            "llrrrrr",
            title="Against each system's own baseline",
            caption="Letter b/B of the table above; a family of comparisons of its own in the "
            "correction.",
        )
    ) or None


def _query_sets(analysis: Analysis) -> Table | None:
    """The mean over all queries and that of every query set, where there are several."""
    means, sizes = query_set_means(analysis.sweep), query_sets(analysis.sweep)
    primary = analysis.sweep.primary
    if not means:
        return None
    return table(
        (
            "system",
            f"all ({sum(sizes.values())})",
            *(f"{name} ({count})" for name, count in sizes.items()),
        ),
        [
            (
                one.cell.label,
                f"{one.mean(primary):.3f}",
                *(f"{means[one.cell.cell][name]:.3f}" for name in sizes),
            )
            for one in analysis.cells
            if one.num_used
        ],
        title=f"{primary} by query set",
        caption="The tests are over all queries as one set, keyed by set and query: every query "
        "counts alike, so the first column is not the mean of the others.",
    )
