"""Tables beside the main one: against each system's own baseline, and by query set."""

import math
from collections.abc import Mapping

from rank_core.stats.compare import Comparison
from rank_core.stats.gain import GainInterval
from sweeps.report.analysis import Analysis
from sweeps.report.notation import p_text, signed
from sweeps.report.sections.query_sets import set_means, set_sizes

_UNDEFINED = "—"


def own_rows(analysis: Analysis) -> list[dict[str, object]]:
    """Per system with a baseline of its own: the comparison on the primary measure."""
    sweep = analysis.sweep
    return [
        {
            "label": sweep.label(one.system),
            "baseline": sweep.label(one.baseline),
            "difference": signed(one.delta),
            "interval": interval_text(one),
            "p": p_text(one.p_both_adjusted),
            "gain": gain_text(one, analysis.own_gains),
            "queries": f"{one.wins}/{one.ties}/{one.losses}",
        }
        for one in analysis.own_comparisons
        if one.measure == sweep.primary
    ]


def set_rows(analysis: Analysis) -> list[tuple[str, ...]]:
    """The heading, then per system the mean over all queries and that of every query set."""
    means, sizes = set_means(analysis), set_sizes(analysis)
    if not means:
        return []
    heading = ("system", f"all ({sum(sizes.values())})")
    lines = [(*heading, *(f"{name} ({count})" for name, count in sizes.items()))]
    for one in analysis.cells:
        if one.num_used:
            own = (f"{means[one.cell.cell][name]:.3f}" for name in sizes)
            lines.append((one.cell.label, f"{one.mean(analysis.sweep.primary):.3f}", *own))
    return lines


def interval_text(one: Comparison) -> str:
    """The interval of the difference; a dash where one seed leaves none."""
    if math.isnan(one.ci_low):
        return _UNDEFINED
    return f"{signed(one.ci_low)} to {signed(one.ci_high)}"


def gain_text(one: Comparison, gains: Mapping[tuple[str, str], GainInterval]) -> dict[str, str]:
    """The relative gain and its interval; empty where the baseline's mean is 0 or a seed is one."""
    if math.isnan(one.relative_gain):
        return {"gain": _UNDEFINED, "interval": ""}
    found = gains.get((one.measure, one.system))
    return {
        "gain": f"{signed(100 * one.relative_gain, 1)} %",
        "interval": ""
        if found is None
        else f"{signed(100 * found.low, 0)} to {signed(100 * found.high, 0)}",
    }
