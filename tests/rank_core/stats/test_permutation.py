"""The randomised Tukey test against the book's example, scipy and its own laws."""

import numpy as np
import pytest

from rank_core.stats.permutation import randomised_tukey
from tests.rank_core.stats.matrices import SAKAI, drawn, matrix_of


def sakai():
    return matrix_of(
        {name: np.array(text.split(), dtype=float) / 10 for name, text in SAKAI.items()}
    )


def noise(seed, effects=(0, 0, 0, 0), Q=40):
    cells = {f"cell{k}": effect for k, effect in enumerate(effects)}
    return drawn(cells, S=1, Q=Q, seed=seed, seed_sd=0.0, residual=0.1)


def rng(seed=1):
    return np.random.default_rng(seed)


def test_the_randomised_tukey_test_gives_the_book_s_example():
    found = randomised_tukey(sakai(), rng=rng(), num_permutations=20_000)
    assert [(c.system, c.baseline) for c in found] == [("X", "Y"), ("X", "Z"), ("Y", "Z")]
    # Three standard errors of 20,000 permutations are .010, the book's own simulation adds some.
    assert [c.p_adjusted for c in found] == pytest.approx([0.302, 0.106, 0.890], abs=0.012)


def test_adjusted_values_are_monotone_in_the_statistic_and_never_zero():
    pairs = randomised_tukey(noise(4, effects=(0, 0.5, 0.05, 0.0)), rng=rng(), num_permutations=500)
    adjusted = [pair.p_adjusted for pair in sorted(pairs, key=lambda pair: -pair.statistic)]
    assert adjusted == sorted(adjusted)
    assert adjusted[0] == pytest.approx(1 / 501)
    assert all(pair.p_adjusted >= pair.p for pair in pairs)


@pytest.mark.parametrize("num_cells", [4, 260])
def test_one_and_eight_threads_give_the_same_values(num_cells, monkeypatch):
    # Small pieces: many blocks, and several pieces of queries in each.
    monkeypatch.setattr("rank_core.stats.permutation._PIECE", 40)
    matrix = noise(6, [0.01 * (k % 5) for k in range(num_cells)], Q=23)

    def found(threads, seed=1):
        monkeypatch.setattr("rank_core.stats.permutation._processors", lambda: threads)
        return randomised_tukey(matrix, rng=rng(seed), num_permutations=75)

    one, other = found(1), found(8, seed=2)
    assert one == found(8) == found(8)
    assert [pair.p for pair in other] != [pair.p for pair in one]
