"""The page `index.html`: one file that needs nothing else, to read, to print, to mail."""

import math
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from rank_core.stats.table import ResultCell, ResultRow
from sweeps.report.access import Access, access_sentence
from sweeps.report.analysis import Analysis
from sweeps.report.figures.figure import Shown
from sweeps.report.notation import letters, p_text, signed
from sweeps.report.sections.attempts import happened, lost_rows
from sweeps.report.sections.conclusions import conclusions
from sweeps.report.sections.factors import GridFactors, factor_sentences
from sweeps.report.sections.query_sets import set_sizes
from sweeps.report.sections.race import fate_word, left_after, standings
from sweeps.report.sections.reliability import Trust
from sweeps.report.sections.reliability_tables import collapsed_rows, component_rows, limit_rows
from sweeps.report.sections.reliability_text import correction_note, trust_sentences
from sweeps.report.sections.result_tables import gain_text, interval_text, own_rows, set_rows

_TEMPLATES = Path(__file__).parent
_UNDEFINED = "—"


def page(
    analysis: Analysis,
    trust: Trust,
    factors: list[GridFactors],
    shown: list[Shown],
    accesses: list[Access],
) -> str:
    """The whole page as HTML text."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sweep = analysis.sweep
    sentences = conclusions(analysis)
    return environment.get_template("template.html").render(
        sweep=sweep,
        analysis=analysis,
        answer=sentences[0],
        notes=[*sentences[1:], *([note] if (note := correction_note(analysis)) else [])],
        facts=_facts(analysis),
        others=[one for one in sweep.measures if one != sweep.primary],
        rows=[_row(analysis, row) for row in analysis.rows],
        columns=_cost_columns(analysis),
        level=f"{100 * (1 - sweep.alpha):g} %",
        trust=_trust(analysis, trust, accesses),
        components=component_rows(analysis, trust),
        limits=limit_rows(analysis, trust),
        collapsed=collapsed_rows(analysis, trust),
        own=own_rows(analysis),
        standings=standings(sweep),
        sets=set_rows(analysis),
        factors=factor_sentences(analysis, factors),
        figures=[(one, Markup(one.drawing.inline)) for one in shown if not one.appendix],
        appendix=[(one, Markup(one.drawing.inline)) for one in shown if one.appendix],
        happened=happened(sweep),
        lost=lost_rows(sweep),
        trials=_trials(analysis),
        origins=_origins(analysis),
    )


def _trust(analysis: Analysis, trust: Trust, accesses: list[Access]) -> list[tuple[str, str]]:
    """The sentences of the results and, on this page alone, when the test values were opened: a
    time is no result."""
    sentences = trust_sentences(analysis, trust)
    looks = access_sentence(accesses)
    return [*sentences, *([("Looks at the test", looks)] if sentences and looks else [])]


def _facts(analysis: Analysis) -> list[str]:
    """The line under the title: what was measured on what."""
    sweep = analysis.sweep
    facts = [f"sweep {sweep.name}"]
    if "name" in sweep.collection:
        documents = sweep.collection.get("num_documents")
        size = f" ({documents:,} documents)" if isinstance(documents, int) else ""
        facts.append(f"collection {sweep.collection['name']}{size}")
    sets = [f"{name} {count}" for name, count in set_sizes(analysis).items()]
    pooled = f" ({', '.join(sets)})" if sets else ""
    facts.append(f"{sweep.scores['query_id'].nunique()} queries{pooled} of split {sweep.split}")
    if "name" in sweep.backbone:
        facts.append(f"backbone {sweep.backbone['name']}")
    cells, trials = len(sweep.cells), sum(one.num_launched for one in analysis.cells)
    facts.append(f"{cells} cell{'s' * (cells != 1)}, {trials} trial{'s' * (trials != 1)} launched")
    return facts


def _row(analysis: Analysis, row: ResultRow) -> dict[str, Any]:
    """One line of the table, rounded for reading."""
    primary = analysis.sweep.primary
    cells = {one.measure: one for one in row.cells}
    one = cells[primary].comparison
    summary = next(found for found in analysis.cells if found.cell.cell == row.cell)
    return {
        "label": row.label,
        "group": row.group,
        "is_baseline": row.is_baseline,
        "seeds": summary.used_of_launched,
        "lost": row.seeds_used + len(summary.seeds("stopped")) < row.seeds_launched
        or bool(summary.seeds("collapsed")),
        "collapsed": len(summary.seeds("collapsed")),
        "left": fate_word(analysis.sweep) if row.cell in left_after(analysis.sweep) else "",
        "primary": _score(analysis, row, cells[primary]),
        "best": _is_best(analysis, row, primary),
        "difference": "" if one is None else signed(one.delta),
        "interval": "" if one is None else interval_text(one),
        "gain": "" if one is None else gain_text(one, analysis.gains),
        "tied": row.cell in analysis.tied.get(primary, ()),
        "queries": "" if one is None else f"{one.wins}/{one.ties}/{one.losses}",
        "p": "" if one is None else p_text(one.p_both_adjusted),
        "others": [
            _score(analysis, row, cell)
            | {
                "best": _is_best(analysis, row, name),
                "tied": row.cell in analysis.tied.get(name, ()),
            }
            for name, cell in cells.items()
            if name != primary
        ],
        "costs": [_cost(summary.cell, name) for name, _ in _cost_columns(analysis)],
    }


def _is_best(analysis: Analysis, row: ResultRow, measure: str) -> bool:
    """Whether the mean is the highest of its column after rounding."""
    means = {one.cell.cell: one.mean(measure) for one in analysis.cells if one.num_used}
    return row.cell in means and round(means[row.cell], 3) == round(max(means.values()), 3)


def _score(analysis: Analysis, row: ResultRow, cell: ResultCell) -> dict[str, Any]:
    if math.isnan(cell.mean):
        return {"mean": _UNDEFINED, "deviation": "", "letter": ""}
    deviation = "" if math.isnan(cell.sd_seeds) else f"± {cell.sd_seeds:.3f}"
    marks = letters(row.cell, cell, analysis.slots, analysis.sweep.alpha)
    return {"mean": f"{cell.mean:.3f}", "deviation": deviation, "letter": marks}


def _cost_columns(analysis: Analysis) -> list[tuple[str, str]]:
    """What reading costs, where the sweep recorded it: (attribute, heading)."""
    return [
        (name, heading)
        for name, heading in (
            ("coverage", "document read"),
            ("encoder_tokens_per_document", "tokens / document"),
        )
        if any(getattr(one, name) is not None for one in analysis.sweep.cells)
    ]


def _cost(cell: Any, name: str) -> str:
    value = getattr(cell, name)
    if value is None:
        return _UNDEFINED
    return f"{value:.0%}" if name == "coverage" else f"{value:,.0f}"


def _trials(analysis: Analysis) -> list[dict[str, str]]:
    """The ledger for reading: one line per trial, lost ones marked."""
    sweep = analysis.sweep
    lines = []
    for trial in sweep.trials.to_dict("records"):
        summary = next(one for one in analysis.cells if one.cell.cell == trial["cell"])
        score = summary.seed_means[sweep.primary].get(int(trial["seed"]))
        peak = _number(trial, "peak_memory_bytes")
        lines.append(
            {
                "label": summary.cell.label,
                "seed": str(trial["seed"]),
                "status": str(trial["status"]),
                "mark": "" if trial["status"] == "done" else "lost",
                "score": _UNDEFINED if score is None else f"{score:.3f}",
                "attempts": _whole(_number(trial, "attempts")),
                "reason": _text(trial.get("stop_reason")),
                "train": _whole(_number(trial, "train_seconds")),
                "evaluate": _whole(_number(trial, "eval_seconds")),
                "peak": _UNDEFINED if peak is None else f"{peak / 2**30:.1f}",
            }
        )
    return lines


def _number(trial: dict[Any, Any], name: str) -> float | None:
    """A number of the ledger; None where the column or the value is missing."""
    try:
        value = float(trial.get(name, math.nan))
    except TypeError:  # None and NA: a trial that never ran has no seconds
        return None
    return value if math.isfinite(value) else None


def _text(value: object) -> str:
    """A text of the ledger; parquet turns an absent one into NaN or None."""
    return value if isinstance(value, str) else ""


def _whole(value: float | None) -> str:
    return _UNDEFINED if value is None else f"{value:,.0f}"


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
