"""Factors of a grid: the test of two cells generalised, and its error rates."""

import math
from typing import Any

import pytest

from rank_core.stats.factors import ANY, INTERACTION, FactorTest, factor_tests
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.scopes import scope_test
from tests.rank_core.stats.matrices import drawn

SQUARE = [(w, s) for w in (1, 2, 3) for s in (1, 2, 3)]
TRIANGLE = [(w, s) for w in (1, 2, 3, 4) for s in (1, 2, 3, 4) if s <= w]


def _grid(
    places: list[tuple[int, int]], window_effect: float = 0.0, **settings: Any
) -> tuple[ScoreMatrix, dict[str, dict[str, object]]]:
    effects = {f"w{w}s{s}": window_effect * w for w, s in places}
    matrix = drawn(effects, **({"Q": 145, "own_sd": 0.04, "residual": 0.04} | settings))
    return matrix, {f"w{w}s{s}": {"window": w, "stride": s} for w, s in places}


def _run(places: list[tuple[int, int]], **changes: Any) -> list[FactorTest]:
    matrix, levels = _grid(places, **changes)
    return factor_tests(matrix, levels=levels)


def _by_name(tests: list[FactorTest]) -> dict[str, FactorTest]:
    return {test.factor: test for test in tests}


def test_for_two_cells_it_is_the_test_of_their_difference() -> None:
    matrix, _ = _grid([(1, 1), (2, 1)], window_effect=0.01)
    found = _by_name(factor_tests(matrix, levels={"w1s1": {"w": 1}, "w2s1": {"w": 2}}))
    expected = scope_test(matrix.scores["w1s1"], matrix.scores["w2s1"])
    for name in ("w", ANY):
        assert found[name].statistic == pytest.approx((expected.delta / expected.se_both) ** 2)
        assert found[name].df == pytest.approx(1)
        assert found[name].df_error == pytest.approx(expected.df_both)
        assert found[name].p == pytest.approx(expected.p_both)


@pytest.mark.parametrize("places", [SQUARE, TRIANGLE], ids=["square", "triangle"])
def test_a_planted_factor_is_found_and_not_laid_on_the_other(places: list[tuple[int, int]]) -> None:
    found = _by_name(_run(places, window_effect=0.03))
    assert found["window"].p < 1e-4 and found[ANY].p < 1e-4
    assert found["stride"].p > 0.01 and found[INTERACTION].p > 0.01


def test_factors_that_move_together_cannot_be_told_apart() -> None:
    found = _by_name(_run([(1, 1), (2, 2), (3, 3)], window_effect=0.05))
    assert found["window"].rank == found["stride"].rank == found[INTERACTION].rank == 0
    assert math.isnan(found["window"].p)
    assert found[ANY].rank == 2 and found[ANY].p < 1e-3


def test_one_seed_cannot_answer_and_equal_cells_do_not_differ() -> None:
    assert all(math.isnan(test.p) for test in _run(SQUARE, S=1))
    matrix, levels = _grid([(1, 1), (2, 1)])
    matrix.scores["w2s1"] = matrix.scores["w1s1"]
    found = _by_name(factor_tests(matrix, levels=levels))
    assert found["window"].p > 0.9999 and found[ANY].p > 0.9999
