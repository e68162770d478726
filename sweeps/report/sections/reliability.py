"""The reliability of a sweep's numbers in three sentences; results.json has all of them."""

import dataclasses
import math
from typing import Any

from sweeps.report.access import access_sentence
from sweeps.report.analysis import Analysis
from sweeps.report.notation import level_text, percent, range_text, relation, signed
from sweeps.report.reliability import POWER, Limits, Reliability, WithoutCollapsed
from sweeps.report.sections.section import Findings, Section

_ALIKE = 0.05
"""Below this p of Bartlett's test the systems vary unequally over seeds."""


def section(findings: Findings) -> Section:
    """All numbers, for results.json."""
    judged = findings.reliability
    plain: dict[str, Any] = dataclasses.asdict(judged)
    if judged.ranking is not None:
        pairs = judged.ranking.reversals.items()
        plain["ranking"]["reversals"] = [(*pair, share) for pair, share in pairs]
    return Section("", results={"reliability": plain})


def reliability_sentences(findings: Findings) -> list[str]:
    """The seed variance with the power, the gain of the best system, and its place; none where one
    seed estimates nothing."""
    analysis, judged = findings.analysis, findings.reliability
    if all(math.isnan(pair.p_both) for pair in analysis.primary):
        return []
    sentences = [
        seed_variance(analysis, judged),
        best_gain(analysis, judged.limits, judged),
        _stability(analysis, judged),
    ]
    return [sentence for sentence in sentences if sentence]


def opened(findings: Findings) -> list[str]:
    """How often test values were read; on the page alone, because a time is no result."""
    return [sentence] if (sentence := access_sentence(findings.accesses)) else []


def seed_variance(analysis: Analysis, judged: Reliability) -> str:
    """The SD of seeds, its warnings, and the difference that the sweep could find."""
    parts, primary = judged.components, analysis.sweep.primary
    if parts is None:
        return ""
    interval = range_text(parts.seed.low, parts.seed.high, signs=False)
    words = (
        f"Beyond the noise of {parts.num_queries} queries, seeds differ in mean {primary} by an SD "
        f"of {parts.seed.sd:.3f} ({interval}, pooled over systems)"
    )
    if judged.homogeneity_p is not None and judged.homogeneity_p < _ALIKE:
        words += f", unequally (Bartlett p {relation(judged.homogeneity_p)}): look at every seed"
    if judged.limits:
        ordered = sorted(judged.limits, key=lambda limit: limit.detectable)
        middle = ordered[(len(ordered) - 1) // 2]
        number = f"{middle.detectable:.3f}" if middle.detectable <= 1 else "more than 1"
        words += f"; a true difference of {number} is found with {100 * POWER:.0f}% power"
    return f"{words}.{_collapsed(analysis, judged.collapsed)}"


def _collapsed(analysis: Analysis, collapsed: list[WithoutCollapsed]) -> str:
    """The comparison that collapsed seeds change most."""
    changes = {
        change.reported.system: (abs(again.delta - change.reported.delta), again.delta)
        for change in collapsed
        if (again := change.without) is not None
    }
    if not changes:
        return ""
    most = max(changes, key=lambda system: changes[system][0])
    return (
        f" Without collapsed seeds the difference of {analysis.sweep.label(most)} is "
        f"{signed(changes[most][1])}: change the training settings, do not drop the seeds."
    )


def best_gain(analysis: Analysis, limits: list[Limits], judged: Reliability | None = None) -> str:
    """The gain of the best of several trained systems, with an interval that holds for all of them
    at once, its correction for the choice, and its equivalence; "" without a choice."""
    best, sweep = analysis.best, analysis.sweep
    own = next((limit for limit in limits if best and limit.system == best.system), None)
    count = sum(limit.system not in sweep.deterministic for limit in limits)
    if best is None or own is None or best.system in sweep.deterministic:
        return ""
    words = []
    if count > 1:
        words.append(
            f"{sweep.label(best.system)}, the best of {count}, gains {signed(best.delta)}; its "
            f"simultaneous {level_text(sweep.alpha)} interval (Bonferroni), which allows for this "
            f"choice, is {range_text(own.family_low, own.family_high)}"
        )
        # A confirmation's choice is older.
        if judged and judged.corrected and not sweep.confirms:
            gain = signed(judged.corrected.corrected)
            words.append(f"corrected for its selection (bootstrap) the gain is {gain}")
    if own.equivalence_p < sweep.alpha:
        words.append(
            f"{sweep.label(best.system)} is practically equivalent to the baseline (within "
            f"±{sweep.rope:g}: p {relation(own.equivalence_p)})"
        )
    return f"{'; '.join(words)}." if words else ""


def _stability(analysis: Analysis, judged: Reliability) -> str:
    """How often the first system is first when seeds and queries are drawn again."""
    ranking = judged.ranking
    if ranking is None or math.isnan(ranking.tau) or len(ranking.order) < 3:
        return ""
    first = ranking.order[0]
    return (
        f"{analysis.sweep.label(first)} has the best mean in {percent(ranking.best[first])} of "
        "bootstrap samples of seeds and queries; a ranking by single runs has a Kendall's tau of "
        f"{ranking.tau:.2f} ({ranking.tau_low:.2f} to {ranking.tau_high:.2f}) with that by means."
    )
