"""The interval of a relative gain."""

import numpy as np
import pytest

from rank_core.errors import BadInput
from rank_core.seeding import generator
from rank_core.stats.bootstrap import crossed_weights
from rank_core.stats.gain import average_gains, gain_intervals, gain_weights
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.scopes import confidence_interval, scope_test
from tests.rank_core.stats.matrices import matrix_of


def _matrix(num_seeds: int = 3, num_queries: int = 150, seed: int = 1) -> ScoreMatrix:
    rng = generator(seed, "gain")
    query_Q = rng.normal(0.45, 0.12, num_queries)
    scores = {
        cell: query_Q
        + lift
        + rng.normal(0, 0.006, (num_seeds, 1))
        + rng.normal(0, 0.06, (num_seeds, num_queries))
        + rng.normal(0, 0.05, num_queries)
        for cell, lift in (("a", 0.0), ("b", 0.02), ("c", 0.04))
    }
    return matrix_of(scores, "nDCG@10")


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


def test_the_same_scores_give_the_same_interval_each_time() -> None:
    matrix = _matrix()
    first, second = (
        gain_intervals(matrix, baseline="a", df={"b": 8.0}, weights=gain_weights(matrix))
        for _ in range(2)
    )
    assert first == second and set(first) == {"b"}


def test_a_system_with_one_seed_has_no_interval() -> None:
    matrix = _matrix()
    found = gain_intervals(
        matrix, baseline="a", df={"b": float("nan"), "c": 5.0}, weights=gain_weights(matrix)
    )
    assert set(found) == {"c"}


def test_over_a_baseline_of_zero_no_gain_is_defined() -> None:
    matrix = _matrix()
    matrix.scores["a"] = np.zeros_like(matrix.scores["a"])
    assert gain_intervals(matrix, baseline="a", df={"b": 5.0}, weights=gain_weights(matrix)) == {}


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


@pytest.mark.slow
def test_the_interval_covers_the_true_gain_about_as_often_as_it_says() -> None:
    covered = 0
    for seed in range(120):
        matrix = _matrix(num_queries=60, seed=seed + 10)
        df = {"c": scope_test(matrix.scores["c"], matrix.scores["a"]).df_both}
        found = gain_intervals(matrix, baseline="a", df=df, weights=gain_weights(matrix))["c"]
        covered += found.low <= 0.04 / 0.45 <= found.high
    assert 0.9 <= covered / 120


def _own_weights(matrix: ScoreMatrix, seed: int):
    return crossed_weights(matrix, rng=generator(seed, "weights"), stretched=True)


def test_an_average_gain_is_the_unweighted_mean_of_the_columns() -> None:
    columns = [_matrix(), _matrix(num_queries=40, seed=2)]
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


def test_one_seed_has_an_average_gain_without_an_interval() -> None:
    matrix = _matrix(num_seeds=1)
    weights = [gain_weights(matrix)]
    found = average_gains([matrix], baseline="a", df={"b": float("nan")}, weights=weights)["b"]
    assert found.gain > 0 and np.isnan([found.low, found.high]).all()


@pytest.mark.slow
def test_the_interval_of_an_average_gain_covers_the_truth() -> None:
    """Two collections of the same three runs, no true gain: 95% must hold, caution is allowed."""
    rng = generator(11, "coverage")
    covered = []
    for _ in range(150):
        run_KS1 = rng.normal(0, 0.006, (2, 3, 1))
        columns = []
        for num_queries in (60, 90):
            query_Q = rng.normal(0.45, 0.1, num_queries)
            taste_K1Q = rng.normal(0, 0.05, (2, 1, num_queries))
            score_KSQ = query_Q + taste_K1Q + run_KS1 + rng.normal(0, 0.05, (2, 3, num_queries))
            columns.append(matrix_of(dict(zip("ab", score_KSQ, strict=True))))
        df = min(scope_test(one.scores["b"], one.scores["a"]).df_both for one in columns)
        first, second = (
            crossed_weights(one, rng=rng, num_replicates=200, stretched=True) for one in columns
        )
        weights = [first, type(second)(second.queries_BQ, first.seeds)]
        found = average_gains(columns, baseline="a", df={"b": df}, weights=weights)["b"]
        covered.append(found.low <= 0 <= found.high)
    assert np.mean(covered) >= 0.93


def test_columns_that_do_not_fit_are_refused() -> None:
    matrix = _matrix()
    weights = gain_weights(matrix)
    with pytest.raises(BadInput, match="unknown cell 'd'"):
        average_gains([matrix], baseline="d", df={"b": 5.0}, weights=[weights])
    with pytest.raises(BadInput, match="every column needs its weights"):
        average_gains([], baseline="a", df={"b": 5.0}, weights=[])
    matrix.scores["a"][:] = 0
    assert average_gains([matrix], baseline="a", df={"b": 5.0}, weights=[weights]) == {}
