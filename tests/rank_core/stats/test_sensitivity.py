"""Wilcoxon's test with its options pinned, on textbook data and on what breaks it."""

import numpy as np
import pytest
from scipy import stats

from rank_core.errors import BadInput
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.sensitivity import signed_rank, signed_rank_p

# Student's sleep data: extra hours of sleep of ten patients under two drugs.
FIRST = np.array([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0])
SECOND = np.array([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])


def test_student_s_sleep_data_give_the_published_p():
    assert signed_rank_p(FIRST - SECOND) == pytest.approx(0.00909070, abs=5e-9)


def test_the_approximation_is_pinned_where_scipy_s_default_is_exact():
    delta_Q = np.random.default_rng(1).normal(0.03, 0.1, 50)
    pinned = stats.wilcoxon(delta_Q, method="approx", correction=True).pvalue
    assert signed_rank_p(delta_Q) == pytest.approx(pinned, rel=1e-12)
    assert stats.wilcoxon(delta_Q).pvalue != pytest.approx(pinned, rel=1e-3)
    # By hand: the mean and variance of the rank sum without ties, half a step towards the mean.
    rank_sum = stats.rankdata(np.abs(delta_Q))[delta_Q > 0].sum()
    mean, deviation = 50 * 51 / 4, np.sqrt(50 * 51 * 101 / 24)
    z = (abs(rank_sum - mean) - 0.5) / deviation
    assert signed_rank_p(delta_Q) == pytest.approx(2 * stats.norm.sf(z), rel=1e-12)


def test_ties_up_to_rounding_are_ties():
    noise_Q = 1e-16 * np.arange(10)
    assert signed_rank_p(FIRST - SECOND + noise_Q) == signed_rank_p(FIRST - SECOND)
    assert signed_rank_p(np.full(12, 1e-15)) == 1


def test_every_system_is_compared_on_its_means_over_seeds():
    scores = {
        "old": np.stack([SECOND - 0.25, SECOND + 0.25]),
        "new": FIRST[None],
        "same": SECOND[None],
    }
    matrix = ScoreMatrix(
        measure="hours",
        cells=tuple(scores),
        query_ids=tuple("abcdefghij"),
        seeds={cell: tuple(range(len(one))) for cell, one in scores.items()},
        scores=scores,
    )
    found = signed_rank(matrix, baseline="old")
    assert found == {"new": pytest.approx(0.00909070, abs=5e-9), "same": 1}
    with pytest.raises(BadInput, match="unknown baseline"):
        signed_rank(matrix, baseline="firstp")


@pytest.mark.parametrize("bad", [np.zeros((2, 2)), np.array([]), np.array([0.1, np.nan])])
def test_what_is_no_list_of_differences_is_refused(bad):
    with pytest.raises(BadInput, match="list of finite numbers"):
        signed_rank_p(bad)
