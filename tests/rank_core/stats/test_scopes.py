"""The three scopes: published vectors, parity with scipy, the traps, and the laws."""

import warnings

import numpy as np
import pytest
from scipy import stats

from rank_core.errors import BadInput
from rank_core.stats.scopes import confidence_interval, infer, paired_scope_test, scope_test
from tests.rank_core.stats.matrices import A, B


def random_pair(seed, *, S_A=3, S_B=3, Q=40, effect=0.02):
    rng = np.random.default_rng(seed)
    query_Q = rng.uniform(0.2, 0.8, Q)

    def system(S, mean):
        shift_Q = rng.normal(0, 0.05, Q)
        return query_Q + mean + shift_Q + rng.normal(0, 0.01, (S, 1)) + rng.normal(0, 0.05, (S, Q))

    return system(S_A, effect), system(S_B, 0.0)


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


def test_student_s_sleep_data_give_the_textbook_interval():
    drug_1 = np.array([[0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]])
    drug_2 = np.array([[1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]])
    test = scope_test(drug_1, drug_2)
    assert test.delta / test.se_queries == pytest.approx(-4.062128, abs=5e-7)
    assert test.df_queries == 9
    assert test.p_queries == pytest.approx(0.00283289, abs=5e-9)
    interval = confidence_interval(test, scope="queries")
    assert interval == pytest.approx((-2.459886, -0.700114), abs=5e-7)


def test_sakai_s_twenty_topics_give_the_book_s_t_test():
    X = "7 3 2 6 4 4 0 7 1 3 5 4 0 6 5 3 1 5 2 1"
    Y = "5 1 0 2 4 3 0 5 3 3 4 4 1 4 2 1 1 6 3 2"
    x_SQ, y_SQ = (np.array([text.split()], dtype=float) / 10 for text in (X, Y))
    test = scope_test(x_SQ, y_SQ)
    assert test.delta == pytest.approx(0.0750)
    assert test.variance_queries * 20 == pytest.approx(0.0251, abs=5e-5)
    assert test.delta / test.se_queries == pytest.approx(2.11576, abs=5e-6)
    assert test.p_queries == pytest.approx(0.0478, abs=5e-5)
    low, high = confidence_interval(test, scope="queries")
    assert (high - low) / 2 == pytest.approx(0.0742, abs=5e-5)


@pytest.mark.parametrize("seed", range(5))
def test_the_queries_scope_is_scipy_s_paired_t_test_on_means_over_seeds(seed):
    score_A_SQ, score_B_SQ = random_pair(seed, S_A=3, S_B=5)
    test = scope_test(score_A_SQ, score_B_SQ)
    expected = stats.ttest_rel(score_A_SQ.mean(0), score_B_SQ.mean(0))
    assert test.p_queries == pytest.approx(expected.pvalue, rel=1e-12)
    low, high = expected.confidence_interval(0.9)
    assert confidence_interval(test, 0.9, scope="queries") == pytest.approx((low, high), rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_seeds_scope_is_scipy_s_welch_test_on_the_seed_means(seed):
    score_A_SQ, score_B_SQ = random_pair(seed, S_A=4, S_B=3)
    test = scope_test(score_A_SQ, score_B_SQ)
    expected = stats.ttest_ind(score_A_SQ.mean(1), score_B_SQ.mean(1), equal_var=False)
    assert test.p_seeds == pytest.approx(expected.pvalue, rel=1e-10)
    assert test.df_seeds == pytest.approx(expected.df, rel=1e-10)


def test_paired_seeds_are_scipy_s_paired_test_on_the_seed_means():
    score_A_SQ, score_B_SQ = random_pair(7)
    expected = stats.ttest_rel(score_A_SQ.mean(1), score_B_SQ.mean(1))
    test = paired_scope_test(score_A_SQ, score_B_SQ)
    assert test.p_seeds == pytest.approx(expected.pvalue, rel=1e-10)


def test_one_seed_leaves_everything_that_needs_seed_variance_undefined():
    test = scope_test(A[:1], B)
    for name in ("p_seeds", "p_both", "se_seeds", "se_both", "df_seeds", "df_both"):
        assert np.isnan(getattr(test, name)), name
    assert np.isnan(confidence_interval(test)).all()
    assert test.p_queries == pytest.approx(stats.ttest_rel(A[0], B.mean(0)).pvalue, rel=1e-12)
    assert np.isnan(paired_scope_test(A[:1], B[:1]).p_both)


@pytest.mark.parametrize("compare", [scope_test, paired_scope_test])
@pytest.mark.parametrize("num_seeds", [1, 3])
def test_a_system_against_itself_has_p_one_without_a_warning(compare, num_seeds):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        test = compare(A[:num_seeds], A[:num_seeds].copy())
    assert (test.delta, test.p_queries, test.se_queries) == (0, 1, 0)
    if num_seeds > 1:
        assert (test.p_seeds, test.p_both) == (1, 1)


def test_a_system_against_its_own_seeds_in_another_order_has_p_one():
    test = scope_test(A, A[[2, 0, 1]])
    assert (test.delta, test.p_queries, test.p_both) == (0, 1, 1)


def test_a_constant_difference_is_flagged_and_leaves_no_nan():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        test = scope_test(A + 0.1, A)
    assert test.se_queries == 0
    assert test.p_queries == 0
    assert 0 < test.p_both < 1  # the seeds still vary
    assert scope_test(A, B).se_queries > 0


def test_two_collapsed_systems_have_p_one_and_one_collapsed_system_still_has_a_test():
    zero_SQ = np.zeros((3, 8))
    collapsed = scope_test(zero_SQ, zero_SQ)
    assert (collapsed.p_queries, collapsed.p_seeds, collapsed.p_both) == (1, 1, 1)
    one = scope_test(A, zero_SQ)
    assert one.df_seeds == pytest.approx(2)
    assert 0 < one.p_both < 0.05


def test_seed_variance_can_only_add_to_the_variance_of_the_queries():
    for seed in range(20):
        test = scope_test(*random_pair(seed))
        assert test.se_both >= test.se_queries
        assert test.p_both >= test.p_queries - 1e-15


def numbers_of(test):
    return {name: value for name, value in vars(test).items() if name != "welch"}


LAWS = {
    "permuting the queries": lambda a, b: (a[:, ::-1], b[:, ::-1]),
    "permuting the seeds": lambda a, b: (a[[2, 0, 1]], b[[1, 2, 0]]),
    "adding a constant per query": lambda a, b: (
        a + np.linspace(0, 1, a.shape[1]),
        b + np.linspace(0, 1, a.shape[1]),
    ),
}


@pytest.mark.parametrize("law", LAWS)
def test_the_test_is_unchanged_by(law):
    before, after = scope_test(A, B), scope_test(*LAWS[law](A, B))
    for name, value in numbers_of(before).items():
        assert getattr(after, name) == pytest.approx(value, rel=1e-9), name


def test_swapping_the_systems_changes_the_sign_only():
    before, after = scope_test(A, B), scope_test(B, A)
    assert after.delta == -before.delta
    for name in ("p_queries", "p_seeds", "p_both", "se_both", "df_both"):
        assert getattr(after, name) == pytest.approx(getattr(before, name), rel=1e-12)


@pytest.mark.parametrize("factor", [1e-3, 100.0])
def test_scaling_all_scores_changes_no_p(factor):
    before, after = scope_test(A, B), scope_test(A * factor, B * factor)
    assert after.delta == pytest.approx(before.delta * factor)
    for name in ("p_queries", "p_seeds", "p_both", "df_both"):
        assert getattr(after, name) == pytest.approx(getattr(before, name), rel=1e-9)


def test_many_comparisons_at_once_give_what_each_gives_alone():
    singles = [scope_test(*random_pair(seed)) for seed in range(4)]
    columns = {name: np.array([getattr(t, name) for t in singles]) for name in vars(singles[0])}
    found = infer(
        delta=columns["delta"],
        variance_queries=columns["variance_queries"],
        variance_seeds=(columns["variance_seeds_a"], columns["variance_seeds_b"]),
        variance_error=(columns["variance_error_a"], columns["variance_error_b"]),
        num_seeds=(3, 3),
        num_queries=40,
    )
    for name in ("p_queries", "p_seeds", "p_both", "df_both"):
        np.testing.assert_allclose(getattr(found, name), columns[name], rtol=1e-12)


@pytest.mark.parametrize(
    ("a", "b", "law"),
    [
        (A, B[:, :5], "same queries, got 8 and 5"),
        (A[0], B[0], "seeds x queries"),
        (A[:, :1], B[:, :1], "at least 1 seed and 2 queries"),
        (np.where(A == 0.5, np.nan, A), B, "finite"),
    ],
)
def test_scores_that_cannot_be_compared_are_refused(a, b, law):
    with pytest.raises(BadInput, match=law):
        scope_test(a, b)


def test_paired_seeds_of_different_number_are_refused():
    with pytest.raises(BadInput, match="same seeds and queries"):
        paired_scope_test(A, B[:2])


def test_an_unknown_scope_and_an_impossible_level_are_refused():
    with pytest.raises(BadInput, match="unknown scope 'query'; did you mean queries"):
        confidence_interval(scope_test(A, B), scope="query")
    with pytest.raises(BadInput, match="0 < level < 1"):
        confidence_interval(scope_test(A, B), 95)


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


def test_several_runs_cannot_be_declared_deterministic():
    with pytest.raises(BadInput, match="must have one run, got 3"):
        scope_test(A, B, deterministic=(False, True))
