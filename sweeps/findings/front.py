"""The front of the measure and the costs of `--objective`."""

from collections.abc import Iterable
from typing import Any

from sweeps.findings.analysis import Analysis
from sweeps.findings.dominance import Gap, Point
from sweeps.findings.finding import Finding, Unit
from sweeps.store.trial_costs import COST_UNITS

LINK = "the-front-of-quality-and-cost"


def rows(analysis: Analysis) -> list[Finding]:
    """The systems on the front with their costs and what each gains over the best that costs no
    more; the significantly dominated ones with the system that beats each; the rest by name."""
    front, sweep = analysis.front, analysis.sweep
    found = []
    for point in (point for point in front if point.on_front):
        label, costs = sweep.label(point.system), (costs_text(point),)
        found.append(
            Finding("front", "on the front", label, point.mean, unit=Unit.SCORE, names=costs,
                    link=LINK)
        )  # fmt: skip
        if point.step:
            name = f"gain over {sweep.label(point.step.other)}, which costs no more"
            found.append(_difference(name, label, point.step))
    for point in front:
        if point.dominated:
            name = f"significantly dominated by {sweep.label(point.dominated.other)}"
            found.append(_difference(name, sweep.label(point.system), point.dominated))
    open_ = [point for point in front if not (point.on_front or point.dominated)]
    if open_:
        names = tuple(sweep.label(point.system) for point in open_)
        name = "behind the front, not significantly dominated"
        found.append(
            Finding("front", name, value=len(names), unit=Unit.COUNT, names=names, link=LINK)
        )
    return found


def costs_text(point: Point) -> str:
    """`152 encoder tokens per document, 3.1 ms per query`."""
    amounts: Iterable[tuple[str, float]] = point.costs.items()
    return ", ".join(
        f"{value:,.0f} {COST_UNITS[cost]}" if value >= 100 else f"{value:.3g} {COST_UNITS[cost]}"
        for cost, value in amounts
    )


def front_results(analysis: Analysis) -> dict[str, Any]:
    """The goals of the sweep and its front, for results.json; empty without goals."""
    about = analysis.sweep.about
    goals = {"objectives": about.objectives, "at_most": about.at_most,
             "cost_weights": about.cost_weights}  # fmt: skip
    found: dict[str, Any] = {"goals": goals} if any(goals.values()) else {}
    if analysis.front:
        found["front"] = [vars(point) | _gaps(point) for point in analysis.front]
    return found


def _gaps(point: Point) -> dict[str, Any]:
    gaps = {"dominated": point.dominated, "step": point.step}
    return {name: gap and vars(gap) for name, gap in gaps.items()}


def _difference(name: str, about: str, gap: Gap) -> Finding:
    return Finding("front", name, about, gap.delta, gap.low, gap.high, gap.p, link=LINK)
