"""Power agrees with scipy's noncentral t where that works, and stays finite where it does not."""

import math

import pytest
from scipy import stats

from rank_core.errors import BadInput
from rank_core.stats.power import detectable_effect, t_power


@pytest.mark.parametrize("df", [2.0, 4.2, 30.0, 248.0])
@pytest.mark.parametrize("effect", [0.0, 0.7, 2.8, 5.0])
def test_power_is_that_of_the_noncentral_t(effect, df):
    critical = stats.t.isf(0.025, df)
    expected = stats.nct.sf(critical, df, effect) + stats.nct.cdf(-critical, df, effect)
    assert t_power(effect, df) == pytest.approx(expected, abs=1e-5)


def test_without_an_effect_the_power_is_alpha():
    assert t_power(0, 4, alpha=0.01) == pytest.approx(0.01, abs=1e-5)


@pytest.mark.parametrize("df", [1.0, 2.0, 3.0])
def test_a_huge_effect_with_few_degrees_of_freedom_is_certain_and_not_nan(df):
    assert t_power(1e4, df) == pytest.approx(1, abs=1e-6)


def test_infinite_degrees_of_freedom_are_the_normal():
    z = stats.norm.isf(0.025) + stats.norm.isf(0.2)
    assert detectable_effect(math.inf) == pytest.approx(z, abs=1e-4)


@pytest.mark.parametrize("df", [1.0, 4.0, 100.0])
@pytest.mark.parametrize("alpha", [0.05, 0.05 / 17])
def test_the_detectable_effect_has_exactly_the_wanted_power(df, alpha):
    effect = detectable_effect(df, alpha=alpha, power=0.8)
    assert t_power(effect, df, alpha=alpha) == pytest.approx(0.8, abs=1e-9)


def test_undefined_degrees_of_freedom_give_undefined_power():
    assert math.isnan(t_power(1.0, math.nan)) and math.isnan(detectable_effect(math.nan))


@pytest.mark.parametrize("settings", [{"alpha": 0}, {"power": 1.0}, {"alpha": 0.5, "power": 0.4}])
def test_impossible_settings_are_refused(settings):
    with pytest.raises(BadInput, match="must hold"):
        detectable_effect(5, **settings)
