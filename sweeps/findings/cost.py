"""What systems cost, and what a cheaper one may lose."""

from sweeps.findings.analysis import Analysis
from sweeps.findings.finding import Finding, Unit
from sweeps.systems.costs import costs_of
from sweeps.systems.machines import on_cpus

LINK = "what-you-may-say"


def rows(analysis: Analysis) -> list[Finding]:
    """The cost of the choice and of the baseline, of a sweep that reads chunks once what it read,
    and the hours of each kind of device where there are several."""
    sweep, choice, costs = analysis.sweep, analysis.choice, costs_of(analysis.sweep)
    names = dict.fromkeys([choice.cell if choice else "", sweep.baseline])
    found = [
        Finding("cost", costs.unit, sweep.label(name), costs.of[name], unit=Unit.NUMBER, link=LINK)
        for name in names
        if name in costs.of
    ]
    if choice and choice.cell in costs.milliseconds:
        ms, label = costs.milliseconds[choice.cell], sweep.label(choice.cell)
        found.append(Finding("cost", "ms per query", label, ms, unit=Unit.NUMBER, link=LINK))
    if serving := sweep.serving:
        about = f"{len(serving.rows)} systems"
        read, apart = serving.read_tokens, serving.separate_tokens
        for name, count in (("read", read), ("of a run for each system", apart)):
            name = f"encoder tokens {name}"
            found.append(Finding("cost", name, about, count, unit=Unit.COUNT, link=LINK))
    for device, hours in sweep.hours.items() if len(sweep.hours) > 1 else ():
        unit = "core-hours" if on_cpus(device) else "GPU-hours"
        found.append(Finding("cost", unit, device, hours, unit=Unit.NUMBER, link=LINK))
    return found
