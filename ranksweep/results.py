"""The results of `run`, `load` and `compare`: a sweep, a comparison, their tested table."""

from dataclasses import asdict, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from rank_core.arguments import by_name, flag, path, takes, text
from rank_core.errors import unknown
from rank_core.stats.compare import CellComparison
from sweeps.findings.analysis import Analysis
from sweeps.findings.every import findings
from sweeps.report.comparison import RunComparison
from sweeps.report.comparison_files import all_pairs, comparison_text, write_files
from sweeps.report.figures import figures
from sweeps.report.headline import cost_text, headline
from sweeps.report.html import table_part
from sweeps.report.next_step import next_step
from sweeps.report.over_sets import over_sets
from sweeps.report.results import page_table, paper_table
from sweeps.report.table import latex, markdown, wrapped
from sweeps.report.terminal import table_text
from sweeps.store.scores import TEXTS
from sweeps.systems.choice import Choice
from sweeps.terminal.escape import markdown_text

_TESTED = tuple(
    f.name for f in fields(CellComparison) if f.name not in ("measure", "system", "family", "test")
)


class TestedTable:
    """The table of a sweep or a comparison, for notebooks and `print`.

    Examples:
        >>> import ranksweep
        >>> table = ranksweep.load("results/window_stride/woods").table()
        >>> print(table)  # as the report prints it
        <BLANKLINE>
        system            seeds  nDCG@10 ...
        ...
    """

    def __init__(self, analysis: Analysis, text: str) -> None:
        self._analysis, self._text = analysis, text

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each system and measure, nothing rounded: `system, measure, mean, sd_seeds,
        seeds`, and of its comparison with the first baseline the fields of
        `rank_core.stats.compare.CellComparison`; none of these for the baseline itself.

        Examples:
            >>> import ranksweep
            >>> frame = ranksweep.load("results/window_stride/woods").table().frame
            >>> frame.query("measure == 'RR@10'")[["system", "mean", "delta"]].round(3)
                         system   mean  delta
            ...
        """
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
        """The headline, then the table with its caption, for a README.

        Examples:
            >>> import ranksweep
            >>> print(ranksweep.load("results/window_stride/woods").table().markdown())
            Use MaxP 40/20...
            | system | ... |
            ...
        """
        sentence = markdown_text(headline(self._analysis).text)
        return f"{sentence}\n\n{markdown(paper_table(self._analysis))}"

    @takes(label=text)
    def latex(self, label: str = "tab:results") -> str:
        """The table in LaTeX, for a paper.

        Examples:
            >>> import ranksweep
            >>> text = ranksweep.load("results/window_stride/woods").table().latex("tab:windows")
            >>> text.count("tab:windows")
            1
        """
        return latex(paper_table(self._analysis), label)

    @takes(name=text)
    def plot(self, name: str) -> Figure:
        """A figure of the report by the name of its file (forest, strip, ...).

        Examples:
            >>> import ranksweep
            >>> table = ranksweep.load("results/window_stride/woods").table()
            >>> table.plot("forest").savefig("forest.pdf")
        """
        if name not in self._figures:
            raise unknown("plot", name, self._figures)
        return self._figures[name]

    @cached_property
    def _figures(self) -> dict[str, Figure]:
        drawn = figures(self._analysis)
        return {figure.name: figure.figure for figure in drawn}

    def _repr_html_(self) -> str:
        step = next_step(self._analysis)
        found = headline(self._analysis)
        sentences = [found.text, cost_text(found)]
        sentences += step.lines if step else []
        sentences = [sentence for sentence in sentences if sentence]
        return table_part(page_table(self._analysis), sentences)

    def __repr__(self) -> str:
        return self._text


class Comparison(TestedTable):
    """The tested table of a comparison, which can be saved.

    Examples:
        >>> import ranksweep
        >>> a, b = {"q1": {"d1": 2.0, "d2": 1.0}}, {"q1": {"d2": 2.0, "d1": 1.0}}
        >>> a["q2"], b["q2"] = {"d1": 2.0, "d2": 1.0}, {"d2": 2.0, "d1": 1.0}
        >>> qrels = {"q1": {"d1": 1}, "q2": {"d2": 1}}
        >>> list(ranksweep.compare({"A": a, "B": b}, qrels, measures="RR").frame["mean"])
        [0.75, 0.75]
    """

    def __init__(self, comparison: RunComparison) -> None:
        super().__init__(comparison.analysis, comparison_text(comparison))
        self._comparison = comparison

    @takes(folder=path, pairs=flag, compact=flag)
    def save(self, folder: str | Path, *, pairs: bool = False, compact: bool = False) -> None:
        """Write the page, the tables, the figures and all numbers, as `--out` of `ranksweep
        compare`; `pairs` tests every pair of systems too (pairs.csv), `compact` writes tables of
        means and letters.

        Examples:
            >>> import ranksweep
            >>> runs = {"A": "runs/a.*.run", "B": "runs/b.*.run"}
            >>> ranksweep.compare(runs, "test.qrels").save("comparison")
        """
        tested = all_pairs(self._analysis) if pairs else []
        write_files(self._comparison, Path(folder), tested, compact=compact)


class Sweep:
    """A sweep with at least one finished trial.

    `trials` has a row for each trial, `per_query` the value of each used trial, query and measure
    on the reported split, and of the primary measure on dev. Both name systems as the table does
    and are copies.

    Examples:
        >>> import ranksweep
        >>> sweep = ranksweep.load("results/window_stride/woods")
        >>> sweep.trials[["system", "seed", "status"]].head(2)
              system  seed status
        0  FirstP 40     1   done
        1  FirstP 40     2   done
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

    @property
    def choice(self) -> Choice | None:
        """The system that the sweep chose on dev, which the report names, `export` writes and
        `--confirm` trains again; None where nothing has finished.

        Examples:
            >>> import ranksweep
            >>> choice = ranksweep.load("results/window_stride/woods").choice
            >>> choice.label, choice.split
            ('MaxP 40/20 +BM25', 'dev')
        """
        return self._analysis.choice

    @property
    def best(self) -> str:
        """The name in the table of the system that the sweep chose on dev; empty where nothing has
        finished.

        Examples:
            >>> import ranksweep
            >>> ranksweep.load("results/window_stride/woods").best
            'MaxP 40/20 +BM25'
        """
        return self._analysis.choice.label if self._analysis.choice else ""

    @property
    def settings(self) -> pd.DataFrame:
        """A row for each cell with the settings that it reads, by their dotted names.

        Examples:
            >>> import ranksweep
            >>> settings = ranksweep.load("results/window_stride/woods").settings
            >>> list(settings["system"])
            ['FirstP 40', 'MaxP 40/20']
        """
        sweep = self._analysis.sweep
        return pd.DataFrame(
            {"system": sweep.label(cell.cell), **cell.config} for cell in sweep.cells
        )

    @property
    def findings(self) -> pd.DataFrame:
        """The findings of the report: question, name, about, value, low, high, p and more.

        Examples:
            >>> import ranksweep
            >>> found = ranksweep.load("results/window_stride/woods").findings
            >>> {"question", "value", "low", "high"} <= {*found.columns}
            True
        """
        return pd.DataFrame([asdict(finding) for finding in findings(self._analysis)])

    @property
    def selected_blocks(self) -> pd.DataFrame:
        """A row for each system whose trials kept the blocks that they select
        (`evaluation.keep_selected_blocks`) and each tenth of a document, from its start: the share
        of the selected blocks there, of documents that are read in part.

        Examples:
            >>> import ranksweep
            >>> sweep = ranksweep.load("results/window_stride/woods")
            >>> list(sweep.selected_blocks.columns)
            ['system', 'tenth', 'share']
        """
        sweep = self._analysis.sweep
        rows = [
            (sweep.label(cell), tenth, share)
            for cell, blocks in sweep.selected_blocks.items()
            for tenth, share in enumerate(blocks.tenths, start=1)
        ]
        return pd.DataFrame(rows, columns=["system", "tenth", "share"])

    @takes(to=path, flags=by_name("flags of `ranksweep export`"))
    def export(self, to: str | Path, **flags: Any) -> Path:
        """Write the model that the sweep chose into a new folder, as `ranksweep export` with its
        flags: cell="MaxP 40/20", force=True. Raises `BadInput`, also where no weights were kept.

        Examples:
            >>> import ranksweep
            >>> sweep = ranksweep.load("results/window_stride/woods")
            >>> sweep.export("model", cell="FirstP 40")  # without kept weights
            Traceback (most recent call last):
            ...
            rank_core.errors.BadInput: ...
        """
        words = [self._analysis.sweep.stored.uri, "--to", str(to)]
        for name, value in flags.items():
            if value not in (None, False):
                words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
        from sweeps.commands.export import main as export_main  # imports torch

        export_main(words)
        return Path(to)

    def table(self) -> TestedTable:
        """The tested table of all systems and measures.

        Examples:
            >>> import ranksweep
            >>> table = ranksweep.load("results/window_stride/woods").table()
            >>> list(table.frame["system"].unique())[:2]
            ['BM25', 'FirstP 40']
        """
        return self._table

    def over_sets(self) -> Comparison | None:
        """The tested table of the systems over the collection and its test sets
        (`evaluation.test_on`); None without such sets, and while none of them is ranked.

        Examples:
            >>> import ranksweep
            >>> sweep = ranksweep.load("results/window_stride/woods")
            >>> sweep.over_sets()  # of a sweep without --test-on
        """
        over = over_sets(self._analysis.sweep)
        return Comparison(over) if over else None

    def plot(self, name: str) -> Figure:
        """A figure of the report by the name of its file (forest, strip, ...).

        Examples:
            >>> import ranksweep
            >>> ranksweep.load("results/window_stride/woods").plot("strip").savefig("strip.pdf")
        """
        return self._table.plot(name)

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()

    def __repr__(self) -> str:
        sentence = "\n".join(wrapped(headline(self._analysis).text))
        return f"{self.name}: {self.question}\n\n{self.table()!r}\n\n{sentence}"


def _labelled(table: pd.DataFrame, analysis: Analysis) -> pd.DataFrame:
    """A copy whose first column is the label of each cell."""
    labelled = table.reset_index(drop=True)
    labels = {cell: analysis.sweep.label(cell) for cell in labelled["cell"].unique()}
    labelled.insert(0, "system", labelled["cell"].map(labels))
    return labelled
