"""The interval of a relative gain."""

import numpy as np
import pytest

from rank_core.seeding import generator
from rank_core.stats.gain import gain_intervals, gain_weights
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.scopes import confidence_interval, scope_test


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
    return ScoreMatrix(
        measure="nDCG@10",
        cells=tuple(scores),
        query_ids=tuple(f"q{i}" for i in range(num_queries)),
        seeds={cell: tuple(range(num_seeds)) for cell in scores},
        scores=scores,
    )


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


@pytest.mark.slow
def test_the_interval_covers_the_true_gain_about_as_often_as_it_says() -> None:
    covered = 0
    for seed in range(120):
        matrix = _matrix(num_queries=60, seed=seed + 10)
        df = {"c": scope_test(matrix.scores["c"], matrix.scores["a"]).df_both}
        found = gain_intervals(matrix, baseline="a", df=df, weights=gain_weights(matrix))["c"]
        covered += found.low <= 0.04 / 0.45 <= found.high
    assert 0.9 <= covered / 120
