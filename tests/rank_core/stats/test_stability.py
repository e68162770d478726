"""Rank stability by hand, and its limits: systems far apart, and equal ones."""

import numpy as np
import pytest

from rank_core.errors import BadInput
from rank_core.stats.bootstrap import crossed_weights
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.stability import rank_stability, reversal


def matrix_of(means: dict[str, list[float]], *, queries: int = 40, noise: float = 0.0):
    rng = np.random.default_rng(1)
    scores = {
        cell: np.array(own)[:, None] + rng.normal(0, noise, (len(own), queries))
        for cell, own in means.items()
    }
    seeds = {cell: tuple(range(len(own))) for cell, own in means.items()}
    return ScoreMatrix("nDCG@10", tuple(means), tuple(map(str, range(queries))), seeds, scores)


def stability(matrix: ScoreMatrix):
    weights = crossed_weights(matrix, rng=np.random.default_rng(2), num_replicates=4000)
    return rank_stability(matrix, weights, rng=np.random.default_rng(3), draws=4000)


def test_reversals_by_hand():
    assert reversal([0.3, 0.5], [0.2, 0.4]) == 1 / 4  # .4 above .3 alone
    assert reversal([0.3], [0.3]) == 0.5 and reversal([0.1], [0.2, 0.3]) == 1


def test_one_swap_of_three_systems_by_hand():
    # b's second run is above a's only run: in half of the draws a and b swap, tau is 1 or 1/3.
    found = stability(matrix_of({"a": [0.4], "b": [0.3, 0.42], "c": [0.1]}))
    assert found.order == ("a", "b", "c")
    assert found.reversals == {("a", "b"): 0.5, ("b", "c"): 0.0}
    assert found.tau == pytest.approx((1 + 1 / 3) / 2, abs=0.02)
    assert (found.tau_low, found.tau_high) == (pytest.approx(1 / 3), pytest.approx(1))
    # b is the best where both of its two draws take the second run.
    assert found.best["b"] == pytest.approx(0.25, abs=0.03) and found.best["c"] == 0


def test_systems_far_apart_never_change_places():
    found = stability(matrix_of({"x": [0.1, 0.12], "y": [0.5, 0.52], "z": [0.3, 0.29]}, noise=0.01))
    assert found.order == ("y", "z", "x") and found.best["y"] == 1
    assert found.tau == found.tau_low == found.tau_high == pytest.approx(1)
    assert set(found.reversals.values()) == {0.0}


def test_equal_systems_have_no_ranking():
    rng = np.random.default_rng(0)
    found = stability(matrix_of({name: rng.normal(0.4, 0.01, 30).tolist() for name in "abcd"}))
    assert abs(found.tau) < 0.35 and found.tau_low < 0 < found.tau_high
    assert all(0.3 < one < 0.5 for one in found.reversals.values())


def test_a_single_system_is_refused():
    with pytest.raises(BadInput, match="two systems"):
        stability(matrix_of({"a": [0.4, 0.5]}))
