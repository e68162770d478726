"""The luck of the winner, and a correction that takes it out."""

import numpy as np
import pytest

from rank_core.errors import BadInput
from rank_core.stats.selection import selected_gain
from tests.rank_core.stats.matrices import matrix_of


def sweep(seed, *, K=6, S=3, Q=100, effects=None):
    rng = np.random.default_rng(seed)
    query_Q = rng.uniform(0.2, 0.8, Q)
    effects = effects or [0.0] * (K + 1)
    scores = {
        f"cell{k}": query_Q
        + effects[k]
        + rng.normal(0, 0.05, Q)
        + rng.normal(0, 0.005, (S, 1))
        + rng.normal(0, 0.08, (S, Q))
        for k in range(K + 1)
    }
    return matrix_of(scores)


def test_among_equals_the_correction_takes_most_of_the_gain_away():
    found = [
        selected_gain(
            sweep(seed), baseline="cell0", rng=np.random.default_rng(seed), num_replicates=200
        )
        for seed in range(60)
    ]
    naive = np.mean([gain.naive for gain in found])
    corrected = np.mean([gain.corrected for gain in found])
    assert naive > 0.005
    assert abs(corrected) < 0.35 * naive


def test_a_winner_that_is_really_better_keeps_its_gain():
    effects = [0.0] * 6 + [0.1]
    found = selected_gain(sweep(1, effects=effects), baseline="cell0", rng=np.random.default_rng(1))
    assert found.winner == "cell6"
    assert found.corrected == pytest.approx(found.naive, abs=0.01)
    assert found.luck == found.naive - found.corrected
    assert found.num_candidates == 6 and 0 < found.num_replicates < 2000


def test_the_same_generator_gives_the_same_correction():
    first, second = (
        selected_gain(sweep(2), baseline="cell0", rng=np.random.default_rng(5)) for _ in range(2)
    )
    assert first == second


def test_what_cannot_be_corrected_is_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(BadInput, match="two seeds of every cell, got one of cell0"):
        selected_gain(sweep(3, S=1), baseline="cell0", rng=rng)
    with pytest.raises(BadInput, match="a cell other than the baseline"):
        selected_gain(sweep(3, K=0), baseline="cell0", rng=rng)
    with pytest.raises(BadInput, match="unknown baseline"):
        selected_gain(sweep(3), baseline="cell9", rng=rng)
