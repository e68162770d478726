"""Shrinking seed variances: what is borrowed, what is refused, and what it must not change."""

import math

import numpy as np
import pytest
from scipy import stats

from rank_core.errors import BadInput
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.pooled import homogeneity, moderated_scope_test, pooled_seeds
from rank_core.stats.scopes import scope_test


def sweep(seed, *, num_cells=12, S=3, Q=100, sigma_S=0.01, sizes=()):
    rng = np.random.default_rng(seed)
    query_Q = rng.uniform(0.2, 0.8, Q)
    scores = {}
    for number in range(num_cells):
        own_S = sizes[number] if sizes else S
        scores[f"cell{number}"] = (
            query_Q
            + rng.normal(0, 0.06, Q)
            + rng.normal(0, sigma_S, (own_S, 1))
            + rng.normal(0, 0.05, (own_S, Q))
        )
    return of(scores)


def of(scores):
    return ScoreMatrix(
        measure="AP",
        cells=tuple(scores),
        query_ids=tuple(map(str, range(next(iter(scores.values())).shape[1]))),
        seeds={cell: tuple(range(len(score_SQ))) for cell, score_SQ in scores.items()},
        scores=scores,
    )


def test_homogeneity_is_bartlett_s_test_on_the_seed_means():
    matrix = sweep(1)
    means = [score_SQ.mean(axis=1) for score_SQ in matrix.scores.values()]
    assert homogeneity(matrix) == pytest.approx(stats.bartlett(*means).pvalue)


def test_a_collapsing_cell_is_refused_by_name():
    matrix = sweep(2)
    matrix.scores["cell7"][1] = 0.0
    with pytest.raises(BadInput, match=r"alike seed variances .* for cell7"):
        pooled_seeds(matrix)


def test_a_deterministic_cell_is_not_like_the_others_and_a_sweep_of_them_is():
    matrix = sweep(3)
    matrix.scores["cell0"][:] = matrix.scores["cell0"][:1]
    assert homogeneity(matrix) == 0
    calm = of({name: np.tile(x_SQ[:1], (3, 1)) for name, x_SQ in sweep(3).scores.items()})
    assert homogeneity(calm) == 1 and pooled_seeds(calm).variance == 0


def test_alike_cells_pool_to_the_planted_variance():
    pooled = pooled_seeds(sweep(4, num_cells=60))
    assert pooled.df == 120
    assert math.sqrt(pooled.variance) == pytest.approx(math.hypot(0.01, 0.05 / 10), rel=0.15)
    assert math.sqrt(pooled.residual) == pytest.approx(0.05, rel=0.05)


def test_unlike_variances_have_a_prior_worth_few_seeds():
    rng = np.random.default_rng(5)
    true_df, scores = 6.0, {}
    for number in range(4000):
        sigma_S = 0.01 * math.sqrt(true_df / rng.chisquare(true_df))
        scores[f"cell{number}"] = rng.normal(0, sigma_S, (4, 1)) + np.zeros((4, 5))
    pooled = pooled_seeds(of(scores), least_homogeneity=0)
    assert pooled.prior_df == pytest.approx(true_df, rel=0.3)
    assert pooled.variance == pytest.approx(1e-4, rel=0.1)


def test_borrowing_never_changes_the_queries_scope_and_adds_degrees_of_freedom():
    matrix = sweep(6)
    pooled = pooled_seeds(matrix)
    pair = matrix.scores["cell0"], matrix.scores["cell1"]
    own, moderated = scope_test(*pair), moderated_scope_test(*pair, pooled=pooled)
    assert moderated.p_queries == pytest.approx(own.p_queries, rel=1e-12)
    assert moderated.df_seeds <= pooled.df
    assert moderated.df_seeds > own.df_seeds
    assert moderated.variance_seeds_a == pytest.approx(pooled.variance / 3)


def test_one_seed_can_be_tested_with_a_borrowed_variance():
    matrix = sweep(7)
    pooled = pooled_seeds(matrix)
    one = moderated_scope_test(
        matrix.scores["cell0"][:1], matrix.scores["cell1"][:1], pooled=pooled
    )
    assert one.se_both > one.se_queries
    assert 0 < one.p_both < 1


def test_a_system_against_itself_has_p_one():
    matrix = sweep(8)
    same = moderated_scope_test(
        matrix.scores["cell0"], matrix.scores["cell0"], pooled=pooled_seeds(matrix)
    )
    assert (same.p_queries, same.p_seeds, same.p_both) == (1, 1, 1)


def test_cells_with_one_seed_bring_nothing_to_the_pool():
    matrix = sweep(9, num_cells=4, sizes=[3, 4, 1, 2])
    assert pooled_seeds(matrix, least_homogeneity=0).df == 2 + 3 + 1
    with pytest.raises(BadInput, match="two cells with two seeds or more, got 1"):
        pooled_seeds(sweep(9, num_cells=2, sizes=[3, 1]))


@pytest.mark.slow
def test_null_comparisons_stay_near_their_level_and_truth_is_found_more_often():
    rejected = {"own": 0, "moderated": 0}
    found = dict(rejected)
    for seed in range(300):
        matrix = sweep(1000 + seed, num_cells=8, Q=60, sigma_S=0.015)
        pooled = pooled_seeds(matrix, least_homogeneity=0)
        for shift, counts in ((0.0, rejected), (0.045, found)):
            pair = matrix.scores["cell0"] + shift, matrix.scores["cell1"]
            counts["own"] += scope_test(*pair).p_both < 0.05
            counts["moderated"] += moderated_scope_test(*pair, pooled=pooled).p_both < 0.05
    assert rejected["moderated"] / 300 < 0.09
    assert found["moderated"] > found["own"]
