"""Mean ranks over collections, against the published example and scipy."""

import numpy as np
import pytest
from scipy import stats

from rank_core.errors import BadInput
from rank_core.stats.ranks import friedman, rank_test


def test_demsar_s_example_has_its_published_values() -> None:
    """Four classifiers on fourteen data sets; only the mean ranks are printed in the paper."""
    ranks = dict(zip("abcd", (3.143, 2.000, 2.893, 1.964), strict=True))
    found = friedman(ranks, num_collections=14)
    assert found.chi_square == pytest.approx(9.28, abs=0.005)
    assert found.F == pytest.approx(3.69, abs=0.005)
    assert stats.f.isf(0.05, 3, 39) == pytest.approx(2.85, abs=0.005) and found.p < 0.05
    assert found.critical_difference == pytest.approx(1.25, abs=0.005)
    assert stats.studentized_range.isf(0.05, 4, np.inf) / np.sqrt(2) == pytest.approx(
        2.569, abs=5e-4
    )


def test_the_chi_square_is_scipy_s_where_nothing_ties() -> None:
    means = dict(zip("abc", np.random.default_rng(1).normal(size=(3, 10)), strict=True))
    found = rank_test(means)
    assert found.chi_square == pytest.approx(stats.friedmanchisquare(*means.values()).statistic)
    assert sum(found.mean_ranks.values()) == pytest.approx(6)


def test_the_best_has_rank_one_and_equals_share_theirs() -> None:
    found = rank_test({"good": [0.9] * 8, "even": [0.5] * 8, "same": [0.5] * 8})
    assert found.mean_ranks == {"good": 1.0, "even": 2.5, "same": 2.5}
    assert found.p < 0.001


@pytest.mark.parametrize(
    ("means", "law"),
    [
        ({"a": [0.1] * 7, "b": [0.2] * 7}, "8 collections or more, got 7"),
        ({"a": [0.1] * 8}, "two systems or more"),
        ({"a": [0.1] * 8, "b": [0.1] * 9}, "a mean on every collection"),
    ],
)
def test_what_has_no_rank_is_refused(means: dict[str, list[float]], law: str) -> None:
    with pytest.raises(BadInput, match=law):
        rank_test(means)
