"""How the choice was made."""

from sweeps.findings.analysis import Analysis
from sweeps.findings.finding import Finding, Unit

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
    for row in sweep.interpolated:
        if row.name == choice.system and row.alphas:
            name = f"weight of the model beside {sweep.first_stage_name}, by seed"
            found.append(Finding("choice", name, row.label, names=(row.alphas_text,), link=LINK))
    if confirms := sweep.about.confirms:
        name = f"gain over {sweep.label(sweep.baseline)} in {confirms['sweep']}, which chose"
        gain = float(confirms["naive_gain"])
        found.append(Finding("choice", name, str(confirms["label"]), gain, link=LINK))
    return found
