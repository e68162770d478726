"""The report in sentences: the verdict, its certainty, what was lost."""

import math
from collections.abc import Sequence

from rank_core.stats.compare import CellComparison, false_positive_interval
from rank_core.stats.moderation import ENOUGH_SEEDS
from sweeps.report.analysis import Analysis
from sweeps.report.caption import copies_sentence, not_distinguishable, without_variance
from sweeps.report.clusters import num_clusters
from sweeps.report.next_step import declaration
from sweeps.report.unjudged import unjudged_sentences
from sweeps.systems.load import Sweep
from sweeps.systems.order import ROUNDING
from sweeps.systems.summary import losses, lost_counts
from sweeps.terminal.notation import (
    ONE_RUN,
    decisive_p,
    has_two_runs,
    interval_text,
    level_text,
    names_text,
    percent,
    signed,
)

_WORTH_SAYING = 0.01  # above alpha


def conclusions(analysis: Analysis) -> list[str]:
    """The best with what cannot be told from it, the verdict, how sure it is, what unjudged
    documents change, how the systems were chosen, what was lost: at most seven."""
    if analysis.sweep.serving:
        return [certainty(analysis), analysis.sweep.serving.cost]
    chosen = [confirmation(analysis), below_first_stage(analysis)]
    sentences = [
        not_distinguishable(analysis),
        answer(analysis),
        " ".join(filter(None, chosen)),
        " ".join(filter(None, [certainty(analysis), without_variance(analysis)])),
        " ".join(unjudged_sentences(analysis)),
        of_search(analysis),
        " ".join(fates(analysis)),
    ]
    return [sentence for sentence in sentences if sentence]


def fates(analysis: Analysis) -> list[str]:
    """The fates of the trials in sentences; unknown for a third party's runs."""
    sweep = analysis.sweep
    if sweep.third_party:
        return []
    stopped = (
        [f"The sweep ended early: {sweep.about.stopped.rstrip('.')}."]
        if sweep.about.stopped
        else []
    )
    count = sum(summary.num_used for summary in analysis.cells)
    rest = sum(len(summary.seeds("stopped")) for summary in analysis.cells)
    but = f" but for {rest} that ASHA stopped" if rest else ""
    begun = " that started" if sweep.about.stopped else ""
    whole = f"All {count + rest} trials{begun} finished{but}; none failed, diverged or collapsed."
    return [*stopped, *(losses(analysis.cells) or [whole])]


def of_search(analysis: Analysis) -> str:
    """How a search chose the configurations; "" for a grid."""
    sweep = analysis.sweep
    name = str(sweep.about.search.get("name"))
    return WORDS[name](sweep) if name in WORDS else ""


def fates_in_brief(analysis: Analysis) -> str:
    """`Trials: 2 failed, 1 collapsed.`; "" where every trial finished."""
    sweep = analysis.sweep
    counts = {} if sweep.third_party else lost_counts(analysis.cells)
    parts = [f"{number} {status}" for status, number in counts.items()]
    stopped = "The sweep ended early. " * bool(sweep.about.stopped)
    return f"{stopped}Trials: {', '.join(parts)}." if parts else stopped.strip()


def answer(analysis: Analysis) -> str:
    """The verdict on the sweep's question, on the primary measure."""
    sweep, label = analysis.sweep, analysis.baseline.cell.label
    if not analysis.baseline.num_used:
        means = {s.cell.label: s.mean(sweep.primary) for s in analysis.cells if s.num_used}
        best = max(means, key=means.__getitem__, default="")
        highest = best and f"The highest {sweep.primary} is {means[best]:.3f}, of {best}."
        why = f"the baseline {label} has no finished seed"
        return f"No comparison is possible: {why}. {highest or 'No system has a score.'}"
    if not analysis.primary and analysis.copies:
        return f"No comparison is possible: {copies_sentence(analysis)}"
    if not analysis.primary:
        return (
            f"No comparison is possible: only the baseline {label} has a finished seed "
            f"({sweep.primary} {analysis.baseline.mean(sweep.primary):.3f})."
        )
    decided = [c for c in analysis.primary if not math.isnan(c.p_both)]
    declared = declaration(analysis)
    if not decided:
        marked = [c for c in analysis.primary if c.p_queries_adjusted < sweep.about.alpha]
        unless = f" ({declared} says that there are no others)" if declared else ""
        verdict = _verdict(analysis, analysis.primary, marked)
        return f"For these training runs alone{unless}: {verdict}"
    text = _verdict(analysis, decided, [c for c in decided if c.significant(sweep.about.alpha)])
    if undecided := analysis.undecided:
        names = names_text([sweep.label(c.system) for c in undecided])
        has = "has" if len(undecided) == 1 else "have"
        unless = f", unless {declared} declares that there are no others" if declared else ""
        text += f" {names} {has} one training run, too few for this test{unless}."
    if any(map(has_two_runs, decided)):
        text += " Two seeds of a system cannot decide: three are needed."
    return text


def certainty(analysis: Analysis) -> str:
    """The random effects of the test and its correction; "" without a comparison."""
    return " ".join(filter(None, [scope(analysis), correction(analysis)]))


def correction(analysis: Analysis) -> str:
    """How p is corrected, and alpha; "" without a comparison."""
    sweep, compared = analysis.sweep, analysis.primary
    if not compared:
        return ""
    family = compared[0].family_size
    how = compared[0].correction
    if sweep.correction == "bh":
        how += f"; about {100 * sweep.about.alpha:g}% of the significant differences may be false"
    adjusted = f"p is corrected by {how}; the intervals of the table are not corrected"
    if family == 1:
        adjusted = "A single comparison needs no correction"
    elif sweep.correction == "none":
        adjusted = f"p is not corrected for {family} comparisons"
    return f"{adjusted}; alpha = {sweep.about.alpha:g}."


def scope(analysis: Analysis) -> str:
    """The random effects of the test, for which its conclusion holds; "" without a comparison."""
    sweep, compared = analysis.sweep, analysis.primary
    if not compared:
        return ""
    if {cell.cell for cell in sweep.cells} <= set(sweep.deterministic):
        return "The test treats queries as a random effect; the systems are deterministic."
    if all(math.isnan(c.p_both) for c in compared):
        single = [system.label for system in analysis.single]
        whose = "per system" if len(single) == len(analysis.cells) else f"of {names_text(single)}"
        return (
            f"With one seed {whose} the seed variance is unknown: the test treats queries alone "
            "as random; its conclusion is about these training runs, not the methods."
        )
    paired = " Seeds are paired: differences are taken run by run." * analysis.paired
    return (
        "The test treats queries and seeds (training runs) as random effects: its conclusion is "
        f"about new queries of {'these collections' if sweep.means else 'this collection'} and "
        f"the same methods trained again.{paired}"
    )


def confirmation(analysis: Analysis) -> str:
    """The choice that a confirmation tests, and both gains; "" for any other sweep."""
    sweep = analysis.sweep
    if not sweep.about.confirms:
        return ""
    chosen, baseline = sweep.about.confirms, sweep.label(sweep.baseline)
    text = (
        f"{chosen['label']} was chosen on dev in {chosen['sweep']} as the best of "
        f"{chosen['num_candidates']} candidates (mean {sweep.primary} {chosen['dev_mean']:.3f}), "
        f"before any run below was started. Its gain over {baseline} on {sweep.split} was "
        f"{signed(chosen['naive_gain'])} in the runs that chose it"
    )
    gain = next((c.delta for c in analysis.primary if c.system == chosen["cell"]), None)
    if gain is None:
        return f"{text}; there is no fresh one yet."
    return f"{text} and is {signed(gain)} in these fresh ones."


def _verdict(
    analysis: Analysis, compared: Sequence[CellComparison], significant: Sequence[CellComparison]
) -> str:
    """The number of systems that differ from the baseline, the direction, and the gains."""
    sweep, count = analysis.sweep, len(compared)
    clusters = num_clusters(analysis.matrix(sweep.primary))
    size = sweep.count_text(compared[0].num_queries, clusters)
    where = f"{sweep.label(sweep.baseline)} on {sweep.primary} ({size})"
    if count == 1:
        [only] = compared
        word = "better than" if only.delta > 0 else "worse than"
        how = f"significantly {word}" if significant else "not significantly different from"
        return f"{sweep.label(only.system)} is {how} {where}: {_gain(analysis, only)}."
    if not significant:
        highest = max(compared, key=lambda c: c.delta)
        extreme = "smallest loss" if highest.delta < 0 else "largest gain"
        no, alone = "No", ""
        if analysis.interpolated:  # their rows may gain more
            no, alone = "Without interpolation, no", " without it"
        return (
            f"{no} system is significantly different from {where}. The {extreme}{alone} is "
            f"{_named(analysis, [highest])}."
        )
    better = sorted((c for c in significant if c.delta > 0), key=lambda c: -c.delta)
    worse = sorted((c for c in significant if c.delta < 0), key=lambda c: c.delta)
    sides = [(better, "better"), (worse, "worse")]
    (first, word), (second, other) = sides if better else sides[::-1]
    number = f"{len(first)} of {count} systems {_is(first)}"
    if len(first) == count:
        number = "Both systems are" if count == 2 else f"All {count} systems are"
    text = f"{number} significantly {word} than {where}: {_named(analysis, first)}."
    if second:
        named = _named(analysis, second)
        return f"{text} {len(second)} {_is(second)} significantly {other}: {named}."
    return text if len(first) == count else f"{text} None is significantly {other}."


def _is(compared: Sequence[CellComparison]) -> str:
    return "is" if len(compared) == 1 else "are"


def _named(analysis: Analysis, compared: Sequence[CellComparison]) -> str:
    label = analysis.sweep.label
    gains = [f"{label(c.system)} by {_gain(analysis, c)}" for c in compared]
    return names_text(gains, most=2 if len(gains) == 2 else 1)


def _gain(analysis: Analysis, comparison: CellComparison) -> str:
    """`+0.012 (simultaneous 95% interval +0.003 to +0.021)`: the verdict beside it is corrected."""
    own = comparison.in_family
    interval = interval_text(own).removesuffix(ONE_RUN)  # the sentence says it
    kind = "simultaneous " * (own is not comparison) + level_text(analysis.sweep.about.alpha)
    return f"{signed(comparison.delta)} ({kind} interval {interval})"


def paired_t_test(analysis: Analysis) -> str:
    """The predicted false-positive rate of the test that treats the runs as fixed; "" with one
    seed, and where it is close to alpha in every comparison."""
    alpha = analysis.sweep.about.alpha
    known = [c for c in analysis.primary if not math.isnan(c.p_both)]
    worst = max(known, key=lambda c: c.predicted_false_positive_rate, default=None)
    if worst is None or worst.predicted_false_positive_rate < alpha + _WORTH_SAYING:
        return ""
    test = analysis.tests[worst.measure, worst.system]
    low, high = map(percent, false_positive_interval(test, alpha=alpha))
    # Over fewer seeds the interval says nothing.
    ends = f" ({low} to {high})" * (worst.fewest_seeds >= ENOUGH_SEEDS)
    most = "up to " * (len(known) > 1)
    return (
        "The paired t-test over queries (seeds averaged) has an estimated false-positive rate of "
        f"{most}{percent(worst.predicted_false_positive_rate)}{ends}, not "
        f"{100 * alpha:g}%."
    )


def beside_first_stage(analysis: Analysis, label: str) -> str:
    """`below BM25 by 0.089, p .012`: the row's mean on the primary measure, with p where it was
    tested; "" where the first stage is unknown."""
    sweep = analysis.sweep
    first = sweep.about.first_stage.get(sweep.primary)
    rows = [*analysis.cells, *analysis.interpolated]
    mean = next((row.mean(sweep.primary) for row in rows if row.cell.label == label), math.nan)
    if first is None or math.isnan(mean):
        return ""
    if abs(mean - first) <= ROUNDING:
        return f"equal to {sweep.first_stage_name}"
    side = "below" if mean < first else "above"
    tested = (c for c in analysis.first_stage_comparisons if c.measure == sweep.primary)
    found = next((c for c in tested if sweep.label(c.system) == label), None)
    p = f", p {decisive_p(found)}" if found else ""
    return f"{side} {sweep.first_stage_name} by {abs(mean - first):.3f}{p}"


def no_champion(analysis: Analysis, cell: str) -> str:
    """Why a cell is not a champion: it must be a confirmed winner, significantly better than the
    baseline and above the first stage on the reported split; "" where it is one."""
    sweep = analysis.sweep
    if not sweep.about.confirms:
        return "its gain is not confirmed: export the confirmation (--confirm)"
    if sweep.about.confirms.get("cell") != cell:
        return "it is not the confirmed winner"
    row = analysis.choice.system if analysis.choice else ""
    tested = (*analysis.primary, *analysis.interpolated_comparisons)
    compared = next((c for c in tested if c.system == row and c.measure == sweep.primary), None)
    if compared is None or compared.delta <= 0 or not compared.significant(sweep.about.alpha):
        gain = f": {_gain(analysis, compared)}" if compared else ""
        baseline = sweep.label(sweep.baseline)
        return f"it is not significantly better than {baseline} on {sweep.primary}{gain}"
    beside = beside_first_stage(analysis, sweep.label(row))
    if not beside.startswith("above"):
        return f"it is {beside or 'not compared with a first stage'} on {sweep.primary}"
    return ""


def below_first_stage(analysis: Analysis) -> str:
    """The cells that rank worse than the candidates they were given; "" if none does."""
    sweep = analysis.sweep
    first = sweep.about.first_stage.get(sweep.primary)
    scored = [summary for summary in analysis.cells if summary.num_used]
    if first is None:
        return ""
    # The first stage may be a cell itself, its mean summed in another order.
    below = [summary for summary in scored if first - summary.mean(sweep.primary) > ROUNDING]
    if not below:
        return ""
    who = names_text([summary.cell.label for summary in below])
    if len(below) == len(scored) > 1:
        who = "every system" if sweep.interpolated else "Every system"
    verb = "is" if len(below) in (1, len(scored)) else "are"
    alone = "Without interpolation, " if sweep.interpolated else ""
    return (
        f"{alone}{who} {verb} worse than the first stage ({sweep.primary} {first:.3f}): reranking "
        "hurt on average."
    )


def _proposals(sweep: Sweep) -> str:
    search = sweep.about.search
    chosen = f"{search['proposed']} of at most {search['num_configs']}"
    space = f" from {search['space']} points" if search["space"] else ""
    return (
        f"The configurations were proposed sequentially by {search['name']}{space} ({chosen}, "
        f"search seed {search['seed']}), from the means over seeds on dev of the earlier ones."
    )


def _race(sweep: Sweep) -> str:
    search, eliminated = sweep.about.search, sweep.about.eliminated
    racing, trials = len(search["standings"]), search["whole_grid"]
    run = search["launched_by_design"]
    state = "" if search["over"] else " The race is not over."
    if not eliminated:
        return (
            f"Race on dev: none of {racing} configurations is eliminated after "
            f"{search['num_complete']} of {search['num_seeds']} seeds ({run} of {trials} "
            f"trials).{state}"
        )
    names = [f"{sweep.label(cell)} (after {seeds})" for cell, seeds in eliminated.items()]
    lost = sum(line["left_after"] is not None and "p" not in line for line in search["standings"])
    because = f" ({lost} of them because a trial failed or diverged)" if lost else ""
    return (
        f"Race on dev: {len(eliminated)} of {racing} configurations were eliminated before they "
        f"had all {search['num_seeds']} seeds{because}: {names_text(names, 4)}. They are not "
        f"tested. The race took {run} of {trials} trials ({percent(run / trials)}).{state}"
    )


def _asha(sweep: Sweep) -> str:
    lines, stopped = sweep.about.search["standings"], sweep.about.eliminated
    lost = sum(line["reason"] == "a trial was lost" for line in lines)
    because = f" ({lost} of them because a trial failed or diverged)" if lost else ""
    over = "" if sweep.about.search["over"] else " The search is not over."
    return (
        f"ASHA on dev stopped {len(stopped)} of {len(lines)} configurations before the end of "
        f"seed {sweep.about.seeds[0]}{because}; they are not tested.{over} Which ones stop "
        "depends on the order of their reports: another run may stop others."
    )


WORDS = {"tpe": _proposals, "gp": _proposals, "race": _race, "asha": _asha}
"""{entry of `SEARCHES`: the decisions of the search in a sentence}; the others have none."""
