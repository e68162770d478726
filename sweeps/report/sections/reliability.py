"""How far the numbers of a sweep can be trusted: what its variance, its size and its choice allow.

All of it is about the primary measure. What one seed cannot tell is None here, never a guess.
"""

import dataclasses
import math
import statistics
from dataclasses import dataclass

from rank_core.errors import BadInput
from rank_core.seeding import generator
from rank_core.stats.compare import Comparison, compare
from rank_core.stats.design import Variances, floor
from rank_core.stats.equivalence import Rope, equivalence_p, rope, upper_limit
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.multiplicity import CORRECTION_NAMES
from rank_core.stats.selection import SelectedGain, expected_luck, selected_gain
from rank_core.stats.variance import (
    SweepComponents,
    detectable_difference,
    homogeneity,
    sweep_components,
)
from sweeps.report.analysis import Analysis, without_collapsed
from sweeps.report.notation import (
    MISSING,
    interval_text,
    level_text,
    p_text,
    percent,
    relation,
    signed,
)
from sweeps.report.sections.search import left_after
from sweeps.report.table import Table, table

POWER = 0.8
"""How surely a difference must be found to be called detectable."""
_ALIKE = 0.05
"""Below this p of Bartlett's test the cells scatter differently over seeds."""


@dataclass(frozen=True)
class Limits:
    """What one comparison can and cannot say beyond its p-value."""

    system: str
    detectable: float  # smallest true difference found with `POWER`, alpha / family size
    upper: float  # one-sided upper limit of the difference, level 1 - alpha
    rope: Rope
    equivalence_p: float


@dataclass(frozen=True)
class DevChoice:
    """The cell with the best mean on the development queries, which know nothing of the test."""

    cell: str
    dev_mean: float
    num_dev_queries: int
    comparison: Comparison | None  # its test result; None if the baseline itself was chosen


@dataclass(frozen=True)
class WithoutCollapsed:
    """One comparison as reported, and again without the collapsed seeds of both sides."""

    reported: Comparison
    without: Comparison | None  # None if a side has no other seed


@dataclass(frozen=True)
class Reliability:
    """Everything the section "How far to trust this" says."""

    components: SweepComponents | None
    floor: float | None  # smallest difference that any number of seeds could find
    homogeneity_p: float | None
    limits: list[Limits]
    luck: float | None
    chosen_on_dev: DevChoice | None
    corrected: SelectedGain | None
    collapsed: list[WithoutCollapsed]


def assess(analysis: Analysis) -> Reliability:
    """Judge the comparisons on the primary measure."""
    sweep = analysis.sweep
    matrix = analysis.matrices.get(sweep.primary)
    seeded = None if matrix is None else _seeded(matrix)
    known = [one for one in analysis.primary if not math.isnan(one.se_both)]
    components = (
        sweep_components(seeded, baseline=sweep.baseline)
        if seeded and known and sweep.baseline in seeded.cells
        else None
    )
    return Reliability(
        components=components,
        floor=None if components is None else _floor(analysis, components),
        homogeneity_p=homogeneity(seeded) if seeded and len(seeded.cells) > 1 else None,
        limits=comparison_limits(analysis),
        luck=(
            expected_luck([one.se_both for one in known], num_candidates=len(analysis.primary))
            if len(known) > 1
            else None
        ),
        chosen_on_dev=_chosen_on_dev(analysis),
        corrected=_corrected(seeded, sweep.baseline) if components else None,
        collapsed=_without_collapsed(analysis),
    )


def _seeded(matrix: ScoreMatrix) -> ScoreMatrix | None:
    """The cells with two seeds or more."""
    cells = tuple(cell for cell in matrix.cells if len(matrix.seeds[cell]) > 1)
    if not cells:
        return None
    return dataclasses.replace(
        matrix,
        cells=cells,
        seeds={cell: matrix.seeds[cell] for cell in cells},
        scores={cell: matrix.scores[cell] for cell in cells},
    )


def _floor(analysis: Analysis, components: SweepComponents) -> float:
    return floor(
        Variances(components.difference.sd, components.seed.sd, components.residual.sd),
        num_queries=components.num_queries,
        alpha=analysis.sweep.alpha,
        power=POWER,
        family_size=analysis.primary[0].family_size,
    )


def comparison_limits(analysis: Analysis) -> list[Limits]:
    """What every decided comparison on the primary measure can and cannot say."""
    sweep = analysis.sweep
    limits = []
    for one in analysis.primary:
        test = analysis.tests[one.measure, one.system]
        if not math.isnan(one.se_both):
            detectable = detectable_difference(
                test, alpha=sweep.alpha, power=POWER, family_size=one.family_size
            )
            limits.append(
                Limits(
                    system=one.system,
                    detectable=detectable,
                    upper=upper_limit(test, 1 - sweep.alpha),
                    rope=rope(test, margin=sweep.rope),
                    equivalence_p=equivalence_p(test, margin=sweep.rope),
                )
            )
    return limits


def _chosen_on_dev(analysis: Analysis) -> DevChoice | None:
    """None where the sweep has no development scores, or reports those already."""
    sweep = analysis.sweep
    if sweep.split == "dev" or sweep.dev_scores.empty or not analysis.primary:
        return None
    means = sweep.dev_scores.groupby(["cell", "seed"])["value"].mean().groupby("cell").mean()
    left = left_after(sweep)
    names = [one.cell for one in sweep.cells if one.cell in means.index and one.cell not in left]
    chosen = max(names, key=lambda name: float(means[name]))
    return DevChoice(
        cell=chosen,
        dev_mean=float(means[chosen]),
        num_dev_queries=int(sweep.dev_scores["query_id"].nunique()),
        comparison=next((one for one in analysis.primary if one.system == chosen), None),
    )


def _corrected(seeded: ScoreMatrix | None, baseline: str) -> SelectedGain | None:
    """The winner's gain without the luck of its choice; a choice needs two candidates."""
    if seeded is None or len(seeded.cells) < 3:
        return None
    try:
        found = selected_gain(seeded, baseline=baseline, rng=generator(0, "selected gain"))
    except BadInput:  # two seeds each and few cells: no replicate left a seed of both sides out
        return None
    # The last digits of a matrix product depend on the number of threads.
    naive, corrected = (float(f"{one:.12g}") for one in (found.naive, found.corrected))
    return dataclasses.replace(
        found, naive=naive, corrected=corrected, luck=float(f"{naive - corrected:.12g}")
    )


def _without_collapsed(analysis: Analysis) -> list[WithoutCollapsed]:
    """The comparisons that collapsed seeds touch, with and without them."""
    sweep, matrix = analysis.sweep, without_collapsed(analysis)
    again: dict[str, Comparison] = {}
    if matrix is not None and sweep.baseline in matrix.cells:
        compared = compare(
            matrix,
            baseline=sweep.baseline,
            correction=sweep.correction,
            alpha=sweep.alpha,
            paired_seeds=analysis.paired and len(set(matrix.seeds.values())) == 1,
        )
        again = {one.system: one for one in compared}
    touched = {one.cell.cell for one in analysis.cells if one.seeds("collapsed")}
    return [
        WithoutCollapsed(one, again.get(one.system))
        for one in analysis.primary
        if touched & {one.system, one.baseline}
    ]


def reliability_sentences(analysis: Analysis, found: Reliability) -> list[tuple[str, str]]:
    """(subject, sentences); what is not defined in this sweep is missing, with one reason."""
    if not analysis.primary:
        return []
    named = [
        ("Retraining", _retraining(analysis, found)),
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
        honest = f"{where}: a choice that never saw split {sweep.split} keeps the baseline."
    else:
        one = choice.comparison
        limits = (
            "its one run decides nothing"
            if math.isnan(one.ci_low)
            else f"{level_text(sweep.alpha)} interval {interval_text(one)}, "
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
    return (
        f"With {level_text(analysis.sweep.alpha)} confidence the gain of {name} is at most "
        f"{signed(limits.upper)}{share}. {_shares(limits)} "
        f"{_equivalent(limits, analysis.sweep.alpha)}"
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
