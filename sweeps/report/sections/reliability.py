"""How far the numbers of a sweep can be trusted: at most six lines, each a number, its interval,
and what to do about it."""

import dataclasses
import math
from typing import Any

from sweeps.report.access import access_sentence
from sweeps.report.analysis import Analysis
from sweeps.report.conclusions import paired_t_test
from sweeps.report.notation import interval_text, level_text, percent, range_text, relation, signed
from sweeps.report.reliability import POWER, Limits, Reliability
from sweeps.report.sections.section import Findings, Section

TITLE = "How far to trust this"
_BEST = "Best of the table"
_ALIKE = 0.05
"""Below this p of Bartlett's test the systems scatter differently over seeds."""
_MOSTLY = 0.5
"""From this share of the residual in the variance of a difference on, the test is cautious."""


def section(found: Findings) -> Section:
    """What the sweep's variance, size and choice allow; all numbers go to results.json."""
    judged = found.reliability
    lines = dict(reliability_lines(found.analysis, judged))
    results = {"reliability": {**_plain(judged), "sentences": lines}}
    looks = access_sentence(found.accesses)  # on the page alone: a time is no result
    shown = lines | ({_BEST: f"{lines.get(_BEST, '')} {looks}".strip()} if lines and looks else {})
    return Section(TITLE, sentences=list(shown.items()), is_folded=True, results=results)


def _plain(judged: Reliability) -> dict[str, Any]:
    plain = dataclasses.asdict(judged)
    if judged.ranking is not None:
        pairs = judged.ranking.reversals.items()
        plain["ranking"]["reversals"] = [(*pair, share) for pair, share in pairs]
    return plain


def reliability_lines(analysis: Analysis, found: Reliability) -> list[tuple[str, str]]:
    """(subject, words); what is not defined in this sweep is missing, with one reason."""
    if not analysis.primary:
        return []
    if all(math.isnan(one.p_both) for one in analysis.primary):
        return [
            (
                "Retraining",
                "With one seed per system nothing is known about a second training. Train three "
                "seeds for one planned comparison, five for a table.",
            )
        ]
    named = [
        ("Retraining", _retraining(analysis, found)),
        ("Detectable difference", _detectable(analysis, found)),
        ("Paired t-test", paired_t_test(analysis)),
        (_BEST, _choice(analysis, found)),
        ("Ranking", _ranking(analysis, found)),
        ("Collapsed seeds", _collapsed(analysis, found)),
    ]
    return [(subject, words) for subject, words in named if words]


def _retraining(analysis: Analysis, found: Reliability) -> str:
    """The seed variance, and what of it the test does not hold its level under."""
    parts, primary = found.components, analysis.sweep.primary
    if parts is None:
        return ""
    words = (
        f"A new seed moves a mean {primary} by a standard deviation of {parts.seed.sd:.3f} "
        f"({range_text(parts.seed.low, parts.seed.high, signs=False)}, pooled): "
    )
    if found.homogeneity_p is not None and found.homogeneity_p < _ALIKE:
        deviations = {
            row.label: cell.sd_seeds
            for row in analysis.rows
            for cell in row.cells
            if cell.measure == primary and not math.isnan(cell.sd_seeds)
        }
        widest = max(deviations, key=lambda name: deviations[name])
        calmest = min(deviations, key=lambda name: deviations[name])
        return (
            f"{words}but {widest} by {deviations[widest]:.3f}, {calmest} by "
            f"{deviations[calmest]:.3f} (Bartlett p {relation(found.homogeneity_p)}). Look at "
            "every seed: where one side is skewed or collapses, p < .05 comes up to three times "
            "too often."
        )
    S = min(one.fewest_seeds for one in analysis.primary)
    residual = 2 * parts.residual.sd**2 / S
    if residual > _MOSTLY * (parts.difference.sd**2 + residual):
        return (
            f"{words}most of what a seed changes is noise on single queries, under which the test "
            "is cautious. More seeds find more."
        )
    return f"{words}compare means over seeds, never single runs."


def _detectable(analysis: Analysis, found: Reliability) -> str:
    if not found.limits:
        return ""
    ordered = sorted(found.limits, key=lambda one: one.detectable)
    middle = ordered[(len(ordered) - 1) // 2]
    ends = range_text(middle.detectable_low, middle.detectable_high, signs=False)
    number = f"{middle.detectable:.3f}" if middle.detectable <= 1 else "more than 1"
    several = ", median comparison" if len(ordered) > 1 else ""
    text = (
        f"A true difference of {number} ({ends}{several}) is found in {100 * POWER:.0f} % of such "
        "sweeps. Plan a smaller one with python -m sweeps design"
    )
    if found.floor:
        text += f"; more seeds alone reach {found.floor:.3f}"
    return f"{text}."


def _choice(analysis: Analysis, found: Reliability) -> str:
    """The gain of the winner as that of a winner, and of the choice that looked at dev alone."""
    sweep, choice = analysis.sweep, found.chosen_on_dev
    words = best_gain(analysis, found.limits)
    # A confirmation's choice was made before; runs of a third party cannot be repeated here.
    if not words or sweep.confirms or sweep.third_party:
        return words
    best = max(analysis.primary, key=lambda one: one.delta)
    corrected = found.corrected
    if corrected is not None and len(analysis.primary) > 1:
        words += f" Corrected for the choice (bootstrap) it is {signed(corrected.corrected)}."
    if choice is not None and choice.comparison is None:
        words += f" The best on dev is the baseline ({choice.num_dev_queries} queries)."
    elif choice is not None and choice.comparison is not None and choice.cell != best.system:
        words += (
            f" The best on dev, {sweep.label(choice.cell)}, gains "
            f"{signed(choice.comparison.delta)} ({interval_text(choice.comparison)})."
        )
    return f"{words} --confirm repeats the choice on dev with fresh seeds."


def best_gain(analysis: Analysis, all_limits: list[Limits]) -> str:
    """The gain of the best system as that of the best of all, and whether it is practically none;
    "" without one that is decided."""
    if not all_limits:
        return ""
    compared, sweep = {one.system: one for one in analysis.primary}, analysis.sweep
    limits = max(all_limits, key=lambda one: compared[one.system].delta)
    name, delta = sweep.label(limits.system), compared[limits.system].delta
    ends = range_text(limits.family_low, limits.family_high)
    count = len(analysis.primary)
    best = f", the best of {count}," if count > 1 else ""
    held = f" for all {count} at once" if count > 1 else ""
    words = f"{name}{best} gains {signed(delta)} ({ends} with {level_text(sweep.alpha)}{held})"
    if limits.equivalence_p < sweep.alpha:
        p = relation(limits.equivalence_p)
        words += f", practically nothing (within ±{sweep.rope:g}: p {p})"
    return f"{words}."


def _ranking(analysis: Analysis, found: Reliability) -> str:
    ranking, label = found.ranking, analysis.sweep.label
    if ranking is None or math.isnan(ranking.tau):
        return ""
    first = ranking.order[0]
    words = (
        f"{label(first)} is first in {percent(ranking.best[first])} of redrawn seeds and queries"
    )
    if len(ranking.order) > 2:
        words += (
            "; rankings by single runs agree with the one above by Kendall's tau "
            f"{ranking.tau:.2f} ({ranking.tau_low:.2f} to {ranking.tau_high:.2f})"
        )
    (better, worse), share = max(ranking.reversals.items(), key=lambda item: item[1])
    if share > 0:
        words += f"; runs of {label(better)} and {label(worse)} swap places in {percent(share)}"
    return f"{words}. Rank by means over seeds."


def _collapsed(analysis: Analysis, found: Reliability) -> str:
    """The comparison that collapsed seeds change most; the others are in results.json."""
    again = [one for one in found.collapsed if one.without is not None]
    if not found.collapsed:
        return ""
    seeds = sum(len(one.seeds("collapsed")) for one in analysis.cells)
    if not again:
        return f"{seeds}, and no other seed is left to compare: change the training and run again."
    changes = {
        one.reported.system: abs(one.without.delta - one.reported.delta)
        for one in again
        if one.without is not None
    }
    most = max(again, key=lambda one: changes[one.reported.system])
    assert most.without is not None
    name = analysis.sweep.label(most.reported.system)
    return (
        f"{seeds}, which count in all means. Without them {name} differs by "
        f"{signed(most.without.delta)} ({interval_text(most.without)}) instead of "
        f"{signed(most.reported.delta)}: a configuration that collapses needs other training "
        "settings, not fewer seeds."
    )
