"""The results: the tested table, the search's standings, own baselines, query sets."""

from dataclasses import replace

from sweeps.report.analysis import Analysis
from sweeps.report.notation import decisive_p, interval_text, level_text, signed
from sweeps.report.results import paper_table
from sweeps.report.search import standings
from sweeps.report.sections.section import Findings, Section
from sweeps.report.summary import query_set_means, query_sets
from sweeps.report.table import Table, table


def section(findings: Findings) -> Section:
    """The table of the sweep, and the tables that belong to it."""
    analysis = findings.analysis
    sweep = analysis.sweep
    folded = [standings(sweep), _query_sets(analysis)]
    tables = [page_table(analysis), _own_baselines(analysis)]
    return Section(
        "",
        tables=[shown for shown in tables if shown],
        folded={shown.title: [shown] for shown in folded if shown},
        results={"query_sets": {"sizes": query_sets(sweep), "means": query_set_means(sweep)}},
    )


def page_table(analysis: Analysis) -> Table:
    """The table of a paper; below it the limits of its letters, without the other notes."""
    shown = paper_table(analysis)
    words = " ".join([shown.caption, *analysis.reservations])
    rows = shown.rows
    if all(row.cells[0].text.startswith(row.group) for row in rows):  # the labels say it
        rows = tuple(replace(row, group="") for row in rows)
    align = "l".ljust(len(shown.align), "r")
    return replace(shown, rows=rows, align=align, caption=words, notes=())


def _own_baselines(analysis: Analysis) -> Table | None:
    """The comparisons with each system's own baseline, on the primary measure."""
    sweep = analysis.sweep
    rows = [
        (
            sweep.label(pair.system),
            sweep.label(pair.baseline),
            signed(pair.delta, sweep.digits),
            interval_text(pair, sweep.digits),
            decisive_p(pair),
        )
        for pair in analysis.further
        if pair.measure == sweep.primary
    ]
    if not rows:
        return None
    return table(
        ("system", "own baseline", "Δ", f"{level_text(sweep.alpha)} CI", "p"),
        rows,
        "llrrr",
        title="Against each system's own baseline",
        caption="Letters b and B of the table above; p is adjusted within this table.",
    )


def _query_sets(analysis: Analysis) -> Table | None:
    """The mean over all queries and that of every query set, where there are several."""
    means, sizes = query_set_means(analysis.sweep), query_sets(analysis.sweep)
    primary = analysis.sweep.primary
    if not means:
        return None
    counts = {f"all ({sum(sizes.values())})": 0} | {f"{name} ({n})": n for name, n in sizes.items()}
    return table(
        ("system", *counts),
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
