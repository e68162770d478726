"""The report as data: `comparisons.csv` and `results.json`, nothing rounded."""

import csv
import dataclasses
import io
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rank_core.stats.compare import Comparison
from rank_core.stats.gain import GainInterval
from sweeps.report.analysis import Analysis
from sweeps.report.sections.conclusions import conclusions
from sweeps.report.sections.factors import GridFactors
from sweeps.report.sections.query_sets import set_means, set_sizes
from sweeps.report.sections.reliability import Trust
from sweeps.report.sections.reliability_text import trust_sentences
from sweeps.report.summary import CellSummary

SCHEMA_VERSION = 4

COMPARISON_COLUMNS = (
    "measure system baseline delta relative_gain p_queries p_seeds p_both p_both_adjusted df_both "
    "se_both ci_low ci_high num_seeds_system num_seeds_baseline num_queries family_size correction"
).split()


def comparisons_csv(comparisons: list[Comparison]) -> str:
    """One line per comparison; a value that is not defined is an empty field."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COMPARISON_COLUMNS)
    for one in comparisons:
        values = [getattr(one, name) for name in COMPARISON_COLUMNS]
        writer.writerow(["" if _is_nan(value) else value for value in values])
    return out.getvalue()


_NOT_RESULTS = ("folder", "cells", "trials", "failures", "scores", "dev_scores")
"""Fields of a sweep that stand elsewhere in the results, or only on this disk."""


def results_json(analysis: Analysis, trust: Trust, factors: list[GridFactors]) -> str:
    """Everything the page shows and the variance parts behind it; NaN is written as null."""
    sweep = analysis.sweep
    described = {
        field.name: getattr(sweep, field.name)
        for field in dataclasses.fields(sweep)
        if field.name not in _NOT_RESULTS
    }
    results = {
        "schema_version": SCHEMA_VERSION,
        "sweep": described,
        "conclusions": conclusions(analysis),
        "seeds_compared_as_paired": analysis.paired,
        "cells": [_cell(one) for one in analysis.cells],
        "comparisons": [dataclasses.asdict(one) for one in analysis.comparisons],
        "own_baseline_comparisons": [dataclasses.asdict(one) for one in analysis.own_comparisons],
        "scope_tests": [
            {"measure": measure, "system": system, **dataclasses.asdict(test)}
            for (measure, system), test in analysis.tests.items()
        ],
        "relative_gains": _gains(analysis.gains),
        "own_baseline_gains": _gains(analysis.own_gains),
        "query_sets": {"sizes": set_sizes(analysis), "means": set_means(analysis)},
        "not_told_from_best": {measure: sorted(cells) for measure, cells in analysis.tied.items()},
        "factor_tests": [dataclasses.asdict(one) for one in factors],
        "trust": {
            **dataclasses.asdict(trust),
            "sentences": dict(trust_sentences(analysis, trust)),
        },
        "ledger": sweep.trials.to_dict("records"),
        "lost_attempts": sweep.failures.to_dict("records"),
    }
    return json_text(results)


def json_text(results: Mapping[str, Any]) -> str:
    """`results` as JSON, unrounded; NaN and missing values are null."""
    return json.dumps(_plain(results), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _gains(gains: Mapping[tuple[str, str], GainInterval]) -> list[dict[str, Any]]:
    return [
        {"measure": measure, "system": system, **dataclasses.asdict(one)}
        for (measure, system), one in gains.items()
    ]


def _cell(one: CellSummary) -> dict[str, Any]:
    return {
        **dataclasses.asdict(one.cell),
        "seeds_used": one.num_used,
        "seeds_launched": one.num_launched,
        "fates": one.fates,
        "measures": {
            measure: {"mean": one.mean(measure), "per_seed": per_seed}
            for measure, per_seed in one.seed_means.items()
        },
    }


def _plain(value: Any) -> Any:
    """`value` in JSON's own types."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str | int | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return None if _is_missing(value) else str(value)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _is_missing(value: Any) -> bool:
    """Whether pandas means "no value": NaT and NA are equal to nothing, themselves included."""
    return str(value) in ("NaT", "<NA>")
