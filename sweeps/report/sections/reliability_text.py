"""The section "How far to trust this" in plain sentences, each with the name of its subject."""

import math
import statistics

from rank_core.stats.results import CORRECTION_NAMES
from sweeps.report.analysis import Analysis
from sweeps.report.notation import percent, relation, signed
from sweeps.report.sections.reliability import POWER, Limits, Trust

_ALIKE = 0.05
"""Below this p of Bartlett's test the cells scatter differently over seeds."""


def trust_sentences(analysis: Analysis, trust: Trust) -> list[tuple[str, str]]:
    """(subject, sentences); what is not defined in this sweep is left out, with one reason."""
    if not analysis.primary:
        return []
    found = [
        ("Retraining", _retraining(analysis, trust)),
        ("Smallest visible difference", _detectable(analysis, trust)),
        ("Chosen on dev", _chosen_on_dev(analysis, trust)),
        ("Luck of the winner", _luck(analysis, trust)),
        ("Size of the best gain", _size(analysis, trust)),
    ]
    return [(subject, words) for subject, words in found if words]


def _retraining(analysis: Analysis, trust: Trust) -> str:
    if trust.components is None and trust.limits:
        sweep = analysis.sweep
        fixed = sweep.baseline in sweep.deterministic
        why = "that every seed would repeat" if fixed else "only"
        return (
            f"The baseline, {sweep.label(sweep.baseline)}, is one run {why}, so the scatter over "
            "seeds is not pooled over the cells: each test below uses the seeds of its own two."
        )
    if trust.components is None:
        return (
            "With one seed per cell nothing below can say what a second training would give: "
            "seed variance, detectable difference, the luck of the winner and the size of a gain "
            "are left out. Three seeds per cell are the least, five are better."
        )
    seed = trust.components.seed
    words = (
        f"Training the same configuration again moves its mean {analysis.sweep.primary} by a "
        f"standard deviation of {seed.sd:.3f} ({seed.low:.3f} to {seed.high:.3f}, pooled over "
        f"the cells)."
    )
    if trust.homogeneity_p is None or trust.homogeneity_p >= _ALIKE:
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
        f"{words} But the cells are not alike (Bartlett p {relation(trust.homogeneity_p)}): "
        f"{widest} scatters by {deviations[widest]:.3f}, {calmest} by {deviations[calmest]:.3f}. "
        "The pooled number describes neither; each test uses the seeds of its own two cells."
    )


def _detectable(analysis: Analysis, trust: Trust) -> str:
    if not trust.limits:
        return ""
    values = sorted(one.detectable for one in trust.limits)
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
    if trust.floor is not None and trust.floor > 0:
        queries = analysis.primary[0].num_queries
        text += (
            f" On these {queries} queries no number of seeds would bring that below "
            f"{trust.floor:.3f}."
        )
    return text


def size(difference: float) -> str:
    """A difference of a measure; above 1 nothing on its scale would be seen."""
    return f"{difference:.3f}" if difference <= 1 else "more than 1"


def _chosen_on_dev(analysis: Analysis, trust: Trust) -> str:
    choice = trust.chosen_on_dev
    if choice is None or analysis.sweep.confirms:  # there the choice was made before
        return ""
    sweep = analysis.sweep
    best = max(analysis.primary, key=lambda one: one.delta)
    where = (
        f"{sweep.label(choice.cell)} has the best mean on the {choice.num_dev_queries} "
        f"development queries ({choice.dev_mean:.3f})"
    )
    if choice.comparison is None:
        honest = f"{where}: a choice that never saw split {sweep.split} keeps the baseline."
    else:
        one = choice.comparison
        limits = (
            "its one run decides nothing"
            if math.isnan(one.ci_low)
            else f"{_level(analysis)} interval {signed(one.ci_low)} to {signed(one.ci_high)}, "
            f"adjusted p {relation(one.p_both_adjusted)}"
        )
        honest = (
            f"{where}. Its difference on {sweep.split}, {signed(one.delta)} ({limits}), is the "
            f"honest answer: it was chosen without looking at {sweep.split}."
        )
    if best.system == choice.cell:
        return f"{honest} It is also the best on {sweep.split}."
    return (
        f"{honest} The best on {sweep.split}, {sweep.label(best.system)} ({signed(best.delta)}), "
        f"was found by looking there."
    )


def _luck(analysis: Analysis, trust: Trust) -> str:
    if trust.luck is None or math.isnan(trust.luck):
        return ""
    best = max(analysis.primary, key=lambda one: one.delta)
    count = len(analysis.primary)
    text = (
        f"The best of {count} equally good configurations would lead by about "
        f"{trust.luck:.3f} from luck alone; {analysis.sweep.label(best.system)} leads by "
        f"{signed(best.delta)} as the best of {count} on {analysis.sweep.split}."
    )
    found = trust.corrected
    if found is not None:
        text += (
            f" Repeating the choice on redrawn queries and seeds and measuring it on those left "
            f"out gives {signed(found.corrected)}: a cautious figure, because every redrawn choice "
            f"sees less than this sweep did."
        )
    return text


def _size(analysis: Analysis, trust: Trust) -> str:
    if not trust.limits:
        return ""
    deltas = {one.system: one for one in analysis.primary}
    best = max(trust.limits, key=lambda one: deltas[one.system].delta)
    name = analysis.sweep.label(best.system)
    level = _level(analysis)
    base = deltas[best.system].mean_baseline
    share = f" ({signed(100 * best.upper / base, 1)} % of the baseline)" if base > 0 else ""
    return (
        f"With {level} confidence the gain of {name} is at most {signed(best.upper)}{share}. "
        f"{_shares(best)} {_equivalent(best, analysis.sweep.alpha)}"
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


def correction_note(analysis: Analysis) -> str:
    """A warning where the correction holds the share of false positives, not their existence."""
    if not analysis.primary or analysis.sweep.correction != "bh":
        return ""
    count = analysis.primary[0].family_size
    return (
        f"Exploratory: {CORRECTION_NAMES['bh']} over {count} comparisons lets about "
        f"{100 * analysis.sweep.alpha:g} % of the differences it calls significant be false. "
        "Confirm a winner with fresh seeds (--confirm)."
    )


def _level(analysis: Analysis) -> str:
    return f"{100 * (1 - analysis.sweep.alpha):g} %"
