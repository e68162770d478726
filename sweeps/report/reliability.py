"""The reliability of numbers on the primary measure: seed variance, power, selection bias, the
factors of a grid. None where one seed estimates nothing; `results.json` has every number."""

import dataclasses
import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rank_core.errors import BadInput
from rank_core.seeding import generator
from rank_core.stats.bootstrap import (
    RankStability,
    SelectedGain,
    crossed_weights,
    rank_stability,
    selected_gain,
)
from rank_core.stats.compare import CellComparison, scope_test_of
from rank_core.stats.design import (
    ASSURANCE,
    Goal,
    Pairing,
    pairing_gain,
    planned_detectable,
    planned_variances,
)
from rank_core.stats.factors import FactorTest, factor_tests
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.scopes import LEAST_SEEDS, ScopeTest, equivalence_p, variance_interval
from rank_core.stats.variance import (
    SweepComponents,
    detectable_difference,
    homogeneity,
    sweep_components,
)
from sweeps.report.analysis import Analysis
from sweeps.systems.load import Sweep
from sweeps.systems.summary import crossed_grids
from sweeps.terminal.notation import level_text, percent, range_text, relation, signed

POWER = 0.8
"""The power at which a difference is called detectable."""
_ALIKE = 0.05
"""Below this p of Bartlett's test the systems vary unequally over seeds."""
_SHOWN = 0.0005  # the smallest SD that is not printed as 0.000


@dataclass(frozen=True)
class Limits:
    """The limits of one comparison beyond its p-value."""

    system: str
    detectable: float  # smallest true difference found with `POWER`, alpha / family size
    detectable_low: float  # the same at the ends of the 95% interval of the variance
    detectable_high: float
    planned: float  # the same with the deviations at their upper limits; NaN below three seeds
    equivalence_p: float  # two one-sided tests of a difference within the sweep's margin


@dataclass(frozen=True)
class BetweenBest:
    """The smallest true difference found, likewise, between the two best trained systems other than
    the baseline: they are often more alike than either and the baseline."""

    systems: tuple[str, str]
    detectable: float
    planned: float  # as in `Limits`


@dataclass(frozen=True)
class GridFactors:
    """The tests of one grid on the primary measure."""

    grid: str
    num_cells: int
    tests: list[FactorTest]


@dataclass(frozen=True)
class Reliability:
    """The numbers behind the reliability section, and the tests of a grid's factors."""

    components: SweepComponents | None
    homogeneity_p: float | None
    limits: list[Limits]
    between_best: BetweenBest | None
    corrected: SelectedGain | None
    pairing: Pairing | None
    factors: list[GridFactors]
    ranking: RankStability | None


def assess(analysis: Analysis) -> Reliability:
    """The reliability of the comparisons on the primary measure."""
    sweep = analysis.sweep
    matrix = analysis.tested.get(sweep.primary)
    seeded = None if matrix is None else _seeded(matrix)
    decided = any(not math.isnan(pair.se_both) for pair in analysis.primary)
    trained = seeded is not None and sweep.baseline in seeded.cells
    components: SweepComponents | None = None
    # Any trained cell may anchor the components of seeds and residual, which are pooled over all
    # cells.
    if seeded and decided:  # a baseline without seeds has no variance
        anchor = sweep.baseline if trained else seeded.cells[0]
        components = sweep_components(seeded, baseline=anchor)
    return Reliability(
        components=components,
        homogeneity_p=homogeneity(seeded) if seeded and len(seeded.cells) > 1 else None,
        limits=comparison_limits(analysis),
        between_best=_between_best(analysis),
        corrected=_corrected(seeded, sweep.baseline) if decided and trained else None,
        pairing=pairing_of(analysis),
        factors=grid_factors(analysis),
        ranking=_ranking(matrix, paired_seeds=analysis.paired),
    )


def pairing_of(analysis: Analysis) -> Pairing | None:
    """What paired seeds gain on the primary measure; None without a decision on it."""
    sweep, decided = analysis.sweep, [c for c in analysis.primary if not math.isnan(c.p_both)]
    if not decided:
        return None
    matrix = analysis.matrix(sweep.primary)
    return pairing_gain(
        matrix,
        goal_of(decided[0], 1.0, sweep.about.alpha),
        baseline=sweep.baseline,
        num_queries=len(matrix.query_ids),
    )


def pairing_sentence(sweep: Sweep, found: Pairing | None, *, paired: bool) -> str:
    """The correlation of runs that share a seed, and what pairing gains where that is no accident;
    "" where it is not known. `paired` tells whether the tests use the pairing."""
    if found is None:
        return ""
    own = found.correlation
    text = (
        f"Means of runs with the same seed correlate by {signed(own.r, 2)} between systems (95% "
        f"interval {signed(own.low, 2)} to {signed(own.high, 2)}, {own.num_cells} systems, "
        f"{own.num_seeds} seeds)"
    )
    if own.low > 0:
        return (
            f"{text}: a difference found with {100 * POWER:.0f}% power is "
            f"{_detectable(found.paired)} with paired seeds and {_detectable(found.independent)} "
            "with independent ones, at the deviations as measured."
        )
    if paired:
        return f"{text}, which does not show that pairing gains anything."
    if sweep.third_party or sweep.about.paired_seeds:
        return ""
    return (
        f"{text}: they share no randomness. With training.paired_seeds=true they share the order "
        "of the data and the negatives, and a report says what that gains."
    )


def _ranking(matrix: ScoreMatrix | None, *, paired_seeds: bool) -> RankStability | None:
    """None with fewer than two systems or without a system of several runs."""
    if matrix is None or len(matrix.cells) < 2 or max(map(len, matrix.seeds.values())) < 2:
        return None
    weights = crossed_weights(matrix, rng=generator(0, "rank stability"), paired_seeds=paired_seeds)
    return rank_stability(matrix, weights, rng=generator(0, "rankings by single runs"))


def _seeded(matrix: ScoreMatrix) -> ScoreMatrix | None:
    """The cells with two seeds or more."""
    cells = [cell for cell in matrix.cells if len(matrix.seeds[cell]) > 1]
    return matrix.only(cells) if cells else None


def comparison_limits(analysis: Analysis) -> list[Limits]:
    """The limits of every comparison with a decision on the primary measure."""
    sweep = analysis.sweep
    limits = []
    for pair in (pair for pair in analysis.primary if not math.isnan(pair.se_both)):
        test, size = analysis.tests[pair.measure, pair.system], _shares(pair)
        detectable = detectable_difference(
            test, alpha=sweep.about.alpha, power=POWER, family_size=size
        )
        per_error = detectable / test.se_both if test.se_both else math.nan
        low, high = (per_error * math.sqrt(variance) for variance in variance_interval(test))
        equivalence = equivalence_p(test, margin=sweep.about.rope)
        planned = planned_limit(analysis, pair, test)
        limits.append(Limits(pair.system, detectable, low, high, planned, equivalence))
    return limits


def _shares(pair: CellComparison) -> float:
    """The number of comparisons that share alpha as the correction of this table counts them."""
    return pair.family.effective_size if pair.family else float(pair.family_size)


def goal_of(pair: CellComparison, delta: float, alpha: float) -> Goal:
    """A difference to be found by the correction of this table."""
    correlation = pair.family.correlation if pair.family else 0.0
    return Goal(delta, alpha, POWER, pair.family_size, correlation)


def planned_limit(analysis: Analysis, pair: CellComparison, test: ScopeTest) -> float:
    """The smallest true difference of two systems that their seeds find with `POWER`, with all
    deviations at their upper limits, as `ranksweep design` plans; where one side has no seeds with
    the variance between seeds at its limit. NaN below three seeds."""
    sweep, level = analysis.sweep, 2 * ASSURANCE - 1
    if pair.fewest_seeds < LEAST_SEEDS or not test.se_both:
        return math.nan
    matrix = analysis.matrix(pair.measure)
    own = matrix.only((pair.baseline, pair.system))
    with suppress(BadInput):
        variances = planned_variances(own, baseline=pair.baseline, paired_seeds=analysis.paired)
        S, Q = int(pair.fewest_seeds), len(own.query_ids)
        goal = goal_of(pair, 1.0, sweep.about.alpha)
        return planned_detectable(variances, goal, num_seeds=S, num_queries=Q)
    found = detectable_difference(
        test, alpha=sweep.about.alpha, power=POWER, family_size=_shares(pair)
    )
    per_error = found / test.se_both
    return float(per_error * math.sqrt(variance_interval(test, level)[1]))


def _between_best(analysis: Analysis) -> BetweenBest | None:
    """None with fewer than two such systems of two runs or more, and where nothing varies."""
    sweep = analysis.sweep
    trained = [pair for pair in analysis.primary if pair.system not in sweep.deterministic]
    decided = [pair for pair in trained if not math.isnan(pair.p_both)]
    if len(decided) < 2:
        return None
    best, second = sorted(decided, key=lambda pair: -pair.mean_system)[:2]
    pair = best.system, second.system
    matrix = analysis.matrix(best.measure)
    test = scope_test_of(matrix, pair, paired_seeds=analysis.paired, deterministic=())
    size = _shares(best)
    found = detectable_difference(test, alpha=sweep.about.alpha, power=POWER, family_size=size)
    compared = dataclasses.replace(
        best, baseline=second.system, num_seeds_baseline=second.num_seeds_system
    )
    planned = planned_limit(analysis, compared, test)
    return None if math.isnan(found) else BetweenBest(pair, found, planned)


def _corrected(seeded: ScoreMatrix | None, baseline: str) -> SelectedGain | None:
    """The winner's gain without its selection bias; a selection needs two candidates."""
    if seeded is None or len(seeded.cells) < 3:
        return None
    try:
        gain = selected_gain(seeded, baseline=baseline, rng=generator(0, "selected gain"))
    except BadInput:  # two seeds each and few cells: no replicate without a seed of both sides
        return None
    # The last digits of a matrix product depend on the number of threads.
    naive, corrected = (float(f"{value:.12g}") for value in (gain.naive, gain.corrected))
    return dataclasses.replace(
        gain, naive=naive, corrected=corrected, luck=float(f"{naive - corrected:.12g}")
    )


def grid_factors(analysis: Analysis) -> list[GridFactors]:
    """Every crossed grid; cells without two seeds are excluded."""
    matrix = analysis.tested.get(analysis.sweep.primary)
    if matrix is None:
        return []
    factors = []
    for grid in crossed_grids(analysis.sweep, analysis.cells):
        levels = {
            system.cell.cell: {"window": window, "stride": stride}
            for (window, stride), system in grid.cells.items()
            if len(matrix.seeds.get(system.cell.cell, ())) > 1
        }
        if all(len({own[name] for own in levels.values()}) > 1 for name in ("window", "stride")):
            tests = factor_tests(matrix, levels=levels)
            factors.append(GridFactors(grid.title, len(levels), tests))
    return factors


def factor_text(factors: list[GridFactors]) -> str:
    """A sentence per grid: p of every factor that the grid can separate from the others, then p of
    any difference at all."""
    sentences = []
    for grid in factors:
        known = [test for test in grid.tests if not math.isnan(test.p)]
        tests = ", ".join(f"{test.factor} p {relation(test.p)}" for test in known)
        sentences.append(f"{grid.grid if len(factors) > 1 else 'Factors'}: {tests}.")
    return " ".join(sentences)


def reliability_results(judged: Reliability) -> dict[str, Any]:
    """All numbers, for results.json."""
    plain = dataclasses.asdict(judged)
    if judged.ranking is not None:
        pairs = judged.ranking.reversals.items()
        plain["ranking"]["reversals"] = [(*pair, share) for pair, share in pairs]
    return plain


def reliability_sentences(analysis: Analysis, judged: Reliability) -> list[str]:
    """The seed variance with the power, and the gain of the best system; none where one seed
    estimates nothing."""
    if all(math.isnan(pair.p_both) for pair in analysis.primary):
        return []
    variance = seed_variance(analysis, judged)
    with_power = " ".join([variance, *power(analysis, judged)]) if variance else ""
    return [*filter(None, [with_power, best_gain(analysis, judged.limits, judged)])]


def seed_variance(analysis: Analysis, judged: Reliability) -> str:
    """The SD of seeds with its warnings; "" where one seed estimates nothing."""
    parts, primary = judged.components, analysis.sweep.primary
    if parts is None:
        return ""
    interval = range_text(parts.seed.low, parts.seed.high, signs=False)
    clusters = "clusters of " * (analysis.matrix(primary).by_query is not None)
    noise = f"{parts.num_queries} {clusters}queries"
    words = (
        f"Beyond the noise of {noise}, seeds differ in mean {primary} by an SD "
        f"of {parts.seed.sd:.3f} ({interval}, pooled over systems)"
    )
    p, seeds = judged.homogeneity_p, analysis.matrices[primary].seeds.values()
    if p is not None and p < _ALIKE and parts.seed.sd >= _SHOWN and 2 not in map(len, seeds):
        words += f", unequally (Bartlett p {relation(p)}): look at every seed"
    return f"{words}."


def power(analysis: Analysis, judged: Reliability) -> list[str]:
    """The differences that the sweep could find, in sentences; none where two seeds cannot say
    it."""
    label, baseline = analysis.sweep.label, analysis.sweep.baseline
    limits = sorted(
        (limit.planned, label(limit.system))
        for limit in judged.limits
        if not math.isnan(limit.planned)
    )
    if not limits:
        return []
    ends = dict.fromkeys((limits[0], limits[-1]))
    found = " to ".join(f"{_detectable(limit)} ({system})" for limit, system in ends)
    sentences = [
        f"A true difference from {label(baseline)} is found with {100 * POWER:.0f}% power if it is "
        f"{found}."
    ]
    between = judged.between_best
    if between and not math.isnan(between.planned):
        first, second = map(label, between.systems)
        limit = _detectable(between.planned)
        sentences.append(f"A difference between {first} and {second} is found if it is {limit}.")
    upper = f"{100 * ASSURANCE:.0f}%"
    return [
        *sentences,
        f"This assumes standard deviations at their upper {upper} limits, as `ranksweep design` "
        "does.",
    ]


def _detectable(difference: float) -> str:
    return f"{difference:.3f}" if difference <= 1 else "more than 1"


def best_gain(analysis: Analysis, limits: list[Limits], judged: Reliability | None = None) -> str:
    """The gain of the best of several trained systems, with an interval that holds for all of them
    at once, its correction for the choice, and its equivalence; "" without a choice."""
    sweep = analysis.sweep
    best = max(analysis.primary, key=lambda pair: pair.delta, default=None)
    own = next((limit for limit in limits if best and limit.system == best.system), None)
    count = sum(limit.system not in sweep.deterministic for limit in limits)
    if best is None or own is None or best.system in sweep.deterministic:
        return ""
    words = []
    if count > 1:
        words.append(
            f"{sweep.label(best.system)}, the best of {count}, gains {signed(best.delta)}. Its "
            f"simultaneous {level_text(sweep.about.alpha)} interval, which allows for this choice, "
            f"is {range_text(best.family_low, best.family_high)}"
        )
        # A confirmation's choice is older.
        if judged and judged.corrected and not sweep.about.confirms:
            gain = signed(judged.corrected.corrected)
            words.append(f"Corrected for its selection (bootstrap), the gain is {gain}")
    if own.equivalence_p < sweep.about.alpha:
        words.append(
            f"{sweep.label(best.system)} is practically equivalent to the baseline (within "
            f"±{sweep.about.rope:g}: p {relation(own.equivalence_p)})"
        )
    return f"{'. '.join(words)}." if words else ""


def stability(analysis: Analysis, judged: Reliability) -> str:
    """How often the first system is first when seeds and queries are drawn again; "" for fewer than
    three systems."""
    ranking = judged.ranking
    if ranking is None or math.isnan(ranking.tau) or len(ranking.order) < 3:
        return ""
    first = ranking.order[0]
    return (
        f"{analysis.sweep.label(first)} has the best mean in {percent(ranking.best[first])} of "
        "bootstrap samples of seeds and queries."
    )
