"""The randomised Tukey test against the book's example, scipy and its own laws."""

import numpy as np
import pytest
from scipy import stats

from rank_core.errors import BadInput
from rank_core.stats.permutation import permuted, randomised_tukey
from tests.rank_core.stats.matrices import SAKAI, matrix_of


def sakai():
    return matrix_of(
        {name: np.array(text.split(), dtype=float) / 10 for name, text in SAKAI.items()}
    )


def noise(seed, *, num_cells=4, Q=40, effects=(0, 0, 0, 0)):
    rng = np.random.default_rng(seed)
    query_Q = rng.uniform(0, 1, Q)
    return matrix_of(
        {f"cell{k}": query_Q + effects[k] + rng.normal(0, 0.1, Q) for k in range(num_cells)}
    )


def rng(seed=1):
    return np.random.default_rng(seed)


def test_the_randomised_tukey_test_gives_the_book_s_example():
    found = randomised_tukey(sakai(), rng=rng(), num_permutations=20_000)
    assert [(c.system, c.baseline) for c in found] == [("X", "Y"), ("X", "Z"), ("Y", "Z")]
    # Three standard errors of 20,000 permutations are .010, the book's own simulation adds some.
    assert [c.p_adjusted for c in found] == pytest.approx([0.302, 0.106, 0.890], abs=0.012)


def test_blocking_by_query_finds_more_than_the_unblocked_test():
    values = [row[0] for row in sakai().scores.values()]
    unblocked = stats.tukey_hsd(*values).pvalue[0, 2]
    blocked = randomised_tukey(sakai(), rng=rng(), num_permutations=4000)[1].p_adjusted
    assert unblocked == pytest.approx(0.196, abs=5e-4)
    assert blocked < 0.13


def test_two_cells_make_it_a_plain_permutation_test():
    matrix = noise(3, num_cells=2, effects=(0, 0.03))
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


def test_the_range_is_never_stricter_than_bonferroni_by_more_than_chance():
    for pair in randomised_tukey(noise(5, effects=(0, 0.04, 0.05, 0.0)), rng=rng()):
        assert pair.p_adjusted <= 6 * pair.p + 0.02


def test_equal_systems_and_a_constant_gap_give_no_nan():
    values = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    matrix = matrix_of({"a": values, "same": values, "above": [value + 0.1 for value in values]})
    pairs = randomised_tukey(matrix, rng=rng(), num_permutations=200)
    same, above, _ = pairs
    assert (same.statistic, same.p_adjusted) == (0, 1)
    assert 0 < above.p_adjusted < 0.5


@pytest.mark.parametrize("num_cells", [4, 300])
def test_one_and_eight_threads_give_the_same_values(num_cells, monkeypatch):
    # Small pieces: many blocks, and several pieces of queries in each.
    monkeypatch.setattr("rank_core.stats.permutation._PIECE", 40)
    matrix = noise(6, num_cells=num_cells, Q=23, effects=[0.01 * (k % 5) for k in range(num_cells)])
    one, eight, again = (
        randomised_tukey(matrix, rng=rng(), num_permutations=75, threads=threads)
        for threads in (1, 8, 8)
    )
    assert one == eight == again
    other = randomised_tukey(matrix, rng=rng(2), num_permutations=75, threads=8)
    assert [pair.p for pair in other] != [pair.p for pair in one]


def test_a_second_call_with_the_same_generator_draws_other_permutations():
    matrix, shared = noise(8), rng()
    first, second = (randomised_tukey(matrix, rng=shared, num_permutations=200) for _ in range(2))
    assert [pair.p for pair in first] != [pair.p for pair in second]


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


def test_what_cannot_be_permuted_is_refused():
    with pytest.raises(BadInput, match="two cells, got a"):
        randomised_tukey(matrix_of({"a": [0.1, 0.2]}), rng=rng())
    with pytest.raises(BadInput, match="num_permutations >= 1"):
        randomised_tukey(noise(7), rng=rng(), num_permutations=0)
    with pytest.raises(BadInput, match="threads >= 1"):
        randomised_tukey(noise(7), rng=rng(), num_permutations=9, threads=0)
