"""The small tables of the section "How far to trust this", rounded for reading."""

import math

from rank_core.stats.compare import Comparison
from rank_core.stats.variance import Component
from sweeps.report.analysis import Analysis
from sweeps.report.notation import p_text, signed
from sweeps.report.sections.reliability import Trust
from sweeps.report.sections.reliability_text import size

_UNDEFINED = "—"


def component_rows(analysis: Analysis, trust: Trust) -> list[tuple[str, str, str, str]]:
    """(what varies, index of its sigma, standard deviation, interval), in the measure's units."""
    found = trust.components
    if found is None:
        return []
    named = (
        ("a training run, in its mean", "S", found.seed),
        ("a training run, on one query beyond that", "E", found.residual),
        ("a query, in how much a cell differs from the baseline", "D", found.difference),
    )
    return [
        (words, symbol, f"{one.sd:.4f}", _interval(one))
        for words, symbol, one in named
        if not math.isnan(one.sd)
    ]


def _interval(one: Component) -> str:
    return f"{one.low:.4f} to {one.high:.4f}"


def limit_rows(analysis: Analysis, trust: Trust) -> list[tuple[str, ...]]:
    """Per comparison: difference, detectable difference, upper limit, false-positive rate."""
    by_system = {one.system: one for one in analysis.primary}
    rows: list[tuple[str, ...]] = []
    for limits in trust.limits:
        one = by_system[limits.system]
        rate = one.predicted_false_positive_rate
        rows.append(
            (
                analysis.sweep.label(limits.system),
                signed(one.delta),
                size(limits.detectable),
                signed(limits.upper),
                _UNDEFINED if math.isnan(rate) else f"{100 * rate:.1f} %",
            )
        )
    return rows


def collapsed_rows(analysis: Analysis, trust: Trust) -> list[tuple[str, ...]]:
    """Per touched comparison: difference and p as reported, then without collapsed seeds."""
    return [
        (analysis.sweep.label(one.reported.system), *_result(one.reported), *_result(one.without))
        for one in trust.collapsed
    ]


def _result(one: Comparison | None) -> tuple[str, str, str]:
    if one is None:
        return "no seed left", "", ""
    seeds = f"{one.num_seeds_system} / {one.num_seeds_baseline}"
    return seeds, signed(one.delta), p_text(one.p_both_adjusted)
