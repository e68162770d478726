"""The reliability of a sweep's numbers: at most six lines, each a number, its interval, and its
consequence."""

import dataclasses
import math
from typing import Any

from sweeps.report.access import access_sentence
from sweeps.report.analysis import Analysis
from sweeps.report.conclusions import paired_t_test
from sweeps.report.notation import interval_text, level_text, percent, range_text, relation, signed
from sweeps.report.reliability import POWER, Limits, Reliability
from sweeps.report.sections.section import Findings, Section

TITLE = "How reliable is this?"
_BEST = "Selection bias"
_ALIKE = 0.05
"""Below this p of Bartlett's test the systems vary unequally over seeds."""
_MOSTLY = 0.5
"""Above this share of the residual in the variance of a difference the test is conservative."""


def section(findings: Findings) -> Section:
    """The lines of the page; all numbers go to results.json."""
    judged = findings.reliability
    lines = dict(reliability_lines(findings.analysis, judged))
    results = {"reliability": {**_plain(judged), "sentences": lines}}
    opened = access_sentence(findings.accesses)  # on the page alone: a time is no result
    shown = lines | ({_BEST: f"{lines.get(_BEST, '')} {opened}".strip()} if opened else {})
    return Section(TITLE, sentences=list(shown.items()), is_folded=True, results=results)


def _plain(judged: Reliability) -> dict[str, Any]:
    plain = dataclasses.asdict(judged)
    if judged.ranking is not None:
        pairs = judged.ranking.reversals.items()
        plain["ranking"]["reversals"] = [(*pair, share) for pair, share in pairs]
    return plain


def reliability_lines(analysis: Analysis, reliability: Reliability) -> list[tuple[str, str]]:
    """(subject, sentences), of the subjects that this sweep defines."""
    if all(math.isnan(pair.p_both) for pair in analysis.primary):
        return []
    lines = [
        ("Seed variance", _seed_variance(analysis, reliability)),
        ("Detectable difference", _detectable(analysis, reliability)),
        ("Paired t-test", paired_t_test(analysis)),
        (_BEST, _choice(analysis, reliability)),
        ("Equivalence", equivalence(analysis, reliability.limits)),
        ("Ranking", _ranking(analysis, reliability)),
        ("Collapsed seeds", _collapsed(analysis, reliability)),
    ]
    return [(subject, words) for subject, words in lines if words]


def _seed_variance(analysis: Analysis, reliability: Reliability) -> str:
    """The seed variance, and whether the test holds its level under it."""
    parts, primary = reliability.components, analysis.sweep.primary
    if parts is None:
        return ""
    interval = range_text(parts.seed.low, parts.seed.high, signs=False)
    words = (
        f"Beyond the noise of {parts.num_queries} queries, seeds differ in mean {primary} by an SD "
        f"of {parts.seed.sd:.3f} ({interval}, pooled over systems)"
    )
    if reliability.homogeneity_p is not None and reliability.homogeneity_p < _ALIKE:
        deviations = {
            row.label: cell.sd_seeds
            for row in analysis.rows
            for cell in row.cells
            if cell.measure == primary and not math.isnan(cell.sd_seeds)
        }
        widest = max(deviations, key=lambda name: deviations[name])
        least = min(deviations, key=lambda name: deviations[name])
        return (
            f"{words}. The table's SDs include it and are unequal: {widest} "
            f"{deviations[widest]:.3f}, {least} {deviations[least]:.3f} (Bartlett p "
            f"{relation(reliability.homogeneity_p)}). Look at every seed: where one system is "
            "skewed or collapses, p < .05 comes up to three times too often."
        )
    S = min(pair.fewest_seeds for pair in analysis.primary)
    residual = 2 * parts.residual.sd**2 / S
    if residual > _MOSTLY * (parts.difference.sd**2 + residual):
        return (
            f"{words}. Most seed variance is within single queries, where the test is "
            "conservative: more seeds find smaller differences."
        )
    return f"{words}. Compare means over seeds, not single runs."


def _detectable(analysis: Analysis, reliability: Reliability) -> str:
    if not reliability.limits:
        return ""
    ordered = sorted(reliability.limits, key=lambda limit: limit.detectable)
    middle = ordered[(len(ordered) - 1) // 2]
    ends = range_text(middle.detectable_low, middle.detectable_high, signs=False)
    number = f"{middle.detectable:.3f}" if middle.detectable <= 1 else "more than 1"
    several = "; median comparison" if len(ordered) > 1 else ""
    text = (
        f"At the SDs observed, a true difference of {number} (95% interval {ends}{several}) "
        f"is found with {100 * POWER:.0f}% power"
    )
    more = "queries or seeds"
    if reliability.floor and reliability.floor < middle.detectable:
        text += f"; with any number of seeds, one of {reliability.floor:.3f}"
    elif reliability.floor:
        text, more = f"{text}; more seeds would not lower it", "queries"
    return f"{text}. A smaller one needs more {more} (ranksweep design)."


def _choice(analysis: Analysis, reliability: Reliability) -> str:
    """The gain of the best system corrected for its choice, and that of the best on dev."""
    sweep, choice = analysis.sweep, reliability.chosen_on_dev
    words = best_gain(analysis, reliability.limits)
    # A confirmation's choice is older; runs of a third party cannot be repeated here.
    if not words or sweep.confirms or sweep.third_party:
        return words
    best = max(analysis.primary, key=lambda pair: pair.delta)
    corrected = reliability.corrected
    if corrected is not None and len(analysis.primary) > 1:
        words += f" Corrected for its selection (bootstrap) it is {signed(corrected.corrected)}."
    if choice is not None and choice.comparison is None:
        words += f" The best on dev is the baseline ({choice.num_dev_queries} queries)."
    elif choice is not None and choice.comparison is not None and choice.cell != best.system:
        words += (
            f" The best on dev, {sweep.label(choice.cell)}, gains "
            f"{signed(choice.comparison.delta)} ({interval_text(choice.comparison)})."
        )
    return words


def best_gain(analysis: Analysis, all_limits: list[Limits]) -> str:
    """The gain of the best of several trained systems, with an interval that holds for all of them
    at once; "" without a choice."""
    best, sweep = _best(analysis, all_limits), analysis.sweep
    count = sum(limit.system not in sweep.deterministic for limit in all_limits)
    if best is None or best.system in sweep.deterministic or count < 2:
        return ""
    delta = next(pair.delta for pair in analysis.primary if pair.system == best.system)
    return (
        f"{sweep.label(best.system)}, the best of {count}, gains {signed(delta)}; its simultaneous "
        f"{level_text(sweep.alpha)} interval (Bonferroni), which allows for this choice, is "
        f"{range_text(best.family_low, best.family_high)}."
    )


def equivalence(analysis: Analysis, all_limits: list[Limits]) -> str:
    """The best system, where its gain is practically zero; "" elsewhere."""
    best, sweep = _best(analysis, all_limits), analysis.sweep
    if best is None or best.equivalence_p >= sweep.alpha:
        return ""
    return (
        f"{sweep.label(best.system)} is practically equivalent to the baseline (within "
        f"±{sweep.rope:g}: p {relation(best.equivalence_p)})."
    )


def _best(analysis: Analysis, all_limits: list[Limits]) -> Limits | None:
    delta = {pair.system: pair.delta for pair in analysis.primary}
    return max(all_limits, key=lambda limit: delta[limit.system], default=None)


def _ranking(analysis: Analysis, reliability: Reliability) -> str:
    ranking, label = reliability.ranking, analysis.sweep.label
    if ranking is None or math.isnan(ranking.tau) or len(ranking.order) < 3:
        return ""
    first = ranking.order[0]
    words = (
        f"{label(first)} has the best mean in {percent(ranking.best[first])} of bootstrap samples "
        "of seeds and queries. A ranking by single runs has a Kendall's tau of "
        f"{ranking.tau:.2f} ({ranking.tau_low:.2f} to {ranking.tau_high:.2f}) with the one above"
    )
    (better, worse), share = max(ranking.reversals.items(), key=lambda item: item[1])
    if share > 0:
        words += f"; runs of {label(better)} and {label(worse)} swap places in {percent(share)}"
    return f"{words}."


def _collapsed(analysis: Analysis, reliability: Reliability) -> str:
    """The comparison that collapsed seeds change most; results.json has the others."""
    again = [change for change in reliability.collapsed if change.without is not None]
    if not reliability.collapsed:
        return ""
    seeds = sum(len(system.seeds("collapsed")) for system in analysis.cells)
    if not again:
        return f"{seeds}, and no other seed is left: change the training settings and run again."
    changes = {
        change.reported.system: abs(change.without.delta - change.reported.delta)
        for change in again
        if change.without is not None
    }
    most = max(again, key=lambda change: changes[change.reported.system])
    assert most.without is not None
    name = analysis.sweep.label(most.reported.system)
    return (
        f"{seeds}, which count in all means. Without them the difference of {name} is "
        f"{signed(most.without.delta)} ({interval_text(most.without)}) instead of "
        f"{signed(most.reported.delta)}: change the training settings, do not drop the seeds."
    )
