"""A published crossed REML fit, reproduced by the closed form.

Penicillin: six samples on each of 24 plates, diameter of the inhibition zone in mm (Davies and
Goldsmith 1972, section 6.6; the crossed example of R's lme4). lme4 fits
`diameter ~ 1 + (1 | plate) + (1 | sample)` by REML; samples stand where training runs stand here,
plates where queries do.
"""

import math

import numpy as np
import pytest

from rank_core.stats.scopes import scope_test
from tests.rank_core.stats.test_variance import cell_components

PLATES = """
27 23 26 23 23 21  27 23 26 23 23 21  25 21 25 24 24 20  26 23 25 23 23 20  25 22 26 22 23 20
24 22 25 23 22 19  24 20 23 21 22 19  26 22 26 24 24 21  24 21 24 22 22 20  24 21 24 23 22 19
26 23 26 24 24 21  25 22 26 24 24 20  26 24 26 24 25 22  26 23 26 23 23 20  26 23 25 24 24 22
25 22 25 23 23 20  25 21 24 23 23 20  25 22 24 23 23 19  24 21 23 21 21 19  26 23 26 24 24 21
25 21 24 22 22 18  25 22 25 22 22 20  24 21 24 22 24 19  24 21 24 22 21 18
"""
DIAMETER_SQ = np.array(PLATES.split(), dtype=float).reshape(24, 6).T  # samples x plates

# The fit as published: standard deviations of plate, sample and residual, the mean and its error.
PLATE, SAMPLE, RESIDUAL = 0.8467, 1.9316, 0.5499
MEAN, ERROR = 22.9722, 0.8086


def test_the_components_are_those_of_the_published_fit():
    sample, residual = cell_components(DIAMETER_SQ)
    plate, residual_again = cell_components(DIAMETER_SQ.T)
    assert (sample.sd, plate.sd) == pytest.approx((SAMPLE, PLATE), abs=1e-4)
    assert residual.sd == pytest.approx(RESIDUAL, abs=1e-4)
    assert residual_again.sd == pytest.approx(residual.sd, rel=1e-12)
    assert (sample.df, plate.df, residual.df) == (5, 23, 115)


def test_the_error_of_the_mean_is_the_one_of_the_published_fit():
    nothing_SQ = np.zeros_like(DIAMETER_SQ)
    test = scope_test(DIAMETER_SQ, nothing_SQ)
    assert test.delta == pytest.approx(MEAN, abs=5e-5)
    assert test.se_both == pytest.approx(ERROR, abs=1e-4)
    expected = math.sqrt(PLATE**2 / 24 + SAMPLE**2 / 6 + RESIDUAL**2 / 144)
    assert test.se_both == pytest.approx(expected, rel=1e-4)
    # Forgetting that samples vary would claim a fifth of that.
    assert test.se_queries == pytest.approx(math.sqrt(PLATE**2 / 24 + RESIDUAL**2 / 144), rel=1e-3)


@pytest.mark.slow
def test_the_published_fit_is_also_what_statsmodels_finds():
    pd = pytest.importorskip("pandas")
    mixed = pytest.importorskip("statsmodels.regression.mixed_linear_model")
    sample, plate = np.indices(DIAMETER_SQ.shape)
    table = pd.DataFrame(
        {"y": DIAMETER_SQ.ravel(), "sample": sample.ravel(), "plate": plate.ravel(), "all": 1}
    )
    parts = {"plate": "0 + C(plate)", "sample": "0 + C(sample)"}
    fit = mixed.MixedLM.from_formula("y ~ 1", groups="all", vc_formula=parts, data=table).fit(
        reml=True, method=["powell"], xtol=1e-10, ftol=1e-12
    )
    test = scope_test(DIAMETER_SQ, np.zeros_like(DIAMETER_SQ))
    assert fit.bse["Intercept"] == pytest.approx(test.se_both, rel=2e-4)
    assert fit.params["Intercept"] == pytest.approx(test.delta, abs=1e-8)
    components = dict(zip(fit.model.exog_vc.names, np.sqrt(fit.vcomp), strict=True))
    assert components == pytest.approx({"plate": PLATE, "sample": SAMPLE}, abs=2e-4)
