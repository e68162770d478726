"""The results of `run`, `load` and `compare`: a sweep, a comparison, their tested table."""

from dataclasses import fields
from functools import cached_property
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from rank_core.arguments import flag, path, takes, text
from rank_core.errors import unknown
from rank_core.stats.compare import CellComparison
from sweeps.commands.compare.output import all_pairs, comparison_text, write_files
from sweeps.report.analysis import Analysis
from sweeps.report.comparison import RunComparison
from sweeps.report.conclusions import conclusions
from sweeps.report.figures import figures
from sweeps.report.html import table_part
from sweeps.report.next_step import next_step
from sweeps.report.reliability import assess
from sweeps.report.results import page_table, paper_table
from sweeps.report.table import latex, markdown
from sweeps.report.terminal import table_text
from sweeps.store.scores import TEXTS

_TESTED = tuple(f.name for f in fields(CellComparison) if f.name not in ("measure", "system"))


class TestedTable:
    """The table of a sweep or a comparison, for notebooks and `print`."""

    def __init__(self, analysis: Analysis, text: str) -> None:
        self._analysis, self._text = analysis, text

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each system and measure, nothing rounded: `system, measure, mean, sd_seeds,
        seeds`, and of its comparison with the first baseline the fields of
        `rank_core.stats.compare.CellComparison`; none of these for the baseline itself."""
        return pd.DataFrame(
            {
                "system": row.label,
                "measure": measure,
                "mean": row.mean(measure),
                "sd_seeds": row.deviation(measure),
                "seeds": row.num_used,
                **{name: getattr(row.test(measure), name, None) for name in _TESTED},
            }
            for row in self._analysis.rows
            for measure in row.seed_means
        )

    def markdown(self) -> str:
        """The table under its caption, for a README."""
        return markdown(paper_table(self._analysis))

    @takes(label=text)
    def latex(self, label: str = "tab:results") -> str:
        """The table in LaTeX, for a paper."""
        return latex(paper_table(self._analysis), label)

    @takes(name=text)
    def plot(self, name: str) -> Figure:
        """A figure of the report by the name of its file (forest, strip, ...)."""
        if name not in self._figures:
            raise unknown("plot", name, self._figures)
        return self._figures[name]

    @cached_property
    def _figures(self) -> dict[str, Figure]:
        drawn = figures(self._analysis, assess(self._analysis).factors)
        return {figure.name: figure.figure for figure in drawn}

    def _repr_html_(self) -> str:
        step = next_step(self._analysis)
        sentences = [*conclusions(self._analysis), *(step.lines if step else [])]
        return table_part(page_table(self._analysis), sentences)

    def __repr__(self) -> str:
        return self._text


class Comparison(TestedTable):
    """The tested table of a comparison, which can be saved."""

    def __init__(self, comparison: RunComparison) -> None:
        super().__init__(comparison.analysis, comparison_text(comparison))
        self._comparison = comparison

    @takes(folder=path, pairs=flag, compact=flag)
    def save(self, folder: str | Path, *, pairs: bool = False, compact: bool = False) -> None:
        """Write the page, the tables, the figures and all numbers, as `--out` of `ranksweep
        compare`; `pairs` tests every pair of systems too (pairs.csv), `compact` writes tables of
        means and letters."""
        tested = all_pairs(self._analysis) if pairs else []
        write_files(self._comparison, Path(folder), tested, compact=compact)


class Sweep:
    """A sweep with at least one finished trial.

    `trials` has a row for each trial, `per_query` the value of each used trial, query and measure
    on the reported split, and of the primary measure on dev. Both name systems as the table does
    and are copies.
    """

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        sweep = analysis.sweep
        self.name, self.question, self.folder = sweep.about.sweep, sweep.question, sweep.folder
        self.trials = _labelled(sweep.trials, analysis)
        dev = [] if sweep.split == "dev" else [sweep.dev_scores]
        derived = [system.scores for system in sweep.interpolated]
        first_stage = [sweep.first_stage.scores] if sweep.first_stage else []
        tables = [sweep.scores, *derived, *first_stage, *dev]
        texts = dict.fromkeys(TEXTS, str)
        self.per_query = _labelled(
            pd.concat([values.astype(texts) for values in tables if len(values)]), analysis
        )

        self._table = TestedTable(analysis, table_text(analysis))

    def table(self) -> TestedTable:
        """The tested table of all systems and measures."""
        return self._table

    def plot(self, name: str) -> Figure:
        """A figure of the report by the name of its file (forest, strip, ...)."""
        return self._table.plot(name)

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()

    def __repr__(self) -> str:
        return f"{self.name}: {self.question}\n\n{self.table()!r}"


def _labelled(table: pd.DataFrame, analysis: Analysis) -> pd.DataFrame:
    """A copy whose first column is the label of each cell."""
    labelled = table.reset_index(drop=True)
    labels = {cell: analysis.sweep.label(cell) for cell in labelled["cell"].unique()}
    labelled.insert(0, "system", labelled["cell"].map(labels))
    return labelled
