"""The report in sentences: the answer, what was chosen or lost on the way."""

import math

from rank_core.stats.compare import Comparison, false_positive_interval
from rank_core.stats.multiplicity import CORRECTION_NAMES
from sweeps.report.analysis import Analysis
from sweeps.report.notation import interval_text, level_text, names_text, percent, signed
from sweeps.report.search import search_sentences
from sweeps.report.sections.attempts import attempts_sentences
from sweeps.report.summary import losses

_WORTH_SAYING = 0.01  # above alpha
_ROUNDING = 1e-9
"""What two means of the same values may differ by."""


def conclusions(analysis: Analysis) -> list[str]:
    """One sentence or two for each: the answer, the search, the fate of the trials."""
    return [
        answer(analysis),
        *([confirmed] if (confirmed := confirmation(analysis)) else []),
        *search_sentences(analysis.sweep),
        *([below] if (below := below_first_stage(analysis)) else []),
        *_fates(analysis),
        *attempts_sentences(analysis.sweep),
        *([note] if (note := correction_note(analysis)) else []),
    ]


def _fates(analysis: Analysis) -> list[str]:
    """What became of the trials; of the runs of a third party nobody here knows."""
    if analysis.sweep.third_party:
        return []
    return losses(analysis.cells) or [_all_finished(analysis)]


def answer(analysis: Analysis) -> str:
    """What the sweep says about its question, on the primary measure."""
    sweep, label = analysis.sweep, analysis.baseline.cell.label
    if not analysis.baseline.num_used:
        return (
            f"No comparison is possible: the baseline {label} has no finished seed. "
            f"{_best(analysis)}"
        ).strip()
    if not analysis.primary:
        return (
            f"No comparison is possible: only the baseline {label} has a finished seed "
            f"({sweep.primary} {analysis.baseline.mean(sweep.primary):.3f})."
        )
    decided = [one for one in analysis.primary if not math.isnan(one.p_both)]
    if not decided:
        return _conditional_answer(analysis)
    text = _decided_answer(analysis, decided)
    if analysis.undecided:
        names = names_text([sweep.label(one.system) for one in analysis.undecided])
        text += f" One seed cannot decide about {names}."
    return text


def confirmation(analysis: Analysis) -> str:
    """What a confirmation confirms, and both gains side by side; "" for any other sweep."""
    sweep = analysis.sweep
    if not sweep.confirms:
        return ""
    chosen, baseline = sweep.confirms, sweep.label(sweep.baseline)
    text = (
        f"This is a confirmation with fresh seeds: {chosen['label']} was chosen on dev in "
        f"{chosen['sweep']} (mean {sweep.primary} {chosen['dev_mean']:.3f}, the best of "
        f"{chosen['num_candidates']} candidates) and fixed before any run below was started."
    )
    naive = f"{chosen['naive_gain']:+.3f}"
    found = next((one for one in analysis.primary if one.system == chosen["cell"]), None)
    if found is None:
        return f"{text} Its gain over {baseline} there was {naive}; here there is none yet."
    return (
        f"{text} Its gain over {baseline} was {naive} on {sweep.split} in the runs it was chosen "
        f"from; in the fresh ones it is {found.delta:+.3f}."
    )


def _decided_answer(analysis: Analysis, decided: list[Comparison]) -> str:
    sweep = analysis.sweep
    significant = [one for one in decided if one.significant(sweep.alpha)]
    better = sorted((one for one in significant if one.delta > 0), key=lambda one: -one.delta)
    worse = sorted((one for one in significant if one.delta < 0), key=lambda one: one.delta)
    where = f"On {sweep.primary} ({sweep.count_text(decided[0].num_queries)})"
    family = f"{CORRECTION_NAMES[sweep.correction]} over {decided[0].family_size}"
    rule = f"queries and seeds random, alpha = {sweep.alpha:g}, {family}"
    baseline = sweep.label(sweep.baseline)
    if not significant:
        highest = max(decided, key=lambda one: one.delta)
        return (
            f"{where} no system is significantly different from {baseline} ({rule}); the highest "
            f"is {_difference(analysis, highest)}."
        )
    parts = []
    for found, word in ((better, "better"), (worse, "worse")):
        if found:
            verb = "is" if len(found) == 1 else "are"
            named = names_text([_difference(analysis, one) for one in found], most=2)
            if len(decided) == 1:
                parts.append(f"{named} {verb} {word} than {baseline}")
                continue
            parts.append(f"{len(found)} of {len(decided)} {verb} {word} than {baseline}: {named}")
        elif len(decided) > 1:
            parts.append(f"none is {word}")
    return f"{where}, {'; '.join(parts)} ({rule})."


def _conditional_answer(analysis: Analysis) -> str:
    """With one seed the runs are part of the claim, and the sentence says so."""
    sweep = analysis.sweep
    marked = [one for one in analysis.primary if one.p_queries_adjusted < sweep.alpha]
    return (
        f"With one seed per system nothing is known about retraining, so these letters are "
        f"conditional on one training run: with only the queries random, {len(marked)} of "
        f"{len(analysis.primary)} systems differ from {sweep.label(sweep.baseline)} on "
        f"{sweep.primary} ({sweep.split_text}). {_best(analysis)}"
    )


def _best(analysis: Analysis) -> str:
    primary = analysis.sweep.primary
    scored = [one for one in analysis.cells if one.num_used]
    if not scored:
        return "No system has a score."
    best = max(scored, key=lambda one: one.mean(primary))
    return f"The highest {primary} is {best.mean(primary):.3f}, of {best.cell.label}."


def _difference(analysis: Analysis, one: Comparison) -> str:
    return (
        f"{analysis.sweep.label(one.system)} ({signed(one.delta)}, "
        f"{level_text(analysis.sweep.alpha)} interval {interval_text(one)})"
    )


def paired_t_test(analysis: Analysis) -> str:
    """The predicted false-positive rate of the test that takes the runs as fixed; "" where it is
    hardly above alpha in every comparison, and with one seed."""
    alpha = analysis.sweep.alpha
    known = [one for one in analysis.primary if not math.isnan(one.p_both)]
    worst = max(known, key=lambda one: one.predicted_false_positive_rate, default=None)
    if worst is None or worst.predicted_false_positive_rate < alpha + _WORTH_SAYING:
        return ""
    test = analysis.tests[worst.measure, worst.system]
    low, high = map(percent, false_positive_interval(test, alpha=alpha))
    most = "up to " * (len(known) > 1)
    return (
        "The paired t-test over queries (seeds averaged) would call two equal systems different "
        f"in {most}{percent(worst.predicted_false_positive_rate)} of cases ({low} to {high}) "
        f"instead of {100 * alpha:g} %: cite p and upper-case letters."
    )


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


def below_first_stage(analysis: Analysis) -> str:
    """Which cells rank worse than the candidates they were given; "" if none does."""
    sweep = analysis.sweep
    first = sweep.first_stage.get(sweep.primary)
    scored = [one for one in analysis.cells if one.num_used]
    if first is None:
        return ""
    # The first stage may be a cell itself, its mean summed in another order.
    below = [one for one in scored if first - one.mean(sweep.primary) > _ROUNDING]
    if not below:
        return ""
    if len(below) == len(scored):
        who = "Every system" if len(scored) > 1 else below[0].cell.label
    else:
        who = names_text([one.cell.label for one in below])
    verb = "lies" if len(below) in (1, len(scored)) else "lie"
    return (
        f"{who} {verb} below the first stage ({sweep.primary} {first:.3f}): reranking made the "
        "order of the candidates worse."
    )


def _all_finished(analysis: Analysis) -> str:
    count = sum(one.num_used for one in analysis.cells)
    rest = sum(len(one.seeds("stopped")) for one in analysis.cells)
    why = "stopped by design" if analysis.sweep.search.get("over", True) else "that rest at a rung"
    but = f" but for {rest} {why}" if rest else ""
    return f"All {count + rest} trials finished{but}; none failed, diverged or collapsed."
