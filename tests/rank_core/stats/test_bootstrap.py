"""The crossed bootstrap by weights: identities, known variances, and shared weights."""

import numpy as np
import pytest

from rank_core.errors import BadInput
from rank_core.stats.bootstrap import (
    CrossedWeights,
    crossed_weights,
    replicated_means,
    seed_weights,
)
from tests.rank_core.stats.matrices import matrix_of


def sweep(seed=0, *, S=4, Q=80, gain=0.05, sigma_S=0.01):
    rng = np.random.default_rng(seed)
    query_Q = rng.uniform(0.2, 0.8, Q)
    scores = {
        name: query_Q + shift + rng.normal(0, sigma_S, (S, 1)) + rng.normal(0, 0.05, (S, Q))
        for name, shift in {"firstp": 0.0, "maxp": gain, "sump": 0.0}.items()
    }
    return matrix_of(scores)


def unit_weights(matrix):
    """The one replicate that weights everything equally."""
    Q = len(matrix.query_ids)
    return CrossedWeights(
        np.full((1, Q), 1 / Q),
        {cell: np.full((1, len(own)), 1 / len(own)) for cell, own in matrix.seeds.items()},
    )


def rng(seed=1):
    return np.random.default_rng(seed)


def test_equal_weights_give_back_the_data():
    matrix = sweep()
    mean_B = replicated_means(matrix, "maxp", unit_weights(matrix))
    assert mean_B[0] == pytest.approx(matrix.scores["maxp"].mean(), rel=1e-12)


def test_a_replicate_is_the_mean_over_drawn_seeds_and_drawn_queries():
    matrix = sweep(S=3, Q=5)
    weights = crossed_weights(matrix, rng=rng(), num_replicates=1)
    drawn_Q = np.repeat(np.arange(5), np.rint(weights.queries_BQ[0] * 5).astype(int))
    drawn_S = np.repeat(np.arange(3), np.rint(weights.seeds["maxp"][0] * 3).astype(int))
    expected = matrix.scores["maxp"][np.ix_(drawn_S, drawn_Q)].mean()
    assert replicated_means(matrix, "maxp", weights)[0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("stretched", [False, True])
def test_weights_sum_to_one(stretched):
    weights = crossed_weights(sweep(), rng=rng(), num_replicates=50, stretched=stretched)
    np.testing.assert_allclose(weights.queries_BQ.sum(axis=1), 1)
    np.testing.assert_allclose(weights.seeds["maxp"].sum(axis=1), 1)


def test_stretched_weights_give_the_unbiased_seed_variance_back():
    value_S = np.array([0.1, 0.25, 0.3])
    for stretched, divisor in ((False, 3), (True, 2)):
        weight_BS = seed_weights(
            {"a": (1, 2, 3)}, rng=rng(), num_replicates=200_000, stretched=stretched
        )["a"]
        expected = ((value_S - value_S.mean()) ** 2).sum() / divisor / 3
        assert (weight_BS @ value_S).var() == pytest.approx(expected, rel=0.02)


def test_seeds_are_shared_by_the_cells_only_when_declared_paired():
    matrix = sweep()
    apart = crossed_weights(matrix, rng=rng(), num_replicates=20).seeds
    paired = crossed_weights(matrix, rng=rng(), num_replicates=20, paired_seeds=True).seeds
    assert not np.array_equal(apart["firstp"], apart["maxp"])
    np.testing.assert_array_equal(paired["firstp"], paired["maxp"])
    with pytest.raises(BadInput, match="same seeds in every cell"):
        seed_weights({"a": (1, 2), "b": (1, 3)}, rng=rng(), paired_seeds=True)


def test_what_has_no_answer_is_refused():
    matrix = sweep()
    with pytest.raises(BadInput, match="num_replicates >= 1"):
        crossed_weights(matrix, rng=rng(), num_replicates=0)
