"""The expected best of n trials against the published example and full enumeration."""

from itertools import combinations

import numpy as np
import pytest

from rank_core.errors import BadInput
from rank_core.stats.search_curve import expected_best, search_curve

VALUES = [0.3, 0.1, 0.4, 0.2]


def test_the_published_example_without_replacement():
    assert expected_best(VALUES, 2) == pytest.approx(1 / 3)


@pytest.mark.parametrize("num_trials", [1, 2, 3, 4, 5, 6])
def test_it_is_the_mean_over_all_subsets(num_trials):
    values = np.random.default_rng(0).uniform(size=6).round(1)  # rounded: with ties
    expected = np.mean([max(subset) for subset in combinations(values, num_trials)])
    assert expected_best(values, num_trials) == pytest.approx(expected, rel=1e-12)


def test_the_curve_rises_from_the_mean_to_the_best_and_carries_the_cost():
    curve = search_curve(VALUES, mean_cost=1.5)
    best = [point.expected_best for point in curve]
    assert best == sorted(best)
    assert (best[0], best[-1]) == pytest.approx((0.25, 0.4))
    assert [(point.num_trials, point.cost) for point in curve] == [
        (1, 1.5),
        (2, 3.0),
        (3, 4.5),
        (4, 6.0),
    ]


def test_a_thousand_trials_do_not_overflow():
    values = np.linspace(0, 1, 1000)
    assert 0.99 < expected_best(values, 500) < 1


@pytest.mark.parametrize(
    ("values", "num_trials", "law"),
    [
        (VALUES, 5, "1 <= num_trials <= 4"),
        (VALUES, 0, "1 <= num_trials <= 4"),
        ([], 1, "finite values"),
        ([0.1, float("nan")], 1, "count a diverged trial as 0"),
    ],
)
def test_what_has_no_best_is_refused(values, num_trials, law):
    with pytest.raises(BadInput, match=law):
        expected_best(values, num_trials)
