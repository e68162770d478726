"""Law of every test: cells that differ by rounding alone do not differ, whatever the scale."""

import warnings

import numpy as np
import pytest

from rank_core.seeding import generator
from rank_core.stats.best import best_set
from rank_core.stats.compare import compare_pairs
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.permutation import randomised_tukey
from rank_core.stats.variance import homogeneity, sweep_components
from tests.rank_core.stats.matrices import matrix_of

TWINS = {
    "the same bits": lambda score_SQ, rng: score_SQ,
    "seeds in another order": lambda score_SQ, rng: score_SQ[::-1],
    "last bits": lambda score_SQ, rng: (
        score_SQ * (1 + np.finfo(float).eps * rng.integers(-1, 2, score_SQ.shape))
    ),
    "always a bit more": lambda score_SQ, rng: score_SQ * (1 + np.finfo(float).eps),
}
SEEDS = (1, 2, 3)


def twins(
    twin, scale: float, num_queries: int, *, seed_sd: float, seed: int, strides: int = 3
) -> ScoreMatrix:
    """Cells of a grid of 2 x `strides` that are one; the seeds are equal where `seed_sd` is 0."""
    rng = generator(seed, "twins")
    score_SQ = np.where(rng.random(num_queries) < 0.4, 0, rng.random(num_queries))
    score_SQ = scale * np.abs(score_SQ + rng.normal(0, seed_sd, (len(SEEDS), num_queries)))
    cells = [f"{window}/{stride}" for window in (1, 2) for stride in range(1, strides + 1)]
    return matrix_of({c: twin(score_SQ, rng) if c != "1/1" else score_SQ for c in cells})


@pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e5])
def test_what_differs_by_rounding_does_not_differ(twin, scale):
    for seed, (num_queries, seed_sd) in enumerate([(8, 0.0), (8, 0.1), (40, 0.0), (40, 0.02)]):
        matrix = twins(twin, scale, num_queries, seed_sd=seed_sd, seed=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pairs = [(cell, "1/1") for cell in matrix.cells[1:]]
            for one in compare_pairs(matrix, pairs):
                assert one.delta == 0 and one.p_queries == one.p_seeds == one.p_both == 1.0
            for one in randomised_tukey(matrix, rng=generator(1, "tukey"), num_permutations=20):
                assert one.p == one.p_adjusted == 1.0
            assert homogeneity(matrix) > 0.99
            assert not best_set(matrix).left
            parts = sweep_components(matrix, baseline="1/1")
            assert parts.difference.sd < 1e-12 * scale and (seed_sd or parts.seed.high == 0)


def test_a_real_difference_of_one_query_is_no_rounding():
    matrix = twins(TWINS["the same bits"], 1.0, 8, seed_sd=0.0, seed=1)
    better = matrix.scores["2/1"].copy()
    better[:, 0] += 1e-6
    matrix.scores["2/1"] = better
    [one] = compare_pairs(matrix, [("2/1", "1/1")])
    assert one.delta == pytest.approx(1e-6 / 8) and 0.3 < one.p_queries < 1
