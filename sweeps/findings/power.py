"""The smallest true difference that the sweep would find."""

import math
from contextlib import suppress

from rank_core.errors import BadInput
from rank_core.stats.compare import CellComparison
from rank_core.stats.design import ASSURANCE, Goal, planned_detectable, planned_variances
from rank_core.stats.family import BEHRENS_FISHER
from rank_core.stats.scopes import LEAST_SEEDS, variance_interval
from rank_core.stats.variance import detectable_difference
from sweeps.findings.analysis import Analysis
from sweeps.findings.finding import Finding
from sweeps.terminal.notation import percent

LINK = "planning"
POWER = 0.8
"""The power at which a difference is called found."""


def rows(analysis: Analysis) -> list[Finding]:
    """Of the choice against its reference, with deviations at their upper limits."""
    test = analysis.chosen
    if test is None or math.isnan(limit := planned_limit(analysis, test)):
        return []
    label = analysis.sweep.label
    about = f"{label(test.system)} against {label(test.baseline)}"
    name = f"true difference found with {percent(POWER)} power"
    return [Finding("power", name, about, limit, link=LINK)]


def goal_of(pair: CellComparison, delta: float, alpha: float) -> Goal:
    """A difference to be found by the correction of this table."""
    correlation = pair.family.correlation if pair.family else 0.0
    return Goal(delta, alpha, POWER, pair.family_size, correlation)


def planned_limit(analysis: Analysis, pair: CellComparison) -> float:
    """The smallest true difference of two systems that their seeds find with `POWER`, with all
    deviations at their upper limits, as `ranksweep design` plans; where one side has no seeds with
    the variance between seeds at its limit. NaN below three seeds."""
    sweep, test, level = analysis.sweep, pair.test, 2 * ASSURANCE - 1
    if test is None or pair.fewest_seeds < LEAST_SEEDS or not test.se_both:
        return math.nan
    matrix = analysis.row_scores.tested[pair.measure]
    if pair.baseline not in analysis.fixed and math.isfinite(pair.fewest_seeds):
        both = matrix.only((pair.baseline, pair.system))
        with suppress(BadInput):
            variances = planned_variances(
                both, baseline=pair.baseline, paired_seeds=analysis.paired
            )
            S, Q = int(pair.fewest_seeds), len(both.query_ids)
            goal = goal_of(pair, 1.0, sweep.tests.alpha)
            return planned_detectable(variances, goal, num_seeds=S, num_queries=Q)
    if pair.family and pair.family.applied.p == BEHRENS_FISHER:
        return math.nan  # two parts, whose quantile no single t has
    size = pair.family.effective_size if pair.family else float(pair.family_size)
    found = detectable_difference(test, alpha=sweep.tests.alpha, power=POWER, family_size=size)
    per_error = found / test.se_both
    return float(per_error * math.sqrt(variance_interval(test, level)[1]))
