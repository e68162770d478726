"""Second looks at the primary measure: effect sizes, other tests of the same question, and what
reporting only the best seed would have printed. None of them decides anything."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rank_core.errors import BadInput
from rank_core.seeding import generator
from rank_core.stats.bootstrap import BootstrapInterval, best_of, crossed_weights
from rank_core.stats.effect_size import (
    Superiority,
    probability_of_superiority,
    standardised_difference,
)
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.multiplicity import CORRECTIONS
from rank_core.stats.permutation import max_t
from rank_core.stats.pooled import PooledSeeds, moderated_scope_test, pooled_seeds
from rank_core.stats.sensitivity import signed_rank
from rank_core.stats.variance import Component, cell_components
from sweeps.report.analysis import Analysis

NUM_PERMUTATIONS = 4000
"""Enough for a second opinion: a p of .05 is known to within .01."""


@dataclass(frozen=True)
class Effect:
    """How large one difference is, in units that do not depend on the measure."""

    system: str
    standardised: float  # d_z, per query on means over seeds
    superiority: Superiority  # that a run of the system beats a run of the baseline
    zero_variance: bool  # the same difference on every query: no test means anything


@dataclass(frozen=True)
class OtherTests:
    """Adjusted p-values of one comparison; the first two have the queries scope only."""

    system: str
    p_max_t: float
    p_signed_rank: float
    p_pooled: float  # queries and runs random, seed variance shrunk to the sweep's; may be NaN


@dataclass(frozen=True)
class CellSeeds:
    """What the seeds of one cell say of its training."""

    cell: str
    seed: Component  # sigma_S
    num_seeds: int
    best: BootstrapInterval  # the expected best of `num_seeds` runs


@dataclass(frozen=True)
class SecondLook:
    """Everything the folded tables of the page show."""

    effects: list[Effect]
    tests: list[OtherTests]
    pooled: PooledSeeds | None
    not_pooled: str  # why there is none; "" if there is
    cells: list[CellSeeds]


def second_look(analysis: Analysis) -> SecondLook:
    """All second looks; lists are empty where the sweep has no comparison."""
    matrix = analysis.matrices.get(analysis.sweep.primary)
    if matrix is None or not analysis.primary:
        return SecondLook([], [], None, "no comparison", [])
    pooled, reason = _pooled(analysis, matrix)
    return SecondLook(
        effects=_effects(analysis, matrix),
        tests=_tests(analysis, matrix, pooled),
        pooled=pooled,
        not_pooled=reason,
        cells=_cells(matrix),
    )


def _effects(analysis: Analysis, matrix: ScoreMatrix) -> list[Effect]:
    tests, num_queries = analysis.primary_tests, len(matrix.query_ids)
    return [
        Effect(
            system=one.system,
            standardised=standardised_difference(tests[one.system], num_queries=num_queries),
            superiority=probability_of_superiority(
                matrix.scores[one.system], matrix.scores[one.baseline]
            ),
            zero_variance=tests[one.system].zero_variance,
        )
        for one in analysis.primary
    ]


def _pooled(analysis: Analysis, matrix: ScoreMatrix) -> tuple[PooledSeeds | None, str]:
    """One seed variance for all cells where that is allowed, else the reason why not."""
    if analysis.paired:
        return None, "seeds are paired, and their difference is tested directly"
    if any(one.seeds("collapsed") for one in analysis.cells):
        return None, "a collapsed seed would borrow the calm of the others"
    try:
        return pooled_seeds(matrix), ""
    except BadInput as error:
        reason = str(error)
        for one in analysis.sweep.cells:
            reason = reason.replace(one.cell, one.label)
        return None, reason


def _tests(analysis: Analysis, matrix: ScoreMatrix, pooled: PooledSeeds | None) -> list[OtherTests]:
    baseline, sweep = analysis.sweep.baseline, analysis.sweep
    systems = [one.system for one in analysis.primary]
    permuted = max_t(
        matrix,
        baseline=baseline,
        rng=generator(0, "step-down maximum of t"),
        num_permutations=NUM_PERMUTATIONS,
    )
    by_max_t = {one.system: one.p_adjusted for one in permuted}
    ranks = _adjusted(signed_rank(matrix, baseline=baseline), systems, sweep.correction)
    moderated = {
        system: math.nan
        if pooled is None
        else moderated_scope_test(
            matrix.scores[system], matrix.scores[baseline], pooled=pooled
        ).p_both
        for system in systems
    }
    shrunk = _adjusted(moderated, systems, sweep.correction)
    return [
        OtherTests(system, by_max_t[system], ranks[system], shrunk[system]) for system in systems
    ]


def _adjusted(p: Mapping[str, float], systems: Sequence[str], correction: str) -> dict[str, float]:
    values = CORRECTIONS[correction]([p[system] for system in systems])
    return {system: float(one) for system, one in zip(systems, values, strict=True)}


def _cells(matrix: ScoreMatrix) -> list[CellSeeds]:
    """Every cell with two seeds or more."""
    weights = crossed_weights(matrix, rng=generator(0, "best of k"))
    found = []
    for cell in matrix.cells:
        num_seeds = len(matrix.seeds[cell])
        if num_seeds > 1:
            best = best_of(matrix, cell=cell, k=num_seeds, weights=weights)
            seed, _ = cell_components(matrix.scores[cell])
            found.append(CellSeeds(cell, seed, num_seeds, _kept(best)))
    return found


def _kept(one: BootstrapInterval) -> BootstrapInterval:
    """The last digits of a matrix product depend on the number of threads."""
    estimate, low, high = (float(f"{value:.12g}") for value in (one.estimate, one.low, one.high))
    return dataclasses.replace(one, estimate=estimate, low=low, high=high)
