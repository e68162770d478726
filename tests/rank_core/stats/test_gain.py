"""The interval of a relative gain."""

from dataclasses import replace

import numpy as np
import pytest

from rank_core.errors import BadInput
from rank_core.seeding import generator
from rank_core.stats.bootstrap import (
    average_gains,
    crossed_weights,
    gain_intervals,
    gain_weights,
    replicated_means,
)
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.scopes import confidence_interval, scope_test
from tests.rank_core.stats.matrices import drawn, matrix_of


def _matrix(Q: int = 150, seed: int = 1) -> ScoreMatrix:
    lifts = {"a": 0.0, "b": 0.02, "c": 0.04}
    return drawn(lifts, Q=Q, seed=seed, own_sd=0.05, residual=0.06)


def test_the_interval_agrees_with_that_of_the_difference_over_the_baseline() -> None:
    """For a well-known baseline the gain is the difference in another unit."""
    matrix = _matrix()
    test = scope_test(matrix.scores["c"], matrix.scores["a"])
    found = gain_intervals(
        matrix, baseline="a", df={"c": test.df_both}, weights=gain_weights(matrix)
    )["c"]
    base = matrix.scores["a"].mean()
    low, high = confidence_interval(test)
    assert found.gain == pytest.approx(test.delta / base)
    # Replicates redraw queries and runs: their spread is a little above the closed form.
    assert (high - low) / base <= found.high - found.low <= 1.35 * (high - low) / base


@pytest.mark.filterwarnings("error")
def test_a_baseline_that_is_zero_on_all_queries_but_one_has_no_interval_and_no_warning() -> None:
    matrix = _matrix()
    for cell in ("a", "b"):
        matrix.scores[cell] = np.zeros_like(matrix.scores[cell])
        matrix.scores[cell][:, 0] = 0.5
    weights = gain_weights(matrix)
    found = average_gains([matrix], baseline="a", df={"b": 5.0, "c": 5.0}, weights=[weights])
    assert all(np.isnan([one.low, one.high]).all() for one in found.values())
    assert found["b"].gain == 0 and found["c"].gain > 0
    assert gain_intervals(matrix, baseline="a", df={"b": 5.0}, weights=weights) == {}


def _own_weights(matrix: ScoreMatrix, seed: int):
    return crossed_weights(matrix, rng=generator(seed, "weights"), stretched=True)


def test_an_average_gain_is_the_unweighted_mean_of_the_columns() -> None:
    columns = [_matrix(), _matrix(Q=40, seed=2)]
    found = average_gains(
        columns,
        baseline="a",
        df={"b": 6.0, "c": 6.0},
        weights=[_own_weights(one, seed) for seed, one in enumerate(columns)],
    )
    for system, one in found.items():
        gains = [m.scores[system].mean() / m.scores["a"].mean() - 1 for m in columns]
        assert one.gain == pytest.approx(np.mean(gains), rel=1e-12)
        assert one.low < one.gain < one.high


def test_columns_of_the_same_runs_are_less_certain_together_than_independent_ones() -> None:
    rng = generator(4, "runs")
    scores = {cell: rng.normal(0.5, 0.05, (3, 1)) + np.zeros((3, 60)) for cell in ("a", "b")}
    matrix = matrix_of(scores)
    first, second = _own_weights(matrix, 1), _own_weights(matrix, 2)
    settings = {"baseline": "a", "df": {"b": 4.0}}
    shared = average_gains([matrix, matrix], weights=[first, first], **settings)["b"]
    apart = average_gains([matrix, matrix], weights=[first, second], **settings)["b"]
    assert shared.high - shared.low > 1.2 * (apart.high - apart.low)


def test_every_system_gains_over_its_own_baseline() -> None:
    matrix = _matrix()
    weights = gain_weights(matrix)
    own = gain_intervals(
        matrix, baseline={"b": "a", "c": "b"}, df={"a": 5.0, "b": 5.0, "c": 5.0}, weights=weights
    )
    assert set(own) == {"b", "c"}
    assert own["c"].gain == pytest.approx(matrix.scores["c"].mean() / matrix.scores["b"].mean() - 1)
    same = gain_intervals(matrix, baseline="a", df={"b": 5.0}, weights=weights)
    assert own["b"] == same["b"]


CELLS = {"firstp": 0.0, "maxp": 0.05}


def rng():
    return np.random.default_rng(1)


def test_a_replicate_is_the_mean_over_drawn_seeds_and_drawn_queries():
    matrix = drawn(CELLS, Q=5)
    weights = crossed_weights(matrix, rng=rng(), num_replicates=1)
    drawn_Q = np.repeat(np.arange(5), np.rint(weights.queries_BQ[0] * 5).astype(int))
    drawn_S = np.repeat(np.arange(3), np.rint(weights.seeds["maxp"][0] * 3).astype(int))
    expected = matrix.scores["maxp"][np.ix_(drawn_S, drawn_Q)].mean()
    assert replicated_means(matrix, "maxp", weights)[0] == pytest.approx(expected, rel=1e-12)


def test_stretched_weights_give_the_unbiased_seed_variance_back():
    value_S = np.array([0.1, 0.25, 0.3])
    for stretched, divisor in ((False, 3), (True, 2)):
        weights = crossed_weights(
            matrix_of({"a": np.zeros((3, 2))}),
            rng=rng(),
            num_replicates=100_000,
            stretched=stretched,
        )
        weight_BS = weights.seeds["a"]
        expected = ((value_S - value_S.mean()) ** 2).sum() / divisor / 3
        assert (weight_BS @ value_S).var() == pytest.approx(expected, rel=0.02)


def test_seeds_are_shared_by_the_cells_only_when_declared_paired():
    matrix = drawn(CELLS)
    apart = crossed_weights(matrix, rng=rng(), num_replicates=20).seeds
    paired = crossed_weights(matrix, rng=rng(), num_replicates=20, paired_seeds=True).seeds
    assert not np.array_equal(apart["firstp"], apart["maxp"])
    np.testing.assert_array_equal(paired["firstp"], paired["maxp"])
    with pytest.raises(BadInput, match="same seeds in every cell"):
        other = replace(matrix, seeds=matrix.seeds | {"maxp": (1, 2, 9)})
        crossed_weights(other, rng=rng(), paired_seeds=True)
