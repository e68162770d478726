"""Rank stability by hand, and its limits: systems far apart, and equal ones."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from rank_core.stats.bootstrap import crossed_weights, rank_stability, reversal
from rank_core.stats.matrix import ScoreMatrix
from tests.rank_core.stats.matrices import matrix_of


def drawn(means: dict[str, list[float]], *, queries: int = 40, noise: float = 0.0):
    rng = np.random.default_rng(1)
    scores = {
        cell: np.array(own)[:, None] + rng.normal(0, noise, (len(own), queries))
        for cell, own in means.items()
    }
    return matrix_of(scores, "nDCG@10")


def stability(matrix: ScoreMatrix):
    weights = crossed_weights(matrix, rng=np.random.default_rng(2), num_replicates=2000)
    return rank_stability(matrix, weights, rng=np.random.default_rng(3), draws=1000)


def test_one_swap_of_three_systems_by_hand():
    # b's second run is above a's only run: in half of the draws a and b swap, tau is 1 or 1/3.
    found = stability(drawn({"a": [0.4], "b": [0.3, 0.42], "c": [0.1]}))
    assert found.order == ("a", "b", "c")
    assert found.reversals == {("a", "b"): 0.5, ("b", "c"): 0.0}
    assert found.tau == pytest.approx((1 + 1 / 3) / 2, abs=0.02)
    assert (found.tau_low, found.tau_high) == (pytest.approx(1 / 3), pytest.approx(1))
    # b is the best where both of its two draws take the second run.
    assert found.best["b"] == pytest.approx(0.25, abs=0.03) and found.best["c"] == 0


def test_reversals_are_the_u_statistic_of_scipy():
    rng = np.random.default_rng(5)
    for _ in range(20):
        better, worse = (rng.integers(0, 6, number) / 10 for number in rng.integers(1, 8, 2))
        u = stats.mannwhitneyu(worse, better).statistic
        assert reversal(better, worse) == pytest.approx(u / (len(better) * len(worse)))


def test_the_best_of_redrawn_seeds_by_enumeration():
    # Every query alike, so that redrawn seeds alone decide: 2 runs each, 4 x 4 x 4 ordered draws.
    own = {"a": [0.40, 0.30], "b": [0.36, 0.33], "c": [0.2, 0.39]}
    found = stability(drawn(own))
    draws = {cell: [np.mean(pair) for pair in product(runs, runs)] for cell, runs in own.items()}
    every = list(product(*(draws[cell] for cell in own)))
    for at, cell in enumerate(own):
        share = np.mean([np.argmax(one) == at for one in every])
        assert found.best[cell] == pytest.approx(share, abs=0.03)


def test_equal_systems_share_the_first_place():
    found = stability(drawn({"a": [0.3, 0.3], "b": [0.3, 0.3], "c": [0.1, 0.1]}))
    assert found.best == {"a": 0.5, "b": 0.5, "c": 0.0}
