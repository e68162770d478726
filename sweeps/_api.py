"""Sweeps and comparisons as objects of a notebook: `sweeps.load` and `sweeps.compare`."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from rank_core.errors import BadInput, unknown
from rank_core.stats.compare import Comparison
from sweeps.commands.compare.command import sources_of
from sweeps.commands.compare.output import comparison_text
from sweeps.commands.compare.runs import compare_runs
from sweeps.commands.compare.sources import training_runs
from sweeps.report.access import record_access
from sweeps.report.analysis import Analysis, analyse
from sweeps.report.conclusions import conclusions
from sweeps.report.figures.figures import figures
from sweeps.report.html import table_part
from sweeps.report.interpolation import with_interpolated
from sweeps.report.load import load_sweep
from sweeps.report.reliability import assess
from sweeps.report.results import paper_table
from sweeps.report.sections.results import page_table
from sweeps.report.table import latex, markdown
from sweeps.report.terminal import table_text
from sweeps.store.opened_sweep import opened
from sweeps.store.scores import TEXTS

_TESTED = tuple(f.name for f in fields(Comparison) if f.name not in ("measure", "system"))


class TestedTable:
    """The table of a sweep or a comparison, for notebooks and `print`."""

    def __init__(self, analysis: Analysis, text: str) -> None:
        self._analysis, self._text = analysis, text

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each system and measure, nothing rounded: `system, measure, mean, sd_seeds,
        seeds`, and of its comparison with the first baseline the fields of
        `rank_core.stats.compare.Comparison`; none of these for the baseline itself."""
        return pd.DataFrame(
            {
                "system": row.label,
                "measure": cell.measure,
                "mean": cell.mean,
                "sd_seeds": cell.sd_seeds,
                "seeds": row.seeds_used,
                **{name: getattr(cell.comparison, name, None) for name in _TESTED},
            }
            for row in self._analysis.rows
            for cell in row.cells
        )

    def markdown(self) -> str:
        """The table under its caption, for a README."""
        return markdown(paper_table(self._analysis))

    def latex(self, label: str = "tab:results") -> str:
        """The table in LaTeX, for a paper."""
        return latex(paper_table(self._analysis), label)

    def _repr_html_(self) -> str:
        return table_part(page_table(self._analysis), conclusions(self._analysis))

    def __repr__(self) -> str:
        return self._text


class LoadedSweep:
    """A sweep with at least one finished trial.

    `trials` has a row for each trial, `per_query` the value of each used trial, query and measure
    on the reported split, and of the primary measure on dev. Both name systems as the table does
    and are copies.
    """

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        sweep = analysis.sweep
        self.name, self.question, self.folder = sweep.name, sweep.question, sweep.folder
        self.trials = _labelled(sweep.trials, analysis)
        dev = [] if sweep.split == "dev" else [sweep.dev_scores]
        derived = [system.scores for system in sweep.interpolated]
        tables = [sweep.scores, *derived, sweep.first_stage_scores, *dev]
        texts = dict.fromkeys(TEXTS, str)
        self.per_query = _labelled(
            pd.concat([values.astype(texts) for values in tables if len(values)]), analysis
        )

    def table(self) -> TestedTable:
        """The tested table of all systems and measures."""
        return TestedTable(self._analysis, table_text(self._analysis))

    def plot(self, name: str) -> Figure:
        """A figure of the report by the name of its file (forest, strip, ...)."""
        if name not in self._figures:
            raise unknown("plot of this sweep", name, self._figures)
        return self._figures[name]

    @cached_property
    def _figures(self) -> dict[str, Figure]:
        drawn = figures(self._analysis, assess(self._analysis))
        return {figure.drawing.name: figure.drawing.figure for figure in drawn}

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()

    def __repr__(self) -> str:
        return f"{self.name}: {self.question}\n\n{self.table()!r}"


def load(where: str | Path, *, interpolate: str = "") -> LoadedSweep:
    """The sweep in a folder or under a URI. `interpolate` names the systems with a row "+BM25":
    best, all or none; empty: as in the sweep's command. Raises `BadInput` without a sweep or a
    finished trial."""
    with opened(str(where), trials=interpolate == "all") as store:
        sweep = with_interpolated(load_sweep(store.folder), interpolate)
        record_access(sweep, f"sweeps.load({str(where)!r})")
    return LoadedSweep(analyse(sweep))


def compare(
    systems: Mapping[str, Any] | pd.DataFrame,
    qrels: Any = None,
    *,
    baseline: str | Sequence[str] = (),
    **options: Any,
) -> TestedTable:
    """The tested table of any systems: {name: its runs or per-query values}, several for seeds.
    Each is a source of `ranksweep compare` (a pattern too), a data frame (a run: query_id, doc_id,
    score, or qid, docno, score; values: query_id, measure, value), or a run as {query: {document:
    score}}. One frame of values with a column `name` or `system` holds all systems. `qrels` are the
    judgments that runs need: a file, a data frame or a dictionary. `baseline` is by default the
    first system. `options` are those of `compare_runs` in `sweeps.commands.compare.runs`:
    `measures`, `correction`, `deterministic`, ... Raises `BadInput`."""
    runs: dict[str, Any] = (
        {name: tuple(own) for name, own in training_runs(systems).items()}
        if isinstance(systems, pd.DataFrame)
        else {name: _sources(sources) for name, sources in systems.items()}
    )
    if len(runs) < 2:
        raise BadInput(f"a comparison needs two systems or more, got {', '.join(runs) or 'one'}")
    for name in ("measures", "deterministic"):
        if isinstance(options.get(name), str):
            options[name] = (options[name],)
    compared = compare_runs(
        runs,
        qrels,
        baselines=(baseline,) if isinstance(baseline, str) else tuple(baseline),
        **options,
    )
    return TestedTable(compared.analysis, comparison_text(compared))


def _sources(source: Any) -> tuple[Any, ...]:
    """The sources of a system: one or several, patterns and dictionaries resolved."""
    if isinstance(source, str):
        return tuple(sources_of(source))
    if isinstance(source, Mapping) and isinstance(next(iter(source.values()), None), Mapping):
        rows = [(query, *pair) for query, scores in source.items() for pair in scores.items()]
        return (pd.DataFrame(rows, columns=["query_id", "doc_id", "score"]),)
    if isinstance(source, list | tuple):
        return tuple(resolved for part in source for resolved in _sources(part))
    return (source,)


def _labelled(table: pd.DataFrame, analysis: Analysis) -> pd.DataFrame:
    """A copy whose first column is the label of each cell."""
    labelled = table.reset_index(drop=True)
    labels = {cell: analysis.sweep.label(cell) for cell in labelled["cell"].unique()}
    labelled.insert(0, "system", labelled["cell"].map(labels))
    return labelled
