"""The interval of a look is that of a sum of Student's t, and many looks keep their promise."""

import math

import numpy as np
import pytest
from scipy import stats

from rank_core.stats.behrens_fisher import half_width, two_part_p
from rank_core.stats.looks import interval_of_look, level_of_look, parts_of
from rank_core.stats.scopes import confidence_interval, scope_test

LEVELS = (0.05, 0.005, 0.001, 0.00025)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("df", [1.3, 2.0, 4.0, 99.0])
def test_one_part_has_the_half_width_of_its_t(df: float, level: float) -> None:
    assert half_width([(4.0, df)], level) == pytest.approx(2 * stats.t.isf(level / 2, df), rel=1e-5)
    with_none = [(4.0, df), (0.0, 2.0), (0.0, math.inf)]
    assert half_width(with_none, level) == half_width([(4.0, df)], level)


@pytest.mark.parametrize("level", LEVELS)
def test_known_variances_add(level: float) -> None:
    parts = [(1.0, 1e9), (2.0, 1e9), (6.0, 1e9)]
    assert half_width(parts, level) == pytest.approx(3 * stats.norm.isf(level / 2), rel=1e-5)


def test_a_published_quantile_of_behrens_and_fisher() -> None:
    """Fisher and Yates (1963), table VI: 6 and 12 degrees of freedom at an angle of 45 degrees,
    5%: 2.301; 8 and 8: 2.292."""
    for f, g, angle, expected in ((6, 12, 45, 2.301), (8, 8, 45, 2.292)):
        parts = [
            (math.sin(math.radians(angle)) ** 2, f),
            (math.cos(math.radians(angle)) ** 2, g),
        ]
        assert half_width(parts, 0.05) == pytest.approx(expected, abs=0.0015)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("queries", [19.0, 99.0])
@pytest.mark.parametrize("runs", [2.0, 2.5, 6.0])
@pytest.mark.parametrize("share", [0.0, 0.01, 1.0, 100.0])
def test_p_is_the_level_of_the_interval_that_ends_at_0(
    share: float, runs: float, queries: float, level: float
) -> None:
    parts = (0.5, queries), (0.5 * share, runs)
    half = half_width(parts, level)
    assert two_part_p(-half, *parts) == pytest.approx(level, rel=2e-4)
    many = tuple((np.full((2, 3), V), np.full((2, 3), f)) for V, f in parts)
    assert two_part_p(np.full((2, 3), half), *many) == pytest.approx(level, rel=2e-4)
    assert two_part_p(0.0, *parts) == pytest.approx(1)


def test_without_a_variance_p_is_1_for_no_difference_and_0_else() -> None:
    found = two_part_p(np.array([0.0, 0.1]), (np.zeros(2), 9.0), (np.zeros(2), 2.0))
    assert found.tolist() == pytest.approx([1, 0])


def test_a_sum_of_drawn_t_is_as_often_beyond_as_the_level() -> None:
    rng, parts = np.random.default_rng(1), [(1.0, 99.0), (0.3, 2.0), (0.1, 4.0)]
    drawn = sum(math.sqrt(V) * rng.standard_t(f, 1_000_000) for V, f in parts)
    for level in (0.05, 0.005):
        rate = (np.abs(drawn) > half_width(parts, level)).mean()
        assert rate == pytest.approx(level, abs=4 * math.sqrt(level / 1e6))


def made(S: int, seed: int = 3, Q: int = 100):
    rng = np.random.default_rng(seed)
    one, other = (
        rng.normal(0, 0.1, Q) + rng.normal(0, 0.02, (S, 1)) + rng.normal(0, 0.05, (S, Q))
        for _ in "ab"
    )
    return scope_test(one, other[:1], deterministic=(False, True)), scope_test(one, other)


@pytest.mark.parametrize("seed", range(5))
def test_an_interval_of_a_look_is_that_of_many_runs_and_wider_of_few(seed: int) -> None:
    for test in made(60, seed):
        ours, welch = interval_of_look(test, 0.001), confidence_interval(test, 0.999)
        assert ours == pytest.approx(welch, abs=0.02 * (welch[1] - welch[0]))
    for test in made(3, seed):
        ours, welch = interval_of_look(test, 0.001), confidence_interval(test, 0.999)
        assert ours[1] - ours[0] > 0.99 * (welch[1] - welch[0])
    assert ours[1] - ours[0] > 1.5 * (welch[1] - welch[0]), "both sides have three runs"


def test_more_queries_and_runs_have_smaller_parts() -> None:
    _, test = made(5)
    plain = parts_of(test)
    assert sum(V for V, _ in plain) == pytest.approx(test.se_both**2)
    assert [f for _, f in plain] == [99, 4, 4]
    twice = parts_of(test, queries=2, runs=2)
    assert [f for _, f in twice] == [199, 9, 9]
    assert all(more < V for (more, _), (V, _) in zip(twice, plain, strict=True))
    alone = parts_of(test, queries=4)
    assert alone[0][0] == pytest.approx(plain[0][0] / 4)
    for (less, _), V_s, V_e in (
        (alone[1], test.variance_seeds_a, test.variance_error_a),
        (alone[2], test.variance_seeds_b, test.variance_error_b),
    ):
        assert less == pytest.approx(V_s - 0.75 * V_e)


def test_what_nothing_varies_in_has_no_interval() -> None:
    same = np.full((1, 10), 0.5)
    test = scope_test(same + 0.1, same, deterministic=(True, True))
    assert all(map(math.isnan, interval_of_look(test, 0.001)))
    assert all(map(math.isnan, interval_of_look(scope_test(same, same + 0.1), 0.001)))


def test_all_looks_together_have_a_bounded_level() -> None:
    levels = [level_of_look(0.05, number) for number in range(1, 1000)]
    assert levels[:3] == [0.05, 0.0125, 0.05 / 9] and sum(levels) < 0.05 * math.pi**2 / 6
