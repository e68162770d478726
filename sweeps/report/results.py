"""The results as a table, rows of means with letters, and the files beside the page: the table in
three formats and all numbers, unrounded.

Letters: the first baseline is `a`, the next `b`, ...; a baseline is a cell, or a mapping from each
system to its own. Lower case marks a difference with only the queries random (paired t-test on
means over seeds), upper case a difference that also holds over training runs.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from string import ascii_lowercase
from typing import Any

import numpy as np
import pandas as pd

from rank_core.ranking.interpolation import DEFAULT
from rank_core.stats.compare import CellComparison, Slot, letter
from sweeps.findings.analysis import Analysis
from sweeps.findings.clusters import cluster_results
from sweeps.findings.front import front_results
from sweeps.findings.interactions import interaction_results
from sweeps.findings.unjudged import judged_documents
from sweeps.report.caption import caption, notes
from sweeps.report.headline import headline
from sweeps.report.legend import legend_of_letters, legend_of_tests
from sweeps.report.published import PUBLISHED, with_published
from sweeps.report.table import Table, TableCell, csv_text, table, table_row
from sweeps.systems.load import Sweep
from sweeps.systems.summary import fate_word
from sweeps.systems.system import System
from sweeps.terminal.notation import decisive_p, difference_text, level_text, number

SCHEMA_VERSION = 8

COMPARISON_COLUMNS = (
    "measure system baseline delta relative_gain p_queries p_seeds p_both p_both_adjusted df_both "
    "se_both ci_low ci_high family_low family_high num_seeds_system num_seeds_baseline "
    "num_queries family_size correction paired_runs "
    "significant se_queries ci_queries_low ci_queries_high p_queries_adjusted p_moderated "
    "condensed_delta condensed_p condensed_letter"
).split()


@dataclass(frozen=True)
class Column:
    """A column of a table of systems."""

    heading: str
    cell: Callable[[System], str | TableCell]
    align: str = "r"


@dataclass(frozen=True)
class Scores:
    """The rows of a table, and its columns of means: rounded, with letters, the best marked."""

    rows: Sequence[System]
    slots: Sequence[Slot]
    alpha: float = 0.05
    digits: int = 3

    def column(self, measure: str, *, heading: str = "", spread: bool = False) -> Column:
        """The means of a measure; `spread` adds the deviation over seeds as a note. Means and
        letters align on the left, or one without a deviation would be shifted."""
        means = [round(row.mean(measure), self.digits) for row in self.rows]
        best = max((mean for mean in means if not math.isnan(mean)), default=math.nan)

        def cell(row: System) -> TableCell:
            mean, deviation, tests = row.mean(measure), row.deviation(measure), row.tests
            marks = enumerate(ascii_lowercase[: len(self.slots)])
            of = tests.get(measure, {})
            note = f"± {number(deviation, self.digits)}"
            seeds = [f"seed {seed}: {value:.4f}" for seed, value in row.runs(measure).items()]
            return TableCell(
                number(mean, self.digits),
                letters=tuple(letter(of.get(mark), at, self.alpha) for at, mark in marks),
                note=note * (spread and not math.isnan(deviation)),
                face="best" * (round(mean, self.digits) == best),
                hint=", ".join(seeds),
            )

        return Column(heading or measure, cell, "l")


def drawn(rows: Sequence[System], columns: Sequence[Column], **words: Any) -> Table:
    """The table of these columns; `words` as in `table`."""
    lines = [
        table_row(
            *(column.cell(row) for column in columns),
            group=row.cell.group,
            style="baseline" * row.is_baseline,
        )
        for row in rows
    ]
    align = "".join(column.align for column in columns)
    return table([column.heading for column in columns], lines, align, **words)


def results_table(
    rows: Sequence[System],
    *,
    alpha: float = 0.05,
    digits: int = 3,
    slots: Sequence[Slot] = (),
    gains: Mapping[str, CellComparison] | None = None,
    third_party: bool = False,
    has_seeds: bool = True,
    compact: bool = False,
    means: Mapping[str, Sequence[str]] | None = None,
    eliminated: Mapping[str, str] | None = None,
    **words: Any,
) -> Table:
    """The table of a paper: the first measure with its test, the means alone of the others, so that
    it fits a column of text; a `compact` one has means and letters alone. A mean of `means` follows
    the columns of its collections. Without `has_seeds` there is no column of them. `slots` are the
    baselines of the letters, in their order, and `gains` the tests of the rows, by default those
    with the first of them; rows that were `eliminated` have a word in place of a test."""
    scores = Scores(rows, slots, alpha, digits)
    first, *further = measures = list(rows[0].seed_means)

    def tested(row: System) -> CellComparison | None:
        return row.test(first) if gains is None else gains.get(row.name)

    def difference(row: System) -> str:
        if pair := tested(row):
            return difference_text(pair, digits)
        return f"= {row.same_as}" if row.same_as else (eliminated or {}).get(row.name, "")

    def seeds(row: System) -> TableCell:
        lost = "lost" * (row.num_used < row.num_launched)
        return TableCell(str(row.num_used) if third_party else row.seeds_text, face=lost)

    system = Column("system", lambda row: row.label, "l")
    before = (means or {}).get(first, ())
    if means:
        further = [name for m, own in means.items() if m != first for name in (*own, m)]
    if compact:
        measures = [*before, first, *further]
        return drawn(rows, [system, *map(scores.column, measures)], **words)
    columns = [
        system,
        *[Column("runs" if third_party else "seeds", seeds, "c")] * has_seeds,
        *map(scores.column, before),
        scores.column(first, spread=True),
        Column(f"Δ [{level_text(alpha)} CI]", difference),
        Column("p", lambda row: decisive_p(pair) if (pair := tested(row)) else ""),
        *map(scores.column, further),
    ]
    return drawn(rows, columns, **words)


def paper_table(analysis: Analysis, remarks: Sequence[str] = (), *, compact: bool = False) -> Table:
    """The table of all measures, its caption, its notes and `remarks`; a `compact` one has
    means and letters alone, and no notes."""
    sweep = analysis.sweep
    shown = results_table(
        analysis.rows,
        alpha=sweep.tests.alpha,
        digits=sweep.digits,
        slots=analysis.slots,
        gains=analysis.gains,
        caption=caption(analysis, compact=compact),
        notes=() if compact else [*notes(analysis), *remarks],
        third_party=sweep.third_party,
        has_seeds=analysis.has_seeds,
        compact=compact,
        means=sweep.means,
        eliminated=dict.fromkeys(sweep.about.eliminated, fate_word(sweep)),
    )
    return shown if compact else with_published(shown, analysis)


def page_table(analysis: Analysis) -> Table:
    """The table of a paper with a legend of two lines."""
    shown = paper_table(analysis)
    rows = shown.rows
    if all(row.cells[0].text.startswith(row.group) for row in rows):  # the labels say it
        rows = tuple(replace(row, group="") for row in rows)
    align = "l".ljust(len(shown.align), "r")
    if analysis.published:  # its column is text, which wraps
        align = f"{align[:-1]}l"
    papers = PUBLISHED if analysis.published else ""
    legends = (legend_of_letters(analysis), legend_of_tests(analysis, with_spread=True), papers)
    lines = "\n".join(filter(None, legends))
    return replace(shown, rows=rows, align=align, caption=lines, notes=())


def results_csv(rows: Sequence[System]) -> str:
    """A line per system, measure and comparison, unrounded; a system without comparisons has a line
    without one."""
    fields = [
        column.name
        for column in dataclasses.fields(CellComparison)
        if column.repr and column.name != "measure"  # not the objects behind its numbers
    ]
    own = "label group cell is_baseline seeds_used seeds_launched measure mean sd_seeds".split()
    return csv_text(
        [*own, *fields],
        (
            [
                *(row.label, row.cell.group, row.cell.cell, row.is_baseline),
                *(row.num_used, row.num_launched),
                *(measure, row.mean(measure), row.deviation(measure)),
                *(getattr(comparison, name, None) for name in fields),
            ]
            for row in rows
            for measure in row.seed_means
            for comparison in row.tests.get(measure, {}).values() or (None,)
        ),
    )


def comparisons_csv(analysis: Analysis) -> str:
    """A line per comparison; an undefined value is an empty field."""
    compared = [*analysis.comparisons, *analysis.interpolated_comparisons]
    compared += [*analysis.further, *analysis.first_stage_comparisons]
    compared += analysis.own_model_comparisons
    lines = [_comparison(comparison, analysis) for comparison in compared]
    return csv_text(
        COMPARISON_COLUMNS, ([line.get(n) for n in COMPARISON_COLUMNS] for line in lines)
    )


def _described(sweep: Sweep) -> dict[str, Any]:
    """What is known of the systems as a whole."""
    about = sweep.about
    return {
        "name": about.sweep,
        "question": sweep.question,
        "split": about.split,
        "measures": about.measures,
        "primary": about.primary,
        "baseline_letters": sweep.slots,
        "deterministic": sweep.deterministic,
        "alpha": sweep.tests.alpha,
        "look": sweep.look,
        "correction": sweep.tests.correction,
        "correct_over": about.tests.correct_over,
        "equivalence_margin": about.tests.margin,
        "collections": sweep.collections,
        "means": sweep.means,
        "separate_runs": sweep.separate_runs,
        "paired_seeds": about.tests.paired_seeds,
        "swept": about.swept,
        "seeds": about.seeds,
        "collection": about.collection,
        "backbone": about.backbone,
        "first_stage": about.first_stage,
        "versions": about.versions,
        "published": about.published,
        "kind": about.kind,
        "command": about.command,
        "start": about.start,
        "flags": about.flags,
        "settings": about.settings,
        "smoke_test": about.smoke_test,
        "directory": about.directory,
        "confirms": about.confirms or None,
        "search": about.search,
        "stopped": about.stopped,
        "external": sweep.third_party,
        "tie_policy": sweep.tie_policy,
        "interpolate": about.interpolate,
        "not_interpolated": sweep.not_interpolated,
        "aggregates": sweep.aggregates,
        "notes": sweep.notes,
        "baseline": sweep.baseline,
    }


def shared_results(analysis: Analysis) -> dict[str, Any]:
    """The results of every analysis, of a sweep or of a third party's runs."""
    sweep = analysis.sweep

    def listed(comparisons: Sequence[CellComparison]) -> list[dict[str, Any]]:
        return [_comparison(comparison, analysis) for comparison in comparisons]

    return {
        "schema_version": SCHEMA_VERSION,
        "sweep": _described(sweep),
        "choice": analysis.choice and dataclasses.asdict(analysis.choice),
        "headline": dataclasses.asdict(headline(analysis)),
        "seeds_compared_as_paired": analysis.paired,
        "not_distinguishable_from_the_best": [
            dataclasses.asdict(found)
            | {
                "margin": sweep.tests.margin,
                "within_margin": found.within(sweep.tests.margin),
            }
            for found in analysis.best_sets.values()
        ],
        "cells": [_cell(summary) for summary in analysis.cells],
        "comparisons": listed(analysis.comparisons),
        "further_comparisons": listed(analysis.further),
        "scope_tests": [
            {"measure": c.measure, "system": c.system, "baseline": c.baseline}
            # A baseline's own row with the first stage has an unpaired test of the table, too.
            | {"paired_runs": c.family is not None and c.family.paired}
            | dataclasses.asdict(c.test)
            for c in analysis.compared.values()
            if c.test
        ],
        "families": _families(analysis),
        "copies": analysis.copies,
        "interpolated": [
            _cell(row)
            | {"of": row.of, "normalise": DEFAULT, "alphas": row.alphas}
            | {"identical_to": row.identical_to, "comparisons": listed(own)}
            for row in analysis.interpolated
            for own in [[c for c in analysis.interpolated_comparisons if c.system == row.name]]
        ],
        "first_stage": analysis.first_stage and _cell(analysis.first_stage),
        "first_stage_comparisons": listed(analysis.first_stage_comparisons),
        "own_model_comparisons": listed(analysis.own_model_comparisons),
        "caption": caption(analysis),
        "notes": notes(analysis),
        **cluster_results(analysis),
        **front_results(analysis),
        **({"interactions": found} if (found := interaction_results(analysis)) else {}),
        **({"unjudged": judged_documents(analysis.unjudged)} if analysis.unjudged else {}),
    }


def _families(analysis: Analysis) -> list[dict[str, Any]]:
    """What decided the corrected p-values of each family: docs/statistics.md has the formulas."""
    measures = {id(c.family): c.measure for c in analysis.compared.values()}
    families = {id(c.family): c.family for c in analysis.compared.values() if c.family}
    return [
        {
            "measure": measures[key],
            "systems": [system for system, _ in family.pairs],
            "baselines": [base for _, base in family.pairs],
            **dataclasses.asdict(family.applied),
            "text": family.applied.text,
            "paired_runs": family.paired,
            "seeds_agree": family.seeds_agree,
            "prior_variance": family.prior_variance,
            "prior_df": family.prior_df,
            "pool_df": family.pool_df,
            "correlation_both": _rows(family.correlation_both),
            "correlation_queries": _rows(family.correlation_queries),
        }
        for key, family in families.items()
    ]


def _rows(matrix: Any) -> list[list[float]] | None:
    """The rows of a matrix; None without one."""
    return None if matrix is None else matrix.tolist()


def _comparison(comparison: CellComparison, analysis: Analysis) -> dict[str, Any]:
    """All of its fields, and what unjudged documents change, where this is known."""
    line = comparison.facts
    line["significant"] = comparison.significant(analysis.sweep.tests.alpha)
    line["paired_runs"] = comparison.family is not None and comparison.family.paired
    if analysis.unjudged and (again := analysis.unjudged.of.get(comparison)):
        line |= dataclasses.asdict(again)
    return line


def json_text(results: Mapping[str, Any]) -> str:
    """`results` as JSON, unrounded; NaN and missing values are null."""
    return json.dumps(_plain(results), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _cell(summary: System) -> dict[str, Any]:
    described = dataclasses.asdict(summary.cell)
    for name in ("config", "not_interpolated"):  # `sweep.json` has them
        del described[name]
    return {
        **described,
        "seeds_used": summary.num_used,
        "seeds_launched": summary.num_launched,
        "fates": summary.statuses,
        "measures": {
            measure: {
                "mean": summary.mean(measure),
                "per_seed": summary.runs(measure) if summary.statuses else values,
            }
            for measure, values in summary.seed_means.items()
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
