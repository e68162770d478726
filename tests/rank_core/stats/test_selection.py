"""The luck of the winner, and a correction that takes it out."""

import numpy as np
import pytest

from rank_core.stats.bootstrap import selected_gain
from tests.rank_core.stats.matrices import drawn

CELLS = [f"cell{k}" for k in range(7)]


def test_among_equals_the_correction_takes_most_of_the_gain_away():
    found = [
        selected_gain(
            drawn(dict.fromkeys(CELLS, 0.0), Q=100, seed=seed, own_sd=0.05, residual=0.08),
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
    matrix = drawn(dict.fromkeys(CELLS, 0.0) | {"cell6": 0.1}, Q=100, own_sd=0.05)
    found = selected_gain(matrix, baseline="cell0", rng=np.random.default_rng(1))
    assert found.winner == "cell6"
    assert found.corrected == pytest.approx(found.naive, abs=0.01)
    assert found.luck == found.naive - found.corrected
    assert found.num_candidates == 6 and 0 < found.num_replicates < 2000
