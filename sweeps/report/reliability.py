"""The reliability of numbers on the primary measure: seed variance, power, selection bias. None
where one seed estimates nothing.
"""

import dataclasses
import math
from dataclasses import dataclass

from rank_core.errors import BadInput
from rank_core.seeding import generator
from rank_core.stats.bootstrap import (
    RankStability,
    SelectedGain,
    crossed_weights,
    rank_stability,
    selected_gain,
)
from rank_core.stats.compare import Comparison, compare
from rank_core.stats.design import Variances, floor
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.scopes import confidence_interval, equivalence_p, variance_interval
from rank_core.stats.variance import (
    SweepComponents,
    detectable_difference,
    homogeneity,
    sweep_components,
)
from sweeps.report.analysis import Analysis, without_collapsed
from sweeps.report.factors import GridFactors, grid_factors
from sweeps.report.summary import best_on_dev, dev_means

POWER = 0.8
"""The power at which a difference is called detectable."""


@dataclass(frozen=True)
class Limits:
    """The limits of one comparison beyond its p-value."""

    system: str
    detectable: float  # smallest true difference found with `POWER`, alpha / family size
    detectable_low: float  # the same at the ends of the 95% interval of the variance
    detectable_high: float
    family_low: float  # interval of the difference that holds for all trained systems at once
    family_high: float
    equivalence_p: float  # two one-sided tests of a difference within the sweep's margin


@dataclass(frozen=True)
class DevChoice:
    """The cell with the best mean on the dev queries, which are independent of the test."""

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
    """The numbers behind the reliability section, and the tests of a grid's factors."""

    components: SweepComponents | None
    floor: float | None  # smallest difference that any number of seeds could find
    homogeneity_p: float | None
    limits: list[Limits]
    chosen_on_dev: DevChoice | None
    corrected: SelectedGain | None
    collapsed: list[WithoutCollapsed]
    factors: list[GridFactors]
    ranking: RankStability | None


def assess(analysis: Analysis) -> Reliability:
    """The reliability of the comparisons on the primary measure."""
    sweep = analysis.sweep
    matrix = analysis.matrices.get(sweep.primary)
    seeded = None if matrix is None else _seeded(matrix)
    decided = any(not math.isnan(pair.se_both) for pair in analysis.primary)
    trained = seeded is not None and sweep.baseline in seeded.cells
    components = None
    if seeded and decided:  # a baseline without seeds has no variance
        anchor = sweep.baseline if trained else seeded.cells[0]
        components = sweep_components(seeded, baseline=anchor)
    return Reliability(
        components=components,
        floor=_floor(analysis, components) if components and trained else None,
        homogeneity_p=homogeneity(seeded) if seeded and len(seeded.cells) > 1 else None,
        limits=comparison_limits(analysis),
        chosen_on_dev=_chosen_on_dev(analysis),
        corrected=_corrected(seeded, sweep.baseline) if decided and trained else None,
        collapsed=_without_collapsed(analysis),
        factors=grid_factors(analysis),
        ranking=_ranking(matrix, paired_seeds=analysis.paired),
    )


def _ranking(matrix: ScoreMatrix | None, *, paired_seeds: bool) -> RankStability | None:
    """None with fewer than two systems or without a system of several runs."""
    if matrix is None or len(matrix.cells) < 2 or max(map(len, matrix.seeds.values())) < 2:
        return None
    weights = crossed_weights(matrix, rng=generator(0, "rank stability"), paired_seeds=paired_seeds)
    return rank_stability(matrix, weights, rng=generator(0, "rankings by single runs"))


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
    """The limits of every comparison with a decision on the primary measure."""
    sweep = analysis.sweep
    limits = []
    trained = sum(
        not math.isnan(pair.se_both) and pair.system not in sweep.deterministic
        for pair in analysis.primary
    )
    for pair in analysis.primary:
        test = analysis.tests[pair.measure, pair.system]
        if not math.isnan(pair.se_both):
            detectable = detectable_difference(
                test, alpha=sweep.alpha, power=POWER, family_size=pair.family_size
            )
            per_error = detectable / test.se_both if test.se_both else 0.0
            low, high = (per_error * math.sqrt(V) for V in variance_interval(test))
            level = 1 - sweep.alpha / max(trained, 1)
            limits.append(
                Limits(
                    pair.system, detectable, low, high,
                    *confidence_interval(test, level),
                    equivalence_p(test, margin=sweep.rope),
                )
            )  # fmt: skip
    return limits


def _chosen_on_dev(analysis: Analysis) -> DevChoice | None:
    """None where the sweep has no development scores, or reports those already."""
    sweep = analysis.sweep
    if sweep.split == "dev" or sweep.dev_scores.empty or not analysis.primary:
        return None
    chosen = best_on_dev(sweep)
    return DevChoice(
        cell=chosen,
        dev_mean=dev_means(sweep)[chosen],
        num_dev_queries=int(sweep.dev_scores["query_id"].nunique()),
        comparison=next((pair for pair in analysis.primary if pair.system == chosen), None),
    )


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
            deterministic=[cell for cell in sweep.deterministic if cell in matrix.cells],
        )
        again = {pair.system: pair for pair in compared}
    touched = {system.cell.cell for system in analysis.cells if system.seeds("collapsed")}
    return [
        WithoutCollapsed(pair, again.get(pair.system))
        for pair in analysis.primary
        if touched & {pair.system, pair.baseline}
    ]
