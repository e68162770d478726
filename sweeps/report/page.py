"""The page `index.html`: one file that needs nothing else, to read, to print, to mail."""

import math
from typing import Any

from rank_core.stats.gain import GainInterval
from sweeps.report.access import Access, access_sentence
from sweeps.report.analysis import Analysis
from sweeps.report.figures.figure import Shown
from sweeps.report.html import render
from sweeps.report.notation import (
    MISSING,
    gain_text,
    interval_text,
    level_text,
    p_text,
    signed,
    wins_text,
)
from sweeps.report.results_table import ResultRow, Scores
from sweeps.report.sections.attempts import happened, lost_table
from sweeps.report.sections.conclusions import conclusions
from sweeps.report.sections.factors import GridFactors, factor_sentences
from sweeps.report.sections.reliability import (
    Reliability,
    collapsed_table,
    component_table,
    correction_note,
    limit_table,
    reliability_sentences,
)
from sweeps.report.sections.search import fate_word, left_after, standings
from sweeps.report.summary import CellSummary, query_set_means, query_sets
from sweeps.report.table import Cell, Row, Table, table, table_row

_COSTS = {
    "coverage": "document read",
    "encoder_tokens_per_document": "tokens / document",
}


def page(
    analysis: Analysis,
    reliability: Reliability,
    factors: list[GridFactors],
    figures: list[Shown],
    accesses: list[Access],
) -> str:
    """The whole page of a sweep as HTML text."""
    sweep = analysis.sweep
    sentences = conclusions(analysis)
    components, limits = component_table(analysis, reliability), limit_table(analysis, reliability)
    return render(
        "page.html",
        title=sweep.question,
        answer=sentences[0],
        notes=[*sentences[1:], *([note] if (note := correction_note(analysis)) else [])],
        facts=_facts(analysis),
        results=_results(analysis),
        further=[one for one in (standings(sweep), _own_baselines(analysis)) if one],
        sets=_query_sets(analysis),
        reliability=_subjects(analysis, reliability, factors, accesses),
        collapsed=collapsed_table(analysis, reliability),
        limits=[one for one in (components, limits) if one],
        figures=figures,
        happened=happened(sweep),
        lost=lost_table(sweep),
        trials=_trials(analysis),
        command=sweep.command,
        origins=_origins(analysis),
    )


def _subjects(
    analysis: Analysis,
    reliability: Reliability,
    factors: list[GridFactors],
    accesses: list[Access],
) -> list[tuple[str, str]]:
    """The sentences of the results and, on this page alone, when the test values were opened: a
    time is no result."""
    sentences = reliability_sentences(analysis, reliability)
    if not sentences:
        return []
    looks = access_sentence(accesses)
    tests = [("Factors before cells", text) for text in factor_sentences(analysis, factors)]
    return [*sentences, *([("Access to the test", looks)] if looks else []), *tests]


def _facts(analysis: Analysis) -> list[str]:
    """The line under the title: what was measured on what."""
    sweep = analysis.sweep
    facts = [f"sweep {sweep.name}"]
    if "name" in sweep.collection:
        documents = sweep.collection.get("num_documents")
        size = f" ({documents:,} documents)" if isinstance(documents, int) else ""
        facts.append(f"collection {sweep.collection['name']}{size}")
    sets = [f"{name} {count}" for name, count in query_sets(sweep).items()]
    pooled = f" ({', '.join(sets)})" if sets else ""
    facts.append(f"{sweep.scores['query_id'].nunique()} queries{pooled} of split {sweep.split}")
    if "name" in sweep.backbone:
        facts.append(f"backbone {sweep.backbone['name']}")
    cells, trials = len(sweep.cells), sum(one.num_launched for one in analysis.cells)
    facts.append(f"{cells} cell{'s' * (cells != 1)}, {trials} trial{'s' * (trials != 1)} launched")
    return facts


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
    scores = Scores(analysis.rows, analysis.slots, sweep.alpha, tied=analysis.tied)
    summaries = {one.cell.cell: one for one in analysis.cells}
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
        cells += [signed(one.delta), interval_text(one), p_text(one.p_both_adjusted)]
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
            p_text(one.p_both_adjusted),
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


def _trials(analysis: Analysis) -> Table:
    """One line per trial, lost ones marked."""
    sweep = analysis.sweep
    summaries = {one.cell.cell: one for one in analysis.cells}
    rows = []
    for trial in sweep.trials.to_dict("records"):
        summary = summaries[trial["cell"]]
        score = summary.seed_means[sweep.primary].get(int(trial["seed"]))
        peak = _number(trial, "peak_memory_bytes")
        reason = trial.get("stop_reason")  # parquet turns an absent one into NaN or None
        rows.append(
            table_row(
                summary.cell.label,
                str(trial["seed"]),
                str(trial["status"]),
                MISSING if score is None else f"{score:.3f}",
                *(_whole(_number(trial, n)) for n in ("attempts", "train_seconds", "eval_seconds")),
                MISSING if peak is None else f"{peak / 2**30:.1f}",
                reason if isinstance(reason, str) else "",
                style="" if trial["status"] == "done" else "lost",
            )
        )
    columns = "system,seed,status,%s,attempts,training s,evaluation s,peak memory GiB,stop reason"
    return table((columns % sweep.primary).split(","), rows, "lrlrrrrrl")


def _number(trial: dict[Any, Any], name: str) -> float | None:
    """A number of the trials' table; None where the column or the value is missing."""
    try:
        value = float(trial.get(name, math.nan))
    except TypeError:  # None and NA: a trial that never ran has no seconds
        return None
    return value if math.isfinite(value) else None


def _whole(value: float | None) -> str:
    return MISSING if value is None else f"{value:,.0f}"


def _origins(analysis: Analysis) -> list[tuple[str, str]]:
    """What a repetition has to match: contents and versions."""
    sweep = analysis.sweep
    contents = [
        (f"{kind} {described.get('name', '')}".strip(), str(described["content_hash"]))
        for kind, described in (("collection", sweep.collection), ("backbone", sweep.backbone))
        if "content_hash" in described
    ]
    return [
        ("seeds", ", ".join(map(str, sweep.seeds))),
        *contents,
        *((name, str(version)) for name, version in sweep.versions.items()),
    ]
