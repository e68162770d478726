"""Statistics over resampled seeds and queries: gains, the luck of a winner, stable rankings."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from rank_core.errors import BadInput
from rank_core.stats.bootstrap import (
    crossed_weights,
    rank_stability,
    replicated_means,
    reversal,
    selected_gain,
)
from rank_core.stats.matrix import ScoreMatrix
from tests.rank_core.stats.matrices import drawn, matrix_of

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


def test_seeds_are_shared_by_the_cells_only_when_declared_paired():
    matrix = drawn(CELLS)
    apart = crossed_weights(matrix, rng=rng(), num_replicates=20).seeds
    paired = crossed_weights(matrix, rng=rng(), num_replicates=20, paired_seeds=True).seeds
    assert not np.array_equal(apart["firstp"], apart["maxp"])
    np.testing.assert_array_equal(paired["firstp"], paired["maxp"])
    with pytest.raises(BadInput, match="same seeds in every cell"):
        other = replace(matrix, seeds=matrix.seeds | {"maxp": (1, 2, 9)})
        crossed_weights(other, rng=rng(), paired_seeds=True)


SEVEN = [f"cell{k}" for k in range(7)]


def test_among_equals_the_correction_takes_most_of_the_gain_away():
    found = [
        selected_gain(
            drawn(dict.fromkeys(SEVEN, 0.0), Q=100, seed=seed, own_sd=0.05, residual=0.08),
            baseline="cell0",
            rng=np.random.default_rng(seed),
            num_replicates=200,
        )
        for seed in range(40)
    ]
    naive = np.mean([gain.naive for gain in found])
    corrected = np.mean([gain.corrected for gain in found])
    assert naive > 0.005
    assert abs(corrected) < 0.35 * naive


def test_a_winner_that_is_really_better_keeps_its_gain():
    matrix = drawn(dict.fromkeys(SEVEN, 0.0) | {"cell6": 0.1}, Q=100, own_sd=0.05)
    found = selected_gain(matrix, baseline="cell0", rng=np.random.default_rng(1))
    assert found.winner == "cell6"
    assert found.corrected == pytest.approx(found.naive, abs=0.01)
    assert found.luck == found.naive - found.corrected
    assert found.num_candidates == 6 and 0 < found.num_replicates < 2000


def runs_of(means: dict[str, list[float]], *, queries: int = 40, noise: float = 0.0):
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
    found = stability(runs_of({"a": [0.4], "b": [0.3, 0.42], "c": [0.1]}))
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


def test_equal_systems_share_the_first_place():
    found = stability(runs_of({"a": [0.3, 0.3], "b": [0.3, 0.3], "c": [0.1, 0.1]}))
    assert found.best == {"a": 0.5, "b": 0.5, "c": 0.0}
