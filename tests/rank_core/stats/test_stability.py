"""Rank stability by hand, and its limits: systems far apart, and equal ones."""

from itertools import combinations, product

import numpy as np
import pytest
from scipy import stats

from rank_core.errors import BadInput
from rank_core.stats.bootstrap import crossed_weights
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.stability import rank_stability, reversal
from tests.rank_core.stats.matrices import matrix_of


def drawn(means: dict[str, list[float]], *, queries: int = 40, noise: float = 0.0):
    rng = np.random.default_rng(1)
    scores = {
        cell: np.array(own)[:, None] + rng.normal(0, noise, (len(own), queries))
        for cell, own in means.items()
    }
    return matrix_of(scores, "nDCG@10")


def stability(matrix: ScoreMatrix):
    weights = crossed_weights(matrix, rng=np.random.default_rng(2), num_replicates=4000)
    return rank_stability(matrix, weights, rng=np.random.default_rng(3), draws=4000)


def test_reversals_by_hand():
    assert reversal([0.3, 0.5], [0.2, 0.4]) == 1 / 4  # .4 above .3 alone
    assert reversal([0.3], [0.3]) == 0.5 and reversal([0.1], [0.2, 0.3]) == 1


def test_one_swap_of_three_systems_by_hand():
    # b's second run is above a's only run: in half of the draws a and b swap, tau is 1 or 1/3.
    found = stability(drawn({"a": [0.4], "b": [0.3, 0.42], "c": [0.1]}))
    assert found.order == ("a", "b", "c")
    assert found.reversals == {("a", "b"): 0.5, ("b", "c"): 0.0}
    assert found.tau == pytest.approx((1 + 1 / 3) / 2, abs=0.02)
    assert (found.tau_low, found.tau_high) == (pytest.approx(1 / 3), pytest.approx(1))
    # b is the best where both of its two draws take the second run.
    assert found.best["b"] == pytest.approx(0.25, abs=0.03) and found.best["c"] == 0


def test_every_draw_of_runs_by_enumeration_and_scipy():
    own = {"a": [0.40, 0.34], "b": [0.36, 0.41], "c": [0.35, 0.30], "d": [0.2, 0.37]}
    found = stability(drawn(own))
    order = sorted(own, key=lambda cell: -np.mean(own[cell]))
    rankings = list(product(*(own[cell] for cell in order)))  # 16, as likely as each other
    taus = [stats.kendalltau([4, 3, 2, 1], one).statistic for one in rankings]
    by_hand = [
        sum(np.sign(one[i] - one[j]) for i, j in combinations(range(4), 2)) / 6 for one in rankings
    ]
    assert taus == pytest.approx(by_hand)  # concordant less discordant pairs
    assert found.order == tuple(order)
    assert found.tau == pytest.approx(np.mean(taus), abs=0.02)
    assert (found.tau_low, found.tau_high) == pytest.approx((min(taus), max(taus)))


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


def test_systems_far_apart_never_change_places():
    found = stability(drawn({"x": [0.1, 0.12], "y": [0.5, 0.52], "z": [0.3, 0.29]}, noise=0.01))
    assert found.order == ("y", "z", "x") and found.best["y"] == 1
    assert found.tau == found.tau_low == found.tau_high == pytest.approx(1)
    assert set(found.reversals.values()) == {0.0}


def test_equal_systems_have_no_ranking():
    rng = np.random.default_rng(0)
    found = stability(drawn({name: rng.normal(0.4, 0.01, 30).tolist() for name in "abcd"}))
    assert abs(found.tau) < 0.35 and found.tau_low < 0 < found.tau_high
    assert all(0.3 < one < 0.5 for one in found.reversals.values())


def test_a_single_system_is_refused():
    with pytest.raises(BadInput, match="two systems"):
        stability(drawn({"a": [0.4, 0.5]}))
