"""Effect sizes against published numbers, and their limits."""

import math

import numpy as np
import pytest
from scipy import stats

from rank_core.errors import BadInput
from rank_core.stats.effect_size import (
    Superiority,
    probability_of_superiority,
    runs_needed,
    standardised_difference,
)
from rank_core.stats.scopes import infer, scope_test, two_sided_p


def test_sakai_s_twenty_topics_have_the_book_s_effect_size():
    X = "7 3 2 6 4 4 0 7 1 3 5 4 0 6 5 3 1 5 2 1"
    Y = "5 1 0 2 4 3 0 5 3 3 4 4 1 4 2 1 1 6 3 2"
    test = scope_test(*(np.array([text.split()], dtype=float) / 10 for text in (X, Y)))
    assert standardised_difference(test, num_queries=20) == pytest.approx(0.473, abs=5e-4)


def test_urbano_s_fifty_topics_follow_from_their_mean_and_deviation():
    # The TREC-8 ad hoc example of Urbano's software, from its printed summary.
    mean, deviation, Q = 0.053008, 0.1100060, 50
    found = infer(
        delta=mean,
        variance_queries=deviation**2 / Q,
        variance_seeds=(math.nan, math.nan),
        variance_error=(math.nan, math.nan),
        num_seeds=(1, 1),
        num_queries=Q,
    )
    assert mean / found.se_queries == pytest.approx(3.4072971705, rel=2e-5)
    assert found.p_queries == pytest.approx(0.0013193972, rel=1e-4)
    one_sided = two_sided_p(mean, found.se_queries, found.df_queries) / 2
    assert one_sided == pytest.approx(0.0006596986, rel=1e-4)
    half = stats.t.isf(0.025, Q - 1) * found.se_queries
    assert (mean - half, mean + half) == pytest.approx((0.0217446, 0.0842714), abs=1e-6)
    assert mean / deviation == pytest.approx(0.4818646, abs=5e-6)
    assert math.isnan(found.p_both)


def test_the_standardised_difference_is_that_of_the_means_over_seeds():
    rng = np.random.default_rng(0)
    score_A_SQ, score_B_SQ = rng.normal(0.5, 0.1, (2, 3, 40))
    delta_Q = score_A_SQ.mean(axis=0) - score_B_SQ.mean(axis=0)
    test = scope_test(score_A_SQ, score_B_SQ)
    found = standardised_difference(test, num_queries=40)
    assert found == pytest.approx(delta_Q.mean() / delta_Q.std(ddof=1))
    scaled = scope_test(100 * score_A_SQ, 100 * score_B_SQ)
    assert standardised_difference(scaled, num_queries=40) == pytest.approx(found)


def test_equal_systems_have_no_effect_and_a_constant_gap_an_infinite_one():
    score_SQ = np.random.default_rng(1).uniform(size=(3, 20))
    same = scope_test(score_SQ, score_SQ)
    above = scope_test(score_SQ + 0.1, score_SQ)
    below = scope_test(score_SQ, score_SQ + 0.1)
    found = [standardised_difference(test, num_queries=20) for test in (same, above, below)]
    assert found == [0, math.inf, -math.inf]


def runs(*means):
    """Runs with these means on two queries."""
    return np.array([[mean - 0.1, mean + 0.1] for mean in means])


@pytest.mark.parametrize(
    ("A", "B", "expected"),
    [
        ((0.5, 0.6), (0.3, 0.4), 1.0),
        ((0.3, 0.4), (0.5, 0.6), 0.0),
        ((0.3, 0.5), (0.4, 0.6), 0.25),
        ((0.4, 0.6), (0.3, 0.5), 0.75),
        ((0.5, 0.5), (0.5, 0.5), 0.5),
        ((0.5,), (0.4, 0.5, 0.6), 0.5),
    ],
)
def test_the_probability_of_a_better_run_counts_pairs_and_halves_ties(A, B, expected):
    found = probability_of_superiority(runs(*A), runs(*B))
    assert found == Superiority(pytest.approx(expected), len(A) * len(B))


def test_the_probability_is_that_of_the_mann_whitney_statistic_and_turns_with_its_sides():
    rng = np.random.default_rng(2)
    score_A_SQ, score_B_SQ = rng.normal(0.52, 0.1, (5, 30)), rng.normal(0.5, 0.1, (4, 30))
    found = probability_of_superiority(score_A_SQ, score_B_SQ).probability
    U = stats.mannwhitneyu(score_A_SQ.mean(axis=1), score_B_SQ.mean(axis=1)).statistic
    assert found == pytest.approx(U / 20)
    turned = probability_of_superiority(score_B_SQ, score_A_SQ).probability
    assert found + turned == pytest.approx(1)


def test_noether_s_number_of_runs_is_the_published_29():
    assert runs_needed(0.75, alpha=0.05, power=0.95) == pytest.approx(28.86, abs=0.005)
    assert math.ceil(runs_needed()) == 29
    assert runs_needed(0.25) == pytest.approx(runs_needed(0.75))


def test_a_smaller_effect_needs_more_runs_and_none_needs_infinitely_many():
    assert runs_needed(0.6) > runs_needed(0.75) > runs_needed(0.9)
    assert runs_needed(0.5) == math.inf


@pytest.mark.parametrize(
    ("settings", "law"),
    [
        ({"probability": 1.5}, "0 <= probability <= 1"),
        ({"alpha": 0}, "0 < alpha < 1"),
        ({"power": 95}, "0 < power < 1"),
    ],
)
def test_what_is_no_probability_is_refused(settings, law):
    with pytest.raises(BadInput, match=law):
        runs_needed(**settings)
