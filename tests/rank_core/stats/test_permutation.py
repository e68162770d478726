"""The randomised Tukey test against the book's example, scipy and its own laws."""

import numpy as np
import pytest
from scipy import stats

from rank_core.stats.permutation import permuted, randomised_tukey
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


def test_two_cells_make_it_a_plain_permutation_test():
    matrix = noise(3, effects=(0, 0.03))
    (pair,) = randomised_tukey(matrix, rng=rng(), num_permutations=10_000)
    assert pair.p == pair.p_adjusted
    expected = stats.ttest_rel(matrix.scores["cell1"][0], matrix.scores["cell0"][0])
    assert pair.p == pytest.approx(expected.pvalue, abs=0.02)


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


@pytest.mark.parametrize("num_systems", [2, 3, 5, 257])
def test_every_system_lands_in_every_place_equally_often(num_systems):
    score_QK = np.tile(np.arange(num_systems, dtype=float), (2, 1))
    total = 6000 if num_systems < 10 else 150
    place_BQK = one_hot(permuted(score_QK, rng(), total))
    assert place_BQK.shape == (total, num_systems, num_systems)
    # Both queries put every system somewhere once, and no two systems in the same place.
    assert (place_BQK.sum(axis=1) == 2).all() and (place_BQK.sum(axis=2) == 2).all()
    expected = 2 * total / num_systems
    square = ((place_BQK.sum(axis=0) - expected) ** 2 / expected).sum()
    df = (num_systems - 1) ** 2
    found = square * (num_systems - 1) / num_systems
    assert abs(found - df) < 5 * np.sqrt(2 * df)


def test_queries_are_permuted_independently_of_each_other():
    score_BQK = permuted(np.tile([0.0, 1.0, 2.0], (2, 1)), rng(), 6000)
    assert (score_BQK[:, 0] == score_BQK[:, 1]).all(axis=1).mean() == pytest.approx(1 / 6, abs=0.02)


def one_hot(x_BRK):
    """How many of the queries have system i in place j, (B, i, j)."""
    num = x_BRK.shape[2]
    return (x_BRK[..., None, :] == np.arange(num)[:, None]).sum(axis=1)
