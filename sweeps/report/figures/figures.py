"""The figures of a report in their order, of those that have data."""

from sweeps.report.analysis import Analysis
from sweeps.report.figures.figure import Shown
from sweeps.report.figures.forest import forest_plot
from sweeps.report.figures.heatmap import heat_map
from sweeps.report.figures.learning_plot import learning_plot
from sweeps.report.figures.pareto import pareto_plot
from sweeps.report.figures.query_bars import query_bars
from sweeps.report.figures.strip import strip_plot
from sweeps.report.reliability import Reliability


def figures(analysis: Analysis, reliability: Reliability) -> list[Shown]:
    """Every figure for which the sweep has data, the main ones first."""
    drawn = [
        heat_map(analysis, reliability.factors),
        forest_plot(analysis),
        strip_plot(analysis),
        query_bars(analysis),
        pareto_plot(analysis),
        learning_plot(analysis),
    ]
    return [figure for figure in drawn if figure is not None]
