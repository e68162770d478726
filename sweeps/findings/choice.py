"""How the choice was made."""

from sweeps.findings.analysis import Analysis
from sweeps.findings.finding import Finding, Unit
from sweeps.store.trial_costs import COST_UNITS
from sweeps.systems.choice import over_limits
from sweeps.systems.load import Sweep

LINK = "what-you-may-say"


def rows(analysis: Analysis) -> list[Finding]:
    """Its mean where it was chosen, the number of candidates, the weights beside the first stage,
    and of a confirmation the gain of before."""
    sweep, choice = analysis.sweep, analysis.choice
    if choice is None:
        return []
    where = f"mean on {choice.split}, which chose"
    found = [
        Finding("choice", where, choice.label, choice.mean, unit=Unit.SCORE, link=LINK),
        Finding("choice", "candidates", value=choice.num_candidates, unit=Unit.COUNT, link=LINK),
    ]
    found += _rule(sweep)
    for row in sweep.interpolated:
        if row.name == choice.system and row.alphas:
            name = f"weight of the model beside {sweep.first_stage_name}, by seed"
            found.append(Finding("choice", name, row.label, names=(row.alphas_text,), link=LINK))
    if confirms := sweep.about.confirms:
        name = f"gain over {sweep.label(sweep.baseline)} in {confirms['sweep']}, which chose"
        gain = float(confirms["naive_gain"])
        found.append(Finding("choice", name, str(confirms["label"]), gain, link=LINK))
    return found


def _rule(sweep: Sweep) -> list[Finding]:
    """The limits and weights of costs, and the systems that are out for a limit."""
    found = [
        Finding("choice", f"limit: {COST_UNITS[cost]}", "all systems", most,
                unit=Unit.NUMBER, link=LINK)
        for cost, most in sweep.about.at_most.items()
    ]  # fmt: skip
    found += [
        Finding("choice", f"weight of a unit: {COST_UNITS[cost]}", "all systems", weight,
                unit=Unit.NUMBER, link=LINK)
        for cost, weight in sweep.about.cost_weights.items()
    ]  # fmt: skip
    rows = {cell.cell for cell in sweep.cells} | {row.name for row in sweep.interpolated}
    out = tuple(sweep.label(name) for name in over_limits(sweep) if name in rows)
    if out:
        found.append(Finding("choice", "out: over a limit", value=len(out), unit=Unit.COUNT,
                             names=out, link=LINK))  # fmt: skip
    return found
