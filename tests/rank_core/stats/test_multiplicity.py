"""Corrections against R's p.adjust, scipy and their defining laws."""

import numpy as np
import pytest

from rank_core.stats.multiplicity import CORRECTIONS


@pytest.mark.parametrize(
    ("correction", "expected"),
    [
        ("holm", [0.03, 0.06, 0.06, 0.02]),
        ("bh", [0.02, 0.04, 0.04, 0.02]),
        ("none", [0.01, 0.04, 0.03, 0.005]),
    ],
)
def test_corrections_reproduce_p_adjust(correction, expected):
    adjusted = CORRECTIONS[correction]([0.01, 0.04, 0.03, 0.005])
    np.testing.assert_allclose(adjusted, expected, rtol=1e-12)


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_an_untested_comparison_stays_nan_and_outside_the_family(correction):
    adjust = CORRECTIONS[correction]
    with_nan = adjust([0.01, float("nan"), 0.02])
    assert np.isnan(with_nan[1])
    np.testing.assert_array_equal(with_nan[[0, 2]], adjust([0.01, 0.02]))


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_order_does_not_matter_and_nothing_gets_smaller_or_exceeds_one(correction):
    rng = np.random.default_rng(1)
    p = rng.uniform(size=30) ** 2
    adjusted = CORRECTIONS[correction](p)
    order = rng.permutation(30)
    np.testing.assert_array_equal(CORRECTIONS[correction](p[order]), adjusted[order])
    assert (adjusted >= p).all() and (adjusted <= 1).all()
