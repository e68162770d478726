"""What the choice gains beside the headline: after allowing for the choice, over the baseline, and
by the first stage."""

import math

from rank_core.stats.compare import CellComparison
from sweeps.findings.analysis import Analysis
from sweeps.findings.finding import Finding

LINK = "how-reliable-is-this"


def rows(analysis: Analysis) -> list[Finding]:
    """The gain after allowing for the choice, that over the baseline, and what mixing adds."""
    choice, sweep = analysis.choice, analysis.sweep
    if choice is None:
        return []
    found = []
    if analysis.chosen and not math.isnan(gain := analysis.gain_after_choice):
        name = f"gain over {sweep.label(analysis.chosen.baseline)}, after allowing for the choice"
        found.append(Finding("effect", name, choice.label, gain, link=LINK))
    row = next((row for row in analysis.rows if row.name == choice.system), None)
    test = row.test(sweep.primary) if row else None
    if test and test is not analysis.chosen and analysis.first_stage:
        found.append(_gain(f"gain over {sweep.label(test.baseline)}", choice.label, test))
    for pair in analysis.own_model_comparisons:
        if pair.system == choice.system and pair.measure == sweep.primary:
            name = f"gain by {sweep.first_stage_name} over {sweep.label(pair.baseline)}"
            found.append(_gain(name, choice.label, pair))
    return found


def _gain(name: str, about: str, test: CellComparison) -> Finding:
    tested = test.in_family
    ends = tested.ci_low, tested.ci_high
    return Finding(
        "effect", name, about, test.delta, *ends, test.p_both_adjusted, link="one-comparison"
    )
