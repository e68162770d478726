"""Which figures a report shows, in which order; a figure without data is left out."""

from sweeps.report.analysis import Analysis
from sweeps.report.figures.chunk_plot import chunk_plot
from sweeps.report.figures.figure import Shown
from sweeps.report.figures.forest import forest_plot
from sweeps.report.figures.heatmap import heat_map
from sweeps.report.figures.learning_plot import learning_plot
from sweeps.report.figures.pareto import pareto_plot
from sweeps.report.figures.power_plot import power_plot
from sweeps.report.figures.query_bars import query_bars
from sweeps.report.figures.strip import strip_plot
from sweeps.report.reliability import Reliability


def figures(analysis: Analysis, reliability: Reliability) -> list[Shown]:
    """Every figure for which the sweep left the data, those for everyone first."""
    drawn = [
        _heat(analysis),
        chunk_plot(analysis),
        _strip(analysis),
        _forest(analysis),
        pareto_plot(analysis),
        learning_plot(analysis),
        power_plot(analysis, reliability),
        query_bars(analysis),
    ]
    shown = [one for one in drawn if one is not None]
    return sorted(shown, key=lambda one: one.appendix)


def _heat(analysis: Analysis) -> Shown | None:
    sweep = analysis.sweep
    drawing = heat_map(sweep, analysis.cells, {one.system: one for one in analysis.primary})
    if drawing is None:
        return None
    words = f"Mean {sweep.primary} over seeds"
    if analysis.comparisons:
        words += (
            f" and, below it, the difference to {analysis.baseline.cell.label}. Blue is better, "
            f"red is worse. A dot marks a difference that is significant at {sweep.alpha:g} after "
            "the correction"
        )
    return Shown(
        "Window and stride",
        drawing,
        f"{words}. A fraction in a corner counts the seeds used of those launched where some are "
        "missing; * marks collapsed seeds, which are in the mean. A place without hatching and "
        "number has a stride larger than its window, which leaves text unread.",
    )


def _strip(analysis: Analysis) -> Shown:
    words = "One dot per training run."
    if any(one.num_used > 1 for one in analysis.cells):
        words += (
            f" The line is the {100 * (1 - analysis.sweep.alpha):g} % interval of the mean with "
            "training runs random and queries fixed (Student, from the seeds of that cell alone; "
            "it is wide with few seeds and may leave the picture)."
        )
    return Shown(
        "Every seed",
        strip_plot(analysis.sweep, analysis.cells),
        f"{words} A value beyond the axis is written at its edge. A collapsed seed counts in its "
        "mean.",
    )


def _forest(analysis: Analysis) -> Shown | None:
    drawing = forest_plot(analysis.sweep, analysis.primary, analysis.tests)
    if drawing is None:
        return None
    words = (
        f"Difference to {analysis.baseline.cell.label} with its "
        f"{100 * (1 - analysis.sweep.alpha):g} % interval when only the queries, only the training "
        "runs, or both are random. The black one decides. Intervals are not adjusted; p is, "
        f"within its family of {analysis.primary[0].family_size}."
    )
    if analysis.undecided:
        words += " Where a system has one seed, only the first interval exists."
    return Shown("Differences", drawing, words)
