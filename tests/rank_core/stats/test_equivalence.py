"""One-sided limits, TOST and the region of practical equivalence agree with each other."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from rank_core.errors import BadInput
from rank_core.stats.equivalence import (
    equivalence_p,
    rope,
    upper_limit,
)
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


def test_the_one_sided_limit_is_the_end_of_a_ninety_percent_interval():
    test = a_test()
    assert upper_limit(test) == pytest.approx(confidence_interval(test, 0.9)[1])


@pytest.mark.parametrize("margin", [0.001, 0.01, 0.02, 0.03, 0.05])
def test_equivalence_is_shown_exactly_when_the_interval_lies_inside_the_margin(margin):
    low, high = confidence_interval(a_test(), 0.9)
    inside = -margin < low and high < margin
    assert (equivalence_p(a_test(), margin=margin) < 0.05) == inside


def test_equivalence_in_the_queries_scope_is_two_one_sided_scipy_tests():
    first_SQ, second_SQ = pair()
    delta_Q = first_SQ.mean(axis=0) - second_SQ.mean(axis=0)
    below = stats.ttest_1samp(delta_Q, 0.02, alternative="less").pvalue
    above = stats.ttest_1samp(delta_Q, -0.02, alternative="greater").pvalue
    found = equivalence_p(scope_test(first_SQ, second_SQ), margin=0.02, scope="queries")
    assert found == pytest.approx(max(below, above), rel=1e-9)


def test_the_three_shares_sum_to_one_and_turn_around_with_the_sign():
    shares = rope(a_test(), margin=0.01)
    assert shares.below + shares.within + shares.above == pytest.approx(1)
    turned = rope(a_test(delta=-a_test().delta), margin=0.01)
    assert (turned.below, turned.within) == pytest.approx((shares.above, shares.within))


def test_a_known_pivot_has_the_shares_of_student_s_t():
    shares = rope(a_test(delta=0.0, se_both=0.01, df_both=5.0), margin=0.01)
    assert shares.above == pytest.approx(stats.t.sf(1, 5))
    assert shares.within == pytest.approx(1 - 2 * stats.t.sf(1, 5))


def test_without_spread_everything_lies_on_one_side():
    certain = a_test(delta=0.02, se_both=0.0)
    assert rope(certain, margin=0.01).above == 1
    assert equivalence_p(certain, margin=0.03) == 0
    assert equivalence_p(certain, margin=0.01) == 1


def test_one_seed_leaves_equivalence_undefined():
    first_SQ, second_SQ = pair()
    single = scope_test(first_SQ[:1], second_SQ)
    assert math.isnan(upper_limit(single)) and math.isnan(rope(single, margin=0.01).within)


def test_impossible_settings_are_refused():
    with pytest.raises(BadInput, match="margin > 0"):
        rope(a_test(), margin=0)
    with pytest.raises(BadInput, match="unknown scope"):
        upper_limit(a_test(), scope="runs")
    with pytest.raises(BadInput, match="0 < level < 1"):
        upper_limit(a_test(), level=95)
