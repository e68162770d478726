"""The report as files beside its page: the table in three formats and all numbers, unrounded."""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rank_core.stats.compare import Comparison
from sweeps.report.analysis import Analysis
from sweeps.report.published import beside
from sweeps.report.results_table import caption, compact_table, results_csv, results_table
from sweeps.report.sections.section import Section
from sweeps.report.summary import CellSummary
from sweeps.report.table import Table, csv_text, latex, markdown

SCHEMA_VERSION = 5

COMPARISON_COLUMNS = (
    "measure system baseline delta relative_gain p_queries p_seeds p_both p_both_adjusted df_both "
    "se_both ci_low ci_high num_seeds_system num_seeds_baseline num_queries family_size correction "
    "significant se_queries ci_queries_low ci_queries_high p_queries_adjusted p_moderated"
).split()


def table_files(
    analysis: Analysis, *, label: str, notes: Sequence[str] = (), compact: bool = False
) -> dict[str, str]:
    """{file name: contents} of the table as Markdown, LaTeX and CSV, and of its comparisons."""
    shown = compact_paper_table(analysis) if compact else paper_table(analysis, notes)
    return {
        "comparisons.csv": comparisons_csv(analysis),
        "table.md": markdown(shown),
        "table.tex": latex(shown, label),
        "table.csv": results_csv(analysis.rows),
    }


def paper_table(analysis: Analysis, notes: Sequence[str] = ()) -> Table:
    """The table of all measures, its caption, the notes of the analysis and `notes`."""
    shown = results_table(
        analysis.rows,
        alpha=analysis.sweep.alpha,
        digits=analysis.sweep.digits,
        slots=analysis.slots,
        caption=analysis.caption,
        notes=[*analysis.notes, *notes],
        third_party=analysis.sweep.third_party,
    )
    return beside(shown, analysis)


def compact_paper_table(analysis: Analysis) -> Table:
    """Means and letters alone, a column per measure."""
    alpha, slots = analysis.sweep.alpha, analysis.slots
    return compact_table(
        analysis.rows,
        alpha=alpha,
        digits=analysis.sweep.digits,
        slots=slots,
        caption=caption(
            analysis.rows,
            alpha=alpha,
            slots=slots,
            deterministic=analysis.deterministic,
            compact=True,
        ),
    )


def comparisons_csv(analysis: Analysis) -> str:
    """A line per comparison; an undefined value is an empty field."""
    compared = [
        *analysis.comparisons,
        *analysis.interpolated_comparisons,
        *analysis.further,
        *analysis.first_stage_comparisons,
    ]
    return csv_text(
        COMPARISON_COLUMNS,
        (
            [fields[name] for name in COMPARISON_COLUMNS]
            for fields in (_comparison(c, analysis.sweep.alpha) for c in compared)
        ),
    )


_NOT_RESULTS = (
    "folder",
    "cells",
    "trials",
    "failures",
    "scores",
    "dev_scores",
    "interpolated",
    "first_stage_scores",
    "digits",
    "lists",
    "qrels",
    "serving",
)
"""Fields of a sweep that are elsewhere in the results, or on this disk alone."""


def results_json(
    analysis: Analysis,
    sentences: Sequence[str],
    sections: Sequence[Section],
    more: Mapping[str, Any] | None = None,
) -> str:
    """The numbers of the page, their variance components, its `sentences` and `more`; NaN is
    null."""
    results = shared_results(analysis) | {"conclusions": sentences}
    for section in sections:
        if twice := results.keys() & section.results.keys():
            raise ValueError(f"section {section.title!r}: {sorted(twice)} is in use already")
        results |= section.results
    if serving := analysis.sweep.serving:
        results["serving"] = {
            **serving.setting,
            "systems": serving.rows,
            "read_tokens": serving.read_tokens,
            "separate_tokens": serving.separate_tokens,
        }
    return json_text(results | dict(more or {}))


def shared_results(analysis: Analysis) -> dict[str, Any]:
    """The results of every analysis, of a sweep or of a third party's runs."""
    sweep = analysis.sweep
    described = {
        field.name: getattr(sweep, field.name)
        for field in dataclasses.fields(sweep)
        if field.name not in _NOT_RESULTS
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "sweep": described | {"baseline": sweep.baseline},
        "seeds_compared_as_paired": analysis.paired,
        "cells": [_cell(summary) for summary in analysis.cells],
        "comparisons": [_comparison(c, sweep.alpha) for c in analysis.comparisons],
        "further_comparisons": [_comparison(c, sweep.alpha) for c in analysis.further],
        "scope_tests": [
            {"measure": measure, "system": system, **dataclasses.asdict(test)}
            for (measure, system), test in analysis.tests.items()
        ],
        "relative_gains": [
            {"measure": measure, "system": system, "baseline": base, **dataclasses.asdict(gain)}
            for (measure, system, base), gain in analysis.gains.items()
        ],
        "average_gains": {
            row.cell: dataclasses.asdict(row.average_gain)
            for row in analysis.rows
            if row.average_gain is not None
        },
        "interpolated": [
            _cell(summary)
            | {"of": row.of, "normalise": row.normalise, "alphas": row.alphas}
            | {"identical_to": row.identical_to}
            | {
                "comparisons": [
                    _comparison(c, sweep.alpha)
                    for c in analysis.interpolated_comparisons
                    if c.system == row.cell
                ]
            }
            for row, summary in zip(sweep.interpolated, analysis.interpolated, strict=True)
        ],
        "first_stage": analysis.first_stage and _cell(analysis.first_stage),
        "first_stage_comparisons": [
            _comparison(c, sweep.alpha) for c in analysis.first_stage_comparisons
        ],
        "caption": analysis.caption,
        "notes": analysis.notes,
    }


def _comparison(comparison: Comparison, alpha: float) -> dict[str, Any]:
    return dataclasses.asdict(comparison) | {"significant": comparison.significant(alpha)}


def json_text(results: Mapping[str, Any]) -> str:
    """`results` as JSON, unrounded; NaN and missing values are null."""
    return json.dumps(_plain(results), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _cell(summary: CellSummary) -> dict[str, Any]:
    described = dataclasses.asdict(summary.cell)
    described.pop("config", None)  # `sweep.json` has it
    return {
        **described,
        "seeds_used": summary.num_used,
        "seeds_launched": summary.num_launched,
        "fates": summary.fates,
        "measures": {
            measure: {"mean": summary.mean(measure), "per_seed": per_seed}
            for measure, per_seed in summary.seed_means.items()
        },
    }


def _plain(value: Any) -> Any:
    """`value` in JSON's own types."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str | int | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return None if _is_missing(value) else str(value)


def _is_missing(value: Any) -> bool:
    """True for pandas' NaT and NA, which do not even equal themselves."""
    return str(value) in ("NaT", "<NA>")
