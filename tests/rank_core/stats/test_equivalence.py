"""Two one-sided tests agree with the interval, with scipy, and with a pivot that is known."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from rank_core.errors import BadInput
from rank_core.stats.equivalence import equivalence_p
from rank_core.stats.scopes import confidence_interval, scope_test


def pair(seed=0, *, S=4, Q=60, effect=0.01):
    rng = np.random.default_rng(seed)
    query_Q = rng.uniform(0.2, 0.8, Q)
    first, second = (
        query_Q + shift + rng.normal(0, 0.005, (S, 1)) + rng.normal(0, 0.05, (S, Q))
        for shift in (effect, 0.0)
    )
    return first, second


def a_test(**changes):
    return dataclasses.replace(scope_test(*pair()), **changes)


@pytest.mark.parametrize("margin", [0.001, 0.01, 0.02, 0.03, 0.05])
def test_equivalence_is_shown_exactly_when_the_interval_lies_inside_the_margin(margin):
    low, high = confidence_interval(a_test(), 0.9)
    inside = -margin < low and high < margin
    assert (equivalence_p(a_test(), margin=margin) < 0.05) == inside


def test_equivalence_of_deterministic_systems_is_two_one_sided_scipy_tests():
    first_SQ, second_SQ = pair(S=1)
    delta_Q = first_SQ[0] - second_SQ[0]
    below = stats.ttest_1samp(delta_Q, 0.02, alternative="less").pvalue
    above = stats.ttest_1samp(delta_Q, -0.02, alternative="greater").pvalue
    found = equivalence_p(scope_test(first_SQ, second_SQ, deterministic=(True, True)), margin=0.02)
    assert found == pytest.approx(max(below, above), rel=1e-9)


def test_a_known_pivot_has_the_tail_of_student_s_t():
    found = equivalence_p(a_test(delta=0.005, se_both=0.01, df_both=5.0), margin=0.01)
    assert found == pytest.approx(stats.t.sf(0.5, 5))


def test_without_spread_everything_lies_on_one_side():
    certain = a_test(delta=0.02, se_both=0.0)
    assert equivalence_p(certain, margin=0.03) == 0
    assert equivalence_p(certain, margin=0.01) == 1


def test_one_seed_leaves_equivalence_undefined():
    first_SQ, second_SQ = pair()
    assert math.isnan(equivalence_p(scope_test(first_SQ[:1], second_SQ), margin=0.01))


def test_a_margin_that_is_none_is_refused():
    with pytest.raises(BadInput, match="margin > 0"):
        equivalence_p(a_test(), margin=0)
