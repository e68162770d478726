"""The measure against the limit on the number of chunks."""

from sweeps.report.analysis import Analysis
from sweeps.report.figures.figure import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    WIDTH,
    Shown,
    draw,
    grid,
    legend,
    new_figure,
    style,
)
from sweeps.report.notation import level_text
from sweeps.report.summary import CellSummary

MAX_CHUNKS = "chunking.max_chunks"
_COLOURS = (BLUE, ORANGE, "#009e73", "#cc79a7", INK)


def chunk_plot(analysis: Analysis) -> Shown | None:
    """One curve per group of cells, with a band; only where the sweep changes `max_chunks`."""
    sweep = analysis.sweep
    if MAX_CHUNKS not in sweep.swept:
        return None
    scored = [
        system
        for system in analysis.cells
        if system.num_used and MAX_CHUNKS in system.cell.settings
    ]
    limits = sorted({_limit(system) for system in scored}, key=lambda limit: limit or float("inf"))
    if len(limits) < 2:
        return None
    by_cell = {pair.system: pair for pair in analysis.primary}
    groups = list(dict.fromkeys(system.cell.group for system in scored))
    with style():
        figure = new_figure(WIDTH, 3.0)
        axes = figure.add_subplot()
        for number, group in enumerate(groups):
            colour = _COLOURS[number % len(_COLOURS)]
            own = sorted(
                (system for system in scored if system.cell.group == group),
                key=lambda system: limits.index(_limit(system)),
            )
            places = [limits.index(_limit(system)) for system in own]
            means = [system.mean(sweep.primary) for system in own]
            axes.plot(places, means, "-o", color=colour, ms=5, label=group or None)
            low, high = [], []
            for system, mean in zip(own, means, strict=True):
                pair = by_cell.get(system.cell.cell)
                low.append(mean if pair is None else pair.mean_baseline + pair.ci_low)
                high.append(mean if pair is None else pair.mean_baseline + pair.ci_high)
            axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
        if analysis.baseline.num_used:
            axes.axhline(
                analysis.baseline.mean(sweep.primary), color=GREY, linewidth=1,
                linestyle=(0, (5, 3)), label="baseline mean",
            )  # fmt: skip
        axes.set_xticks(range(len(limits)), [str(limit) if limit else "all" for limit in limits])
        axes.set_xlabel("chunks of a document, at most")
        axes.set_ylabel(f"{sweep.primary} on {sweep.split}")
        grid(axes)
        legend(figure)
        drawing = draw(
            figure, name="chunks", description=f"line plot: {sweep.primary} by number of chunks"
        )
    return Shown(
        "Number of chunks",
        drawing,
        f"Band: {level_text(sweep.alpha)} interval of the difference from "
        f"{analysis.baseline.cell.label}, around its mean.",
    )


def _limit(system: CellSummary) -> int:
    """0 reads every chunk."""
    return int(system.cell.settings[MAX_CHUNKS])
