"""Branches that few tables take: each test names the second term of a condition, or the other side
of a test."""

import numpy as np
import pytest

from rank_core.stats.compare import compare_pairs
from rank_core.stats.moderation import seeds_agree
from tests.rank_core.stats.matrices import drawn

DF = [2.0] * 6


@pytest.mark.parametrize("variance", [0.03, 30.0])
def test_a_baseline_that_is_steadier_or_wilder_than_the_others_does_not_agree(
    variance: float,
) -> None:
    """Bartlett's test of six variances alone sees neither."""
    variances = [variance, *[1.0] * 5]
    if variance < 1:
        assert seeds_agree(variances, DF)
    assert not seeds_agree(variances, DF, baselines=[0])
    assert seeds_agree(np.ones(6), DF, baselines=[0])


@pytest.mark.parametrize("correction", ["max-t", "holm"])
def test_intervals_of_several_families_share_alpha(correction: str) -> None:
    """Those of a table of four families are wider than those of one."""
    matrix = drawn({"A": 0.0, "B": 0.02, "C": 0.03, "D": 0.05}, seed=3)
    pairs = [(system, "A") for system in "BCD"]
    options = {"correction": correction, "paired_seeds": False, "deterministic": ()}
    shared = compare_pairs(matrix, pairs, alpha=0.05, num_families=4, **options)
    plain = compare_pairs(matrix, pairs, alpha=0.05, **options)
    for one, usual in zip(shared, plain, strict=True):
        assert one.family_low < usual.family_low and usual.family_high < one.family_high
