"""The results: the tested table, the search's standings, own baselines, query sets."""

from rank_core.stats.compare import Comparison
from sweeps.report.analysis import Analysis
from sweeps.report.notation import ONE_RUN, decisive_p, interval_text, level_text, signed
from sweeps.report.published import beside
from sweeps.report.results_table import PAIRED, Scores
from sweeps.report.search import fate_word, left_after, standings
from sweeps.report.sections.section import Findings, Section
from sweeps.report.summary import CellSummary, query_set_means, query_sets
from sweeps.report.table import Cell, Table, table, table_row, without_note
from sweeps.report.terminal import legend
from sweeps.store.sweep_file import FIRST_STAGE


def section(findings: Findings) -> Section:
    """The table of the sweep, and the tables that belong to it."""
    analysis = findings.analysis
    sweep = analysis.sweep
    folded = [standings(sweep), _query_sets(analysis)]
    tables = [beside(page_table(analysis), analysis), _own_baselines(analysis)]
    return Section(
        "",
        tables=[shown for shown in tables if shown],
        folded={shown.title: [shown] for shown in folded if shown},
        results={"query_sets": {"sizes": query_sets(sweep), "means": query_set_means(sweep)}},
    )


def page_table(analysis: Analysis) -> Table:
    """The table of the page: means, the gain over the first baseline, its test."""
    sweep = analysis.sweep
    at = sweep.measures.index(sweep.primary)
    others = [number for number in range(len(sweep.measures)) if number != at]
    summaries = (*analysis.cells, *analysis.interpolated)
    seeds = {system.cell.cell: _seeds(analysis, system) for system in summaries}
    uneven = any(cell.face or "," in cell.text for cell in seeds.values())
    uneven = uneven or len({cell.text for cell in seeds.values()}) > 1
    if analysis.first_stage:
        seeds[FIRST_STAGE] = Cell("—")
    counted = "runs" if sweep.third_party else "seeds used / launched"
    heading = ["system", *[counted] * uneven, sweep.primary]
    heading += _gain_heading(analysis, sweep.baseline) if analysis.comparisons else []
    heading += [sweep.measures[number] for number in others]
    scores = Scores(analysis.rows, analysis.slots, sweep.alpha, sweep.digits)
    labelled = all(row.label.startswith(row.group) for row in analysis.rows)  # the labels say it
    rows = []
    for shown in analysis.rows:
        cells: list[str | Cell] = [
            Cell(shown.label, note="baseline" if shown.is_baseline else ""),
            *[seeds[shown.cell]] * uneven,
            scores.cell(shown, at),
        ]
        if analysis.comparisons:
            pair = shown.cells[at].comparison
            cells += ["", ""] if pair is None else _gain(pair, sweep.digits)
        cells += [without_note(scores.cell(shown, number)) for number in others]
        style = "baseline" if shown.is_baseline else ""
        rows.append(table_row(*cells, group="" if labelled else shown.group, style=style))
    return table(heading, rows, caption=_caption(analysis))


def _gain_heading(analysis: Analysis, baseline: str) -> list[str]:
    over = f" over {analysis.sweep.label(baseline)}" if baseline else ""
    return [f"gain{over} ({level_text(analysis.sweep.alpha)} interval)", "p"]


def _gain(comparison: Comparison, digits: int) -> list[str | Cell]:
    interval = interval_text(comparison, digits)
    mark = ONE_RUN * interval.endswith(ONE_RUN)
    note = f"({interval.removesuffix(ONE_RUN)}){mark}"
    gain = Cell(signed(comparison.delta, digits), note=note)
    return [gain, decisive_p(comparison)]


def _caption(analysis: Analysis) -> str:
    trained = [c for c in analysis.cells if c.cell.cell not in analysis.sweep.deterministic]
    used = sorted({system.num_used for system in trained if system.num_used})
    words = ["Mean of one seed."]
    if used and used[-1] > 1:
        ends = "-".join(map(str, used[:: max(1, len(used) - 1)]))
        words = [f"Mean ± SD over {ends} seeds."]
    if analysis.comparisons:
        words += [
            "Bold: best mean.",
            legend(analysis),
            *([f"Seeds are {PAIRED}."] if analysis.paired else []),
        ]
    return " ".join(filter(None, [*words, *analysis.reservations]))


def _seeds(analysis: Analysis, summary: CellSummary) -> Cell:
    """Seeds used of those launched, and the fates of the others."""
    if analysis.sweep.third_party:
        return Cell(str(summary.num_used))
    collapsed = len(summary.seeds("collapsed"))
    parts = [summary.used_of_launched]
    if summary.cell.cell in left_after(analysis.sweep):
        parts.append(fate_word(analysis.sweep))
    if collapsed:
        parts.append(f"{collapsed} collapsed")
    missing = summary.num_used + len(summary.seeds("stopped")) < summary.num_launched
    return Cell(", ".join(parts), face="lost" if missing or collapsed else "")


def _own_baselines(analysis: Analysis) -> Table | None:
    """The comparisons with each system's own baseline, on the primary measure."""
    sweep = analysis.sweep
    rows = [
        (sweep.label(pair.system), sweep.label(pair.baseline), *_gain(pair, sweep.digits))
        for pair in analysis.further
        if pair.measure == sweep.primary
    ]
    if not rows:
        return None
    return table(
        ("system", "own baseline", *_gain_heading(analysis, "")),
        rows,
        "llrr",
        title="Against each system's own baseline",
        caption="Letters b and B of the table above; p is adjusted within this table.",
    )


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
                system.cell.label,
                f"{system.mean(primary):.3f}",
                *(f"{means[system.cell.cell][name]:.3f}" for name in sizes),
            )
            for system in analysis.cells
            if system.num_used
        ],
        title=f"{primary} by query set",
        caption="The first column is the mean over all queries, not over the sets.",
    )
