"""Values of published tables, shown beside ours and never tested."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rank_core.stats.scopes import confidence_interval, scope_test
from sweeps.findings.analysis import Analysis
from sweeps.plan.published_tables import ANY, TABLES
from sweeps.plan.reference import Published, values_text
from sweeps.report.table import Table, TableCell, wrapped
from sweeps.store.sweep_file import Cell
from sweeps.systems.load import Sweep
from sweeps.terminal.notation import level_text, range_text

_WINDOWS = ("chunking.window", "chunking.stride")
Values = dict[str, dict[str, list[str]]]
"""{cell: {measure: ["value (source)", ...]}}."""


def published(sweep: Sweep) -> Values:
    """The values of the systems that a published table has for this collection and measure, the
    tables in the order of `TABLES`; without those that the sweep's own file has."""
    values: Values = {}
    own_sources = {row["source"] for row in sweep.about.published}
    for cell in sweep.cells:
        for printed in (table for table in TABLES if table.source not in own_sources):
            for label, model, encoder, _, *settings in printed.rows:
                if not _is_same(sweep, cell, model, encoder, settings[0] if settings else {}):
                    continue
                for heading, value in printed.cells(label).items():
                    collection, measure, *trials = printed.columns[heading]
                    if (
                        collection == sweep.about.collection.get("name")
                        and measure in sweep.measures
                        and all(
                            cell.config.get(n, v) == v for trial in trials for n, v in trial.items()
                        )
                    ):
                        texts = values.setdefault(cell.cell, {}).setdefault(measure, [])
                        texts += [f"{value} ({printed.source})"] * (value != "-")
    return values


def with_reference(values: Values, analysis: Analysis) -> Values:
    """The values with those of the sweep's own file, each with whether it lies inside the interval
    of our mean, queries and seeds random."""
    sweep = analysis.sweep
    for row in (Published(**row) for row in sweep.about.published):
        if (
            row.collection != sweep.about.collection.get("name")
            or row.measure not in sweep.measures
        ):
            continue
        for cell in sweep.cells:
            backbone = {"model.backbone": sweep.about.backbone.get("name")}
            system = {**backbone, **cell.config, **cell.settings}
            if row.settings.items() <= system.items():
                values.setdefault(cell.cell, {}).setdefault(row.measure, []).append(
                    f"{values_text(row)} ({row.source}; {_agreement(analysis, cell.cell, row)})"
                )
    return values


def _agreement(analysis: Analysis, cell: str, row: Published) -> str:
    """`2 of 5 inside our 95% interval [0.471, 0.502]`; a mean is its difference from 0."""
    if row.differs:
        return f"not comparable: {row.differs}"
    matrix, sweep = analysis.cell_scores.plain.get(row.measure), analysis.sweep
    if matrix is None or cell not in matrix.scores:
        return "this cell has not finished"
    scores, fixed = matrix.scores[cell], (cell in sweep.deterministic, True)
    test = scope_test(scores, np.zeros_like(scores[:1]), deterministic=fixed)
    low, high = confidence_interval(test, 1 - sweep.tests.alpha)
    if math.isnan(low):
        return "this cell has one training run, so no interval"
    inside = sum(low <= value <= high for value in row.values)
    many = f"{inside} of {len(row.values)} " if len(row.values) > 1 else "" if inside else "not "
    interval = f"our {level_text(sweep.tests.alpha)} interval {range_text(low, high)}"
    return f"{many}inside {interval}"


def _is_same(
    sweep: Sweep, cell: Cell, model: str, encoder: str, settings: Mapping[str, Any]
) -> bool:
    """True if a cell is a row's system; windows that are not swept are taken to be the row's."""
    name = cell.settings.get("model.backbone", sweep.about.backbone.get("name"))
    return (
        cell.settings.get("model.name") == model
        and encoder in (name, ANY)
        and all(
            cell.settings.get(name, value if name in _WINDOWS else None) == value
            for name, value in settings.items()
        )
    )


PUBLISHED = "Published: values of other people's runs, never tested."


def with_published(shown: Table, analysis: Analysis) -> Table:
    """A table of the systems in the order of `analysis.rows`, with a column of published values
    with `--published`, where there are any."""
    if not analysis.published:
        return shown
    words = f"{shown.caption} {PUBLISHED}"
    return replace(
        shown,
        heading=(*shown.heading, "published"),
        rows=tuple(
            replace(line, cells=(*line.cells, TableCell(_text(analysis, row.cell.cell))))
            for line, row in zip(shown.rows, analysis.rows, strict=True)
        ),
        align=f"{shown.align}l",
        caption=words.strip(),
    )


def published_lines(analysis: Analysis) -> list[str]:
    """The lines of a terminal; none without `--published`."""
    if analysis.published is None:
        return []
    label = analysis.sweep.label
    values = [f"Published, {label(cell)}: {_text(analysis, cell)}." for cell in analysis.published]
    if not values:
        places = [" ".join(place[:2]) for t in TABLES for place in t.columns.values() if place[0]]
        known = ", ".join(dict.fromkeys(places))
        return wrapped(f"No published value is known; known are {known}.")
    return [line for text in [*values, "Not tested: other runs."] for line in wrapped(text)]


def _text(analysis: Analysis, cell: str) -> str:
    """`nDCG@10 .647 (Boytsov et al. 2022, Table 4)`, several separated by commas."""
    values = (analysis.published or {}).get(cell, {})
    return "; ".join(f"{measure} {value}" for measure, texts in values.items() for value in texts)
