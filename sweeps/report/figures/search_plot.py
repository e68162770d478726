"""The best of n cells: what a smaller search would have been expected to find on dev."""

from rank_core.stats.search_curve import search_curve
from sweeps.report.analysis import Analysis
from sweeps.report.figures.figure import BLUE, WIDTH, Shown, draw, new_figure, style


def search_plot(analysis: Analysis) -> Shown | None:
    """Expected best development value of n cells, without replacement; needs three cells, which
    were not chosen by what others had reached."""
    sweep = analysis.sweep
    if sweep.dev_scores.empty or sweep.search.get("name") in ("tpe", "gp", "asha"):
        return None
    means = sweep.dev_scores.groupby(["cell", "seed"])["value"].mean().groupby("cell").mean()
    values = [float(means[one.cell]) for one in sweep.cells if one.cell in means.index]
    if len(values) < 3:
        return None
    curve = search_curve(values)
    counts = [point.num_trials for point in curve]
    with style():
        figure = new_figure(WIDTH, 2.8)
        axes = figure.add_subplot()
        axes.plot(counts, [point.expected_best for point in curve], "-o", color=BLUE, ms=4)
        axes.set_xlim(0.5, len(values) + 0.5)
        step = -(-len(values) // 20)
        axes.set_xticks(range(1, len(values) + 1, step))
        axes.set_xlabel("cells tried")
        axes.set_ylabel(f"expected best\n{sweep.primary} on dev")
        axes.grid(color="#e6e6e6", linewidth=0.7)
        axes.set_axisbelow(True)
        drawing = draw(figure, name="search", description="expected best of n cells")
    missing = len(sweep.cells) - len(values)
    without = f" {missing} without a score left out." if missing else ""
    return Shown(
        "Best of n cells",
        drawing,
        f"Expected best mean on dev of n cells drawn from the {len(values)} that were tried "
        f"(Dodge et al. 2019, without replacement); flat at the end means that trying more of the "
        f"same kind would find little.{without}",
        appendix=True,
    )
