"""Statistics over resampled seeds and queries: gains, the luck of a winner."""

import numpy as np
import pytest

from rank_core.stats.bootstrap import crossed_weights, replicated_means, selected_gain
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


def test_a_deterministic_baseline_has_its_one_run_in_every_replicate():
    matrix = drawn(dict.fromkeys(SEVEN, 0.0) | {"cell6": 0.1}, Q=100, own_sd=0.05)
    bm25 = {"bm25": matrix.scores["cell0"].mean(axis=0, keepdims=True)}
    found = selected_gain(
        matrix_of(bm25 | matrix.scores), baseline="bm25", rng=rng(), deterministic=["bm25"]
    )
    assert found.winner == "cell6"
    assert found.corrected == pytest.approx(found.naive, abs=0.01)
