"""Power: which difference more seeds would make visible, and which no seeds ever will."""

from rank_core.stats.design import Variances, detectable_curve
from sweeps.report.analysis import Analysis
from sweeps.report.figures.figure import BLUE, GREY, INK, WIDTH, Shown, draw, new_figure, style
from sweeps.report.reliability import POWER, Reliability

_MOST_SEEDS = 15


def power_plot(analysis: Analysis, reliability: Reliability) -> Shown | None:
    """The detectable difference against the number of seeds, with this sweep's seed variances."""
    found = reliability.components
    if found is None or reliability.floor is None:
        return None
    sweep, family = analysis.sweep, analysis.primary[0].family_size
    used = sorted({one.num_used for one in analysis.cells if one.num_used > 1})
    seeds = list(range(2, max(_MOST_SEEDS, *used) + 1))
    curves = {
        name: detectable_curve(
            Variances(found.difference.sd, sd, found.residual.sd),
            seeds=seeds,
            num_queries=found.num_queries,
            alpha=sweep.alpha,
            power=POWER,
            family_size=family,
        )
        for name, sd in (
            ("estimate", found.seed.sd), ("low", found.seed.low), ("high", found.seed.high),
        )
    }  # fmt: skip
    values = {name: [value for _, value in curve] for name, curve in curves.items()}
    if not max(values["high"]):  # nothing varies
        return None
    with style():
        figure = new_figure(WIDTH, 3.0)
        axes = figure.add_subplot()
        axes.plot(
            seeds, values["estimate"], "-o", color=BLUE, ms=3.5, label="this sweep's seed variance"
        )
        axes.fill_between(
            seeds, values["low"], values["high"], color=BLUE, alpha=0.15, linewidth=0,
            label="its 95 % interval",
        )  # fmt: skip
        axes.axhline(reliability.floor, color=GREY, linestyle=":", label="floor: seeds without end")
        for count in used:
            axes.plot(
                count, values["estimate"][count - 2], "o", ms=9, mfc="none", mec=INK, mew=1.5,
                label="seeds of this sweep" if count == used[0] else None,
            )  # fmt: skip
        # Two seeds may need a difference so large that the rest would lie on the axis.
        axes.set_ylim(0, 1.15 * max(values["estimate"][min(1, len(seeds) - 1)], reliability.floor))
        axes.set_xlim(1.5, seeds[-1] + 0.5)
        axes.set_xticks(seeds)
        axes.set_xlabel("seeds per cell")
        axes.set_ylabel(f"detectable difference\nin {sweep.primary}")
        axes.grid(color="#e6e6e6", linewidth=0.7)
        axes.set_axisbelow(True)
        figure.legend(loc="outside upper left", ncols=4, frameon=False, fontsize=8)
        drawing = draw(figure, name="power", description="detectable difference by seeds")
    corrected = f" at alpha / {family}" if family > 1 else ""
    return Shown(
        "Power",
        drawing,
        f"The true difference to the baseline that is found in {100 * POWER:.0f} % of sweeps"
        f"{corrected} with {found.num_queries} queries, by seeds per cell (pooled variances, "
        "unpaired seeds). A comparison whose own seeds scatter more needs more.",
        appendix=True,
    )
