"""The report as files beside its page: the table in three formats and all numbers, unrounded."""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from rank_core.stats.compare import Comparison
from sweeps.report.analysis import Analysis
from sweeps.report.published import beside
from sweeps.report.results_table import results_csv, results_table
from sweeps.report.summary import CellSummary
from sweeps.report.table import Table, csv_text, latex, markdown

SCHEMA_VERSION = 5

COMPARISON_COLUMNS = (
    "measure system baseline delta relative_gain p_queries p_seeds p_both p_both_adjusted df_both "
    "se_both ci_low ci_high family_low family_high num_seeds_system num_seeds_baseline num_queries "
    "family_size correction significant se_queries ci_queries_low ci_queries_high "
    "p_queries_adjusted p_moderated"
).split()


def table_files(
    analysis: Analysis, *, label: str, notes: Sequence[str] = (), compact: bool = False
) -> dict[str, str]:
    """{file name: contents} of the table as Markdown, LaTeX and CSV, and of its comparisons."""
    shown = paper_table(analysis, notes, compact=compact)
    return {
        "comparisons.csv": comparisons_csv(analysis),
        "table.md": markdown(shown),
        "table.tex": latex(shown, label),
        "table.csv": results_csv(analysis.rows),
    }


def paper_table(analysis: Analysis, notes: Sequence[str] = (), *, compact: bool = False) -> Table:
    """The table of all measures, its caption, the notes of the analysis and `notes`; a `compact`
    one has means and letters alone, and no notes."""
    sweep = analysis.sweep
    shown = results_table(
        analysis.rows,
        alpha=sweep.alpha,
        digits=sweep.digits,
        slots=analysis.slots,
        caption=analysis.caption_of(compact=compact),
        notes=() if compact else [*analysis.notes, *notes],
        third_party=sweep.third_party,
        compact=compact,
    )
    return shown if compact else beside(shown, analysis)


def page_table(analysis: Analysis) -> Table:
    """The table of a paper; below it the limits of its letters, without the other notes."""
    shown = paper_table(analysis)
    words = " ".join([shown.caption, *analysis.reservations])
    rows = shown.rows
    if all(row.cells[0].text.startswith(row.group) for row in rows):  # the labels say it
        rows = tuple(replace(row, group="") for row in rows)
    align = "l".ljust(len(shown.align), "r")
    return replace(shown, rows=rows, align=align, caption=words, notes=())


def comparisons_csv(analysis: Analysis) -> str:
    """A line per comparison; an undefined value is an empty field."""
    compared = [
        *analysis.comparisons,
        *analysis.interpolated_comparisons,
        *analysis.further,
        *analysis.first_stage_comparisons,
    ]
    lines = [_comparison(comparison, analysis.sweep.alpha) for comparison in compared]
    return csv_text(COMPARISON_COLUMNS, ([line[n] for n in COMPARISON_COLUMNS] for line in lines))


_NOT_RESULTS = (
    "folder cells trials failures scores dev_scores interpolated first_stage_scores digits lists "
    "qrels serving"
).split()
"""Fields of a sweep that are elsewhere in the results, or on this disk alone."""


def shared_results(analysis: Analysis) -> dict[str, Any]:
    """The results of every analysis, of a sweep or of a third party's runs."""
    sweep = analysis.sweep
    fields = [field.name for field in dataclasses.fields(sweep)]
    described = {name: getattr(sweep, name) for name in fields if name not in _NOT_RESULTS}

    def listed(comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
        return [_comparison(comparison, sweep.alpha) for comparison in comparisons]

    return {
        "schema_version": SCHEMA_VERSION,
        "sweep": described | {"baseline": sweep.baseline},
        "seeds_compared_as_paired": analysis.paired,
        "not_distinguishable_from_the_best": [
            dataclasses.asdict(found) for found in analysis.best_sets.values()
        ],
        "cells": [_cell(summary) for summary in analysis.cells],
        "comparisons": listed(analysis.comparisons),
        "further_comparisons": listed(analysis.further),
        "scope_tests": [
            {"measure": measure, "system": system, **dataclasses.asdict(test)}
            for (measure, system), test in analysis.tests.items()
        ],
        "average_gains": {
            row.cell.cell: dataclasses.asdict(row.average_gain)
            for row in analysis.rows
            if row.average_gain is not None
        },
        "interpolated": [
            _cell(summary)
            | {"of": row.of, "normalise": row.normalise, "alphas": row.alphas}
            | {"identical_to": row.identical_to}
            | {
                "comparisons": listed(
                    [c for c in analysis.interpolated_comparisons if c.system == row.cell]
                )
            }
            for row, summary in zip(sweep.interpolated, analysis.interpolated, strict=True)
        ],
        "first_stage": analysis.first_stage and _cell(analysis.first_stage),
        "first_stage_comparisons": listed(analysis.first_stage_comparisons),
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
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str | int | float | None):
        return value
    return None if pd.isna(value) else str(value)
