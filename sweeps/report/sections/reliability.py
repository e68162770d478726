"""How far the numbers of a sweep can be trusted, in sentences and tables."""

import dataclasses
import math
import statistics
from typing import Any

from rank_core.stats.compare import Comparison
from sweeps.report.access import access_sentence
from sweeps.report.analysis import Analysis
from sweeps.report.factors import factor_sentences, grid_factors
from sweeps.report.notation import (
    MISSING,
    interval_text,
    level_text,
    p_text,
    percent,
    relation,
    signed,
)
from sweeps.report.reliability import POWER, Limits, Reliability
from sweeps.report.sections.section import Findings, Section
from sweeps.report.table import Table, table

_LIMITS = "Variance components and limits of each comparison"
_ALIKE = 0.05
"""Below this p of Bartlett's test the cells scatter differently over seeds."""


def section(found: Findings) -> Section:
    """Limits of the comparisons, the luck of the choice, the factors of a grid."""
    analysis, judged = found.analysis, found.reliability
    factors = grid_factors(analysis)
    sentences = reliability_sentences(analysis, judged)
    results = {
        "factor_tests": [dataclasses.asdict(one) for one in factors],
        "reliability": {**_plain(judged), "sentences": dict(sentences)},
    }
    if not sentences:
        return Section("How far to trust this", results=results)
    looks = access_sentence(found.accesses)  # on the page alone: a time is no result
    collapsed = collapsed_table(analysis, judged)
    limits = [component_table(analysis, judged), limit_table(analysis, judged)]
    return Section(
        "How far to trust this",
        sentences=[
            *sentences,
            *([("Access to the test", looks)] if looks else []),
            *(("Factors before cells", text) for text in factor_sentences(analysis, factors)),
        ],
        tables=[collapsed] if collapsed else [],
        folded={_LIMITS: [one for one in limits if one]},
        results=results,
    )


def _plain(judged: Reliability) -> dict[str, Any]:
    plain = dataclasses.asdict(judged)
    if judged.ranking is not None:
        pairs = judged.ranking.reversals.items()
        plain["ranking"]["reversals"] = [(*pair, share) for pair, share in pairs]
    return plain


def reliability_sentences(analysis: Analysis, found: Reliability) -> list[tuple[str, str]]:
    """(subject, sentences); what is not defined in this sweep is missing, with one reason."""
    if not analysis.primary:
        return []
    named = [
        ("Retraining", _retraining(analysis, found)),
        ("Rank stability", _ranking(analysis, found)),
        ("Smallest visible difference", _detectable(analysis, found)),
        ("Chosen on dev", _choice_sentence(analysis, found)),
        ("Luck of the winner", _luck(analysis, found)),
        ("Size of the best gain", best_gain(analysis, found.limits)),
    ]
    return [(subject, words) for subject, words in named if words]


def _retraining(analysis: Analysis, found: Reliability) -> str:
    if found.components is None and found.limits:
        sweep = analysis.sweep
        fixed = sweep.baseline in sweep.deterministic
        why = "that every seed would repeat" if fixed else "only"
        return (
            f"The baseline, {sweep.label(sweep.baseline)}, is one run {why}, so the scatter over "
            "seeds is not pooled over the cells: each test below uses the seeds of its own two."
        )
    if found.components is None:
        return (
            "With one seed per cell nothing below can say what a second training would give: "
            "seed variance, detectable difference, the luck of the winner and the size of a gain "
            "are missing. Three seeds per cell are the least, five are better."
        )
    seed = found.components.seed
    words = (
        f"Training the same configuration again moves its mean {analysis.sweep.primary} by a "
        f"standard deviation of {seed.sd:.3f} ({seed.low:.3f} to {seed.high:.3f}, pooled over "
        f"the cells)."
    )
    if found.homogeneity_p is None or found.homogeneity_p >= _ALIKE:
        return words
    deviations = {
        row.label: cell.sd_seeds
        for row in analysis.rows
        for cell in row.cells
        if cell.measure == analysis.sweep.primary and not math.isnan(cell.sd_seeds)
    }
    widest = max(deviations, key=lambda name: deviations[name])
    calmest = min(deviations, key=lambda name: deviations[name])
    return (
        f"{words} But the cells are not alike (Bartlett p {relation(found.homogeneity_p)}): "
        f"{widest} scatters by {deviations[widest]:.3f}, {calmest} by {deviations[calmest]:.3f}. "
        "The pooled number describes neither; each test uses the seeds of its own two cells."
    )


def _ranking(analysis: Analysis, found: Reliability) -> str:
    ranking = found.ranking
    if ranking is None or math.isnan(ranking.tau):
        return ""
    label = analysis.sweep.label
    first = ranking.order[0]
    text = (
        f"{label(first)} has the highest mean in {percent(ranking.best[first])} of redrawn seeds "
        "and queries."
    )
    if len(ranking.order) > 2:
        text += (
            " A ranking by one run of each system agrees with the one above by Kendall's tau "
            f"{ranking.tau:.2f} ({ranking.tau_low:.2f} to {ranking.tau_high:.2f} in 95 % of draws)."
        )
    (better, worse), share = max(ranking.reversals.items(), key=lambda item: item[1])
    if share > 0:
        text += (
            f" Two runs of {label(better)} and {label(worse)} are in the other order in "
            f"{percent(share)} of pairs."
        )
    return text


def _detectable(analysis: Analysis, found: Reliability) -> str:
    if not found.limits:
        return ""
    values = sorted(one.detectable for one in found.limits)
    middle = statistics.median(values)
    family = analysis.primary[0].family_size
    text = (
        f"A true difference of {size(middle)} would be found in {100 * POWER:.0f} % of such sweeps"
    )
    notes = []
    if len(values) > 1:
        notes.append(
            f"median of {len(values)} comparisons, {size(values[0])} to {size(values[-1])}"
        )
    if family > 1:
        notes.append(f"at alpha / {family}, which the correction asks of the smallest p")
    text += f" ({'; '.join(notes)})." if notes else "."
    if found.floor is not None and found.floor > 0:
        queries = analysis.primary[0].num_queries
        text += (
            f" On these {queries} queries no number of seeds would bring that below "
            f"{found.floor:.3f}."
        )
    return text


def size(difference: float) -> str:
    """A difference of a measure; above 1 nothing on its scale would be seen."""
    return f"{difference:.3f}" if difference <= 1 else "more than 1"


def _choice_sentence(analysis: Analysis, found: Reliability) -> str:
    choice = found.chosen_on_dev
    if choice is None or analysis.sweep.confirms:  # there the choice was made before
        return ""
    sweep = analysis.sweep
    best = max(analysis.primary, key=lambda one: one.delta)
    where = (
        f"{sweep.label(choice.cell)} has the best mean on the {choice.num_dev_queries} "
        f"development queries ({choice.dev_mean:.3f})"
    )
    if choice.comparison is None:
        found_there = f"{where}: a choice that never saw split {sweep.split} keeps the baseline."
    else:
        one = choice.comparison
        limits = (
            "its one run decides nothing"
            if math.isnan(one.ci_low)
            else f"{level_text(sweep.alpha)} interval {interval_text(one)}, "
            f"adjusted p {relation(one.p_both_adjusted)}"
        )
        found_there = (
            f"{where}. Its difference on {sweep.split}, {signed(one.delta)} ({limits}), owes "
            f"nothing to the {sweep.split} queries, but its runs were chosen as well: --confirm "
            "repeats it with fresh seeds."
        )
    if best.system == choice.cell:
        return f"{found_there} It is also the best on {sweep.split}."
    return (
        f"{found_there} The best on {sweep.split}, {sweep.label(best.system)} "
        f"({signed(best.delta)}), was found by looking there."
    )


def _luck(analysis: Analysis, found: Reliability) -> str:
    if found.luck is None or math.isnan(found.luck):
        return ""
    best = max(analysis.primary, key=lambda one: one.delta)
    count = len(analysis.primary)
    text = (
        f"The best of {count} equally good configurations would lead by about "
        f"{found.luck:.3f} from luck alone; {analysis.sweep.label(best.system)} leads by "
        f"{signed(best.delta)} as the best of {count} on {analysis.sweep.split}."
    )
    corrected = found.corrected
    if corrected is not None:
        text += (
            f" Repeating the choice on redrawn queries and seeds and measuring it on those left "
            f"out gives {signed(corrected.corrected)}: a cautious figure, because every redrawn "
            "choice sees less than this sweep did."
        )
    return text


def best_gain(analysis: Analysis, all_limits: list[Limits]) -> str:
    """How large the best gain can be at most, and whether it is practically none; "" without one
    that is decided."""
    if not all_limits:
        return ""
    compared = {one.system: one for one in analysis.primary}
    limits = max(all_limits, key=lambda one: compared[one.system].delta)
    name = analysis.sweep.label(limits.system)
    base = compared[limits.system].mean_baseline
    share = f" ({signed(100 * limits.upper / base, 1)} % of the baseline)" if base > 0 else ""
    count = len(analysis.primary)
    chosen = f" This takes {name} as named beforehand; it is the best of {count}." * (count > 1)
    return (
        f"With {level_text(analysis.sweep.alpha)} confidence the gain of {name} is at most "
        f"{signed(limits.upper)}{share}. {_shares(limits)} "
        f"{_equivalent(limits, analysis.sweep.alpha)}{chosen}"
    ).strip()


def _shares(one: Limits) -> str:
    """Where the pivot puts its mass; parts that round to nothing are not mentioned."""
    margin, shares = one.rope.margin, one.rope
    parts = [
        f"{percent(share)} on {what}"
        for share, what in (
            (shares.above, f"a gain above {margin:g}"),
            (shares.within, f"a difference within ±{margin:g}"),
            (shares.below, "a loss beyond that"),
        )
        if share >= 0.01
    ]
    return f"Of the confidence, the data put {_joined(parts)}."


def _equivalent(one: Limits, alpha: float) -> str:
    """The verdict on practical equality, where anybody might think of it."""
    p = relation(one.equivalence_p)
    if one.equivalence_p < alpha:
        return f"It is practically equal to the baseline (two one-sided tests, p {p})."
    if one.rope.within + one.rope.below < alpha:
        return ""
    return f"That it is practically equal to the baseline is not shown (p {p})."


def _joined(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def component_table(analysis: Analysis, found: Reliability) -> Table | None:
    """The variance components, in units of the measure; None with one seed per cell."""
    parts = found.components
    if parts is None:
        return None
    named = (
        ("a training run, in its mean", "σ_S", parts.seed),
        ("a training run, on one query beyond that", "σ_E", parts.residual),
        ("a query, in how much a cell differs from the baseline", "σ_D", parts.difference),
    )
    return table(
        ("what differs from one … to the next", "symbol", "standard deviation", "95 % interval"),
        [
            (words, symbol, f"{one.sd:.4f}", f"{one.low:.4f} to {one.high:.4f}")
            for words, symbol, one in named
            if not math.isnan(one.sd)
        ],
        caption=f"In units of {analysis.sweep.primary}, pooled over the cells with two seeds or "
        "more; intervals are those of chi-square and say how little few seeds know.",
    )


def limit_table(analysis: Analysis, found: Reliability) -> Table | None:
    """Per comparison what it can and cannot say; None where no comparison is decided."""
    if not found.limits:
        return None
    by_system = {one.system: one for one in analysis.primary}
    alpha, margin = analysis.sweep.alpha, f"±{analysis.sweep.rope:g}"
    lines = []
    for limits in found.limits:
        one = by_system[limits.system]
        rate = one.predicted_false_positive_rate
        lines.append(
            (
                analysis.sweep.label(limits.system),
                signed(one.delta),
                size(limits.detectable),
                signed(limits.upper),
                p_text(limits.equivalence_p),
                MISSING if math.isnan(rate) else f"{100 * rate:.1f} %",
            )
        )
    level = level_text(alpha)
    return table(
        (
            "system",
            "difference",
            "smallest detectable",
            f"upper limit ({level}, one-sided)",
            f"p of equivalence ({margin})",
            "paired t-test wrong in",
        ),
        lines,
        caption="Smallest detectable: the true difference that a sweep of this size finds in 80 % "
        f"of cases after the correction. Upper limit: with {level} confidence the true difference "
        f"is no larger. Equivalence: two one-sided tests of a difference within {margin}. "
        "Last column: how often the paired t-test over queries (seeds averaged) would call two "
        f"equal methods different, instead of {100 * alpha:g} %.",
    )


def collapsed_table(analysis: Analysis, found: Reliability) -> Table | None:
    """Per touched comparison seeds, difference and p as reported, then without collapsed seeds."""
    if not found.collapsed:
        return None
    what = ("seeds, system / baseline", "difference", "p")
    return table(
        ("system", *what, *(f"without collapsed: {one}" for one in what)),
        [
            (
                analysis.sweep.label(one.reported.system),
                *_result(one.reported),
                *_result(one.without),
            )
            for one in found.collapsed
        ],
        title="With and without collapsed seeds",
        caption="A collapse is a result of its configuration and counts above. The right side "
        "answers another question: how good a configuration is when its training happens to "
        "succeed.",
    )


def _result(one: Comparison | None) -> tuple[str, str, str]:
    if one is None:
        return "no seed left", "", ""
    seeds = f"{one.num_seeds_system} / {one.num_seeds_baseline}"
    return seeds, signed(one.delta), p_text(one.p_both_adjusted)
