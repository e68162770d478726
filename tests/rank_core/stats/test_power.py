"""Detectable effects have the power of a noncentral t, and are finite where scipy's is not."""

import math

import pytest
from scipy import integrate, stats

from rank_core.errors import BadInput
from rank_core.stats.power import detectable_effect


@pytest.mark.parametrize("df", [2.0, 4.2, 30.0, 248.0])
@pytest.mark.parametrize("alpha", [0.05, 0.05 / 17])
@pytest.mark.parametrize("power", [0.3, 0.8, 0.95])
def test_the_detectable_effect_has_the_wanted_power_of_a_noncentral_t(df, alpha, power):
    effect = detectable_effect(df, alpha=alpha, power=power)
    critical = stats.t.isf(alpha / 2, df)

    def rejected(x):  # by a chi-square of x
        limit = critical * math.sqrt(x / df)
        both = stats.norm.sf(limit - effect) + stats.norm.sf(limit + effect)
        return stats.chi2.pdf(x, df) * both

    limits = stats.chi2.ppf(1e-12, df), stats.chi2.isf(1e-12, df)
    reached, _ = integrate.quad(rejected, *limits, limit=500)
    assert reached == pytest.approx(power, abs=1e-6)


def test_one_degree_of_freedom_at_a_strict_level_needs_a_huge_effect_and_not_nan():
    lower, effect = (detectable_effect(1.0, alpha=alpha) for alpha in (1e-5, 1e-6))
    assert math.isfinite(effect)
    assert effect == pytest.approx(10 * lower, rel=1e-2)  # the tails of t with 1 df fall as 1 / t


def test_infinite_degrees_of_freedom_are_the_normal():
    z = stats.norm.isf(0.025) + stats.norm.isf(0.2)
    assert detectable_effect(math.inf) == pytest.approx(z, abs=1e-4)


def test_undefined_degrees_of_freedom_give_an_undefined_effect():
    assert math.isnan(detectable_effect(math.nan))


@pytest.mark.parametrize("settings", [{"alpha": 0}, {"power": 1.0}, {"alpha": 0.5, "power": 0.4}])
def test_impossible_settings_are_refused(settings):
    with pytest.raises(BadInput, match="must hold"):
        detectable_effect(5, **settings)
