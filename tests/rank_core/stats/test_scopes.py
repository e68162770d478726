"""The three scopes: published vectors, parity with scipy, the traps, and the laws."""

import dataclasses
import warnings

import numpy as np
import pytest
from scipy import stats

from rank_core.stats.scopes import confidence_interval, equivalence_p, paired_scope_test, scope_test
from tests.rank_core.stats.matrices import A, B, drawn


def test_the_worked_example_has_its_published_numbers():
    test = scope_test(A, B)
    assert test.delta == pytest.approx(0.0708333, abs=5e-8)
    assert test.variance_queries == pytest.approx(1.102183e-4, rel=1e-6)
    assert test.variance_seeds_a == pytest.approx(1.357465e-3, rel=1e-6)
    assert test.variance_seeds_b == pytest.approx(1.054688e-3, rel=1e-6)
    assert test.variance_error_a == pytest.approx(1.063988e-5, rel=1e-6)
    assert test.variance_error_b == pytest.approx(1.024306e-5, rel=1e-6)
    assert test.se_both**2 == pytest.approx(2.501488e-3, rel=1e-6)
    assert test.se_both == pytest.approx(0.0500149, abs=5e-8)
    assert test.df_both == pytest.approx(4.23003, abs=5e-6)
    assert test.delta / test.se_both == pytest.approx(1.416245, abs=5e-7)
    assert test.p_queries == pytest.approx(0.000265738, abs=5e-10)
    assert test.p_seeds == pytest.approx(0.223775, abs=5e-7)
    assert test.p_both == pytest.approx(0.225944, abs=5e-7)


def test_the_worked_example_with_one_seed_and_with_paired_seeds():
    assert scope_test(A[:1], B[:1]).p_queries == pytest.approx(0.000943, abs=5e-7)
    paired = paired_scope_test(A, B)
    assert paired.variance_queries == pytest.approx(2.645238e-3 / 24, rel=1e-6)
    assert paired.variance_seeds_a == pytest.approx(5.166667e-4 / 24, rel=1e-6)
    assert paired.variance_error_a == pytest.approx(8.023810e-4 / 24, rel=1e-6)
    assert (paired.variance_seeds_b, paired.variance_error_b) == (0, 0)
    assert paired.se_both == paired.se_queries  # the seed part is cut at 0


def unlike(seed):
    """Scores of two systems, of five seeds and of three."""
    one, other = drawn({"a": 0.02, "b": 0.0}, S=5, Q=40, seed=seed, own_sd=0.05).scores.values()
    return one, other[:3]


@pytest.mark.parametrize("seed", range(3))
def test_the_queries_scope_is_scipy_s_paired_t_test_on_means_over_seeds(seed):
    score_A_SQ, score_B_SQ = unlike(seed)
    test = scope_test(score_A_SQ, score_B_SQ)
    expected = stats.ttest_rel(score_A_SQ.mean(0), score_B_SQ.mean(0))
    assert test.p_queries == pytest.approx(expected.pvalue, rel=1e-12)
    low, high = expected.confidence_interval(0.9)
    assert confidence_interval(test, 0.9, scope="queries") == pytest.approx((low, high), rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_the_seeds_scope_is_scipy_s_welch_test_on_the_seed_means(seed):
    score_A_SQ, score_B_SQ = unlike(seed)
    test = scope_test(score_A_SQ, score_B_SQ)
    expected = stats.ttest_ind(score_A_SQ.mean(1), score_B_SQ.mean(1), equal_var=False)
    assert test.p_seeds == pytest.approx(expected.pvalue, rel=1e-10)
    assert test.df_seeds == pytest.approx(expected.df, rel=1e-10)


@pytest.mark.parametrize("compare", [scope_test, paired_scope_test])
@pytest.mark.parametrize("num_seeds", [1, 3])
def test_a_system_against_itself_has_p_one_without_a_warning(compare, num_seeds):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        test = compare(A[:num_seeds], A[:num_seeds].copy())
    assert (test.delta, test.p_queries, test.se_queries) == (0, 1, 0)
    if num_seeds > 1:
        assert (test.p_seeds, test.p_both) == (1, 1)


def test_a_constant_difference_is_flagged_and_leaves_no_nan():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        test = scope_test(A + 0.1, A)
    assert test.se_queries == 0
    assert test.p_queries == 2**-7  # of the signs of eight queries
    assert 2**-7 <= test.p_both < 1  # the seeds still vary
    assert scope_test(A, B).se_queries > 0


def test_a_deterministic_side_adds_no_seed_variance_by_declaration():
    # By hand from the worked example: B's Vs and Ve are published, A is its first run alone.
    found = scope_test(A[:1], B, deterministic=(True, False))
    delta_Q = A[0] - B.mean(axis=0)
    variance_queries = delta_Q.var(ddof=1) / 8
    V_s, V_e = 1.054688e-3, 1.024306e-5
    variance = variance_queries + V_s - V_e
    df = variance**2 / (variance_queries**2 / 7 + V_s**2 / 2 + V_e**2 / (2 * 7))
    assert found.se_both == pytest.approx(np.sqrt(variance), rel=1e-6)
    assert found.welch.satterthwaite == pytest.approx(df, rel=1e-5)
    assert found.df_both == 2  # not fewer than the three seeds of the one trained side leave
    p = 2 * stats.t.sf(abs(delta_Q.mean()) / np.sqrt(variance), df)
    assert p < found.p_both < 2 * stats.t.sf(abs(delta_Q.mean()) / np.sqrt(variance), 2) + 1e-12
    # Seeds alone: B's three means against a constant, Student's one-sample test.
    seeds = stats.ttest_1samp(B.mean(axis=1), A[0].mean())
    assert found.p_seeds == pytest.approx(seeds.pvalue, rel=1e-9) and found.df_seeds == 2
    assert found.p_queries == pytest.approx(stats.ttest_rel(A[0], B.mean(axis=0)).pvalue, rel=1e-9)
    assert (found.variance_seeds_a, found.variance_error_a) == (0, 0)
    turned = scope_test(B, A[:1], deterministic=(False, True))
    assert (turned.p_both, turned.delta) == (pytest.approx(found.p_both, rel=1e-9), -found.delta)


def test_two_deterministic_systems_differ_by_their_queries_only():
    found = scope_test(A[:1], B[:1], deterministic=(True, True))
    assert found.p_both == found.p_queries and found.df_both == 7
    assert found.p_seeds == 0 and scope_test(A[:1], A[:1], deterministic=(True, True)).p_seeds == 1
    assert np.isnan(scope_test(A[:1], B[:1], deterministic=(True, False)).p_both)


PAIR = drawn({"first": 0.01, "second": 0.0}, S=4).scores.values()


def a_test(**changes):
    return dataclasses.replace(scope_test(*PAIR), **changes)


@pytest.mark.parametrize("margin", [0.001, 0.01, 0.02, 0.03, 0.05])
def test_equivalence_is_shown_exactly_when_the_interval_lies_inside_the_margin(margin):
    low, high = confidence_interval(a_test(), 0.9)
    inside = -margin < low and high < margin
    assert (equivalence_p(a_test(), margin=margin) < 0.05) == inside
