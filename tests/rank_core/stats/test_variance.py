"""Variance components against the worked example, planted truth, and the chi-square facts."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from rank_core.errors import BadInput
from rank_core.stats.scopes import scope_test
from rank_core.stats.variance import (
    chi_square_factors,
    detectable_difference,
    homogeneity,
    sweep_components,
)
from tests.rank_core.stats.matrices import A, B, matrix_of

SIGMA_D, SIGMA_S, SIGMA_E = 0.08, 0.01, 0.05


def planted(seed, *, num_cells=8, S=5, Q=300):
    rng = np.random.default_rng(seed)
    query_Q = rng.uniform(0.2, 0.8, Q)
    scores = {
        f"cell{number}": query_Q
        + rng.normal(0, SIGMA_D / math.sqrt(2), Q)
        + rng.normal(0, SIGMA_S, (S, 1))
        + rng.normal(0, SIGMA_E, (S, Q))
        for number in range(num_cells)
    }
    return matrix_of(scores)


def cell_components(score_SQ):
    """The components of a sweep of one cell: of its seeds and of the residual."""
    matrix = matrix_of({"cell": score_SQ})
    parts = sweep_components(matrix, baseline="cell")
    return parts.seed, parts.residual


@pytest.mark.parametrize(
    ("df", "level", "low", "high"),
    [(2, 0.95, 0.52, 6.28), (4, 0.95, 0.60, 2.87), (9, 0.95, 0.69, 1.83), (36, 0.95, 0.81, 1.30)],
)
def test_what_a_few_seeds_know_of_their_standard_deviation(df, level, low, high):
    assert chi_square_factors(df, level) == pytest.approx((low, high), abs=0.005)


def test_the_worked_example_has_the_components_of_the_mixed_model():
    seed_A, residual_A = cell_components(A)
    seed_B, residual_B = cell_components(B)
    assert (seed_A.sd**2 + seed_B.sd**2) / 2 == pytest.approx(0.00358736, rel=1e-3)
    assert (residual_A.sd**2 + residual_B.sd**2) / 2 == pytest.approx(0.00025060, rel=1e-3)
    test = scope_test(A, B)
    difference = 8 * (test.variance_queries - test.variance_error_a - test.variance_error_b)
    assert difference == pytest.approx(7.146825e-4, rel=1e-6)
    assert difference / 2 == pytest.approx(0.00035733, rel=1e-4)  # the mixed model's


def test_the_interval_of_a_component_follows_its_chi_square():
    seed, residual = cell_components(A)
    low, high = chi_square_factors(14)
    assert (seed.df, residual.df) == (2, 14)
    assert (residual.low, residual.high) == pytest.approx((residual.sd * low, residual.sd * high))
    assert seed.low < seed.sd < seed.high


def test_pooled_components_find_what_was_planted():
    found = sweep_components(planted(1), baseline="cell0")
    for component, truth in (
        (found.seed, SIGMA_S),
        (found.residual, SIGMA_E),
        (found.difference, SIGMA_D),
    ):
        assert component.low < truth < component.high
        assert component.sd == pytest.approx(truth, rel=0.25)
    assert (found.seed.df, found.difference.df, found.num_cells) == (32, 299, 8)


def test_pooling_narrows_the_interval_of_the_seed_component():
    matrix = planted(2)
    pooled = sweep_components(matrix, baseline="cell0").seed
    single, _ = cell_components(matrix.scores["cell0"])
    assert pooled.high / pooled.low < single.high / max(single.low, 1e-9)


def test_one_seed_has_no_components_and_is_left_out_of_the_pool():
    matrix = planted(3)
    cells = matrix.scores | {"cell1": matrix.scores["cell1"][:1]}
    seed, residual = cell_components(cells["cell1"])
    assert math.isnan(seed.sd) and math.isnan(residual.sd)
    mixed = sweep_components(dataclasses.replace(matrix, scores=cells), baseline="cell0")
    assert mixed.seed.df == 28 and mixed.difference.sd > 0
    single = {cell: score_SQ[:1] for cell, score_SQ in matrix.scores.items()}
    nothing = sweep_components(dataclasses.replace(matrix, scores=single), baseline="cell0")
    assert math.isnan(nothing.seed.sd) and math.isnan(nothing.difference.high)


def test_a_component_below_its_noise_is_zero():
    rng = np.random.default_rng(4)
    score_SQ = rng.normal(0, 0.05, (3, 50))
    score_SQ -= score_SQ.mean(axis=1, keepdims=True)
    seed, _ = cell_components(score_SQ)
    assert (seed.sd, seed.low) == (0, 0)


def test_an_unknown_baseline_is_refused():
    with pytest.raises(BadInput, match="unknown baseline"):
        sweep_components(planted(5), baseline="cell99")


def test_the_detectable_difference_grows_with_the_family_and_needs_seeds():
    test = scope_test(A, B)
    assert detectable_difference(test) > 2.8 * test.se_both
    assert detectable_difference(test, family_size=5) > detectable_difference(test)
    assert math.isnan(detectable_difference(scope_test(A[:1], B)))


def test_homogeneity_is_bartlett_s_test_on_the_seed_means():
    matrix = planted(1)
    means = [score_SQ.mean(axis=1) for score_SQ in matrix.scores.values()]
    assert homogeneity(matrix) == pytest.approx(stats.bartlett(*means).pvalue)


def test_a_deterministic_cell_is_not_like_the_others_and_a_sweep_of_them_is():
    matrix = planted(3)
    matrix.scores["cell0"][:] = matrix.scores["cell0"][:1]
    assert homogeneity(matrix) == 0
    for score_SQ in matrix.scores.values():
        score_SQ[:] = score_SQ[:1]
    assert homogeneity(matrix) == 1


def test_homogeneity_needs_two_cells_with_two_seeds():
    matrix = planted(9, num_cells=2)
    matrix.scores["cell1"] = matrix.scores["cell1"][:1]
    with pytest.raises(BadInput, match="two cells with two seeds or more, got 1"):
        homogeneity(matrix)
