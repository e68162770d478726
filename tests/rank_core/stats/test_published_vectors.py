"""Published per-query data through our tests, down to the printed digits.

The differences of Urbano's example are those of two systems of TREC-8 (Urbano, Lima and Hanjalic,
SIGIR 2019; the scores are published under CC BY-SA 4.0), those of PermTest are its sample of four
BM25 variants on 349 and 324 queries (Boytsov, Belova and Westfall, SIGIR 2013; Apache-2.0).

Penicillin: six samples on each of 24 plates, diameter of the inhibition zone in mm (Davies and
Goldsmith 1972, section 6.6; the crossed example of R's lme4). lme4 fits
`diameter ~ 1 + (1 | plate) + (1 | sample)` by REML; samples stand where training runs stand here,
plates where queries do.
"""

import math

import numpy as np
import pytest
from scipy import stats

from rank_core.stats.bootstrap import crossed_weights
from rank_core.stats.permutation import randomised_tukey
from rank_core.stats.scopes import confidence_interval, scope_test
from tests.rank_core.stats.matrices import matrix_of
from tests.rank_core.stats.test_variance import cell_components

# System 126 minus system 125 of the example, average precision in units of .0001, 50 topics.
URBANO = """
183 1413 317 282 249 2557 301 306 -1000 1658 1468 189 122 2230 2480 -337 -312 1216 147 291 -37 51
-411 793 2801 -349 57 -292 -1238 1097 2259 87 -501 -131 1518 139 312 2054 -300 355 -62 -156 550
-1294 1681 1724 -1884 -2 821 3102
"""
DELTA_Q = np.array(URBANO.split(), dtype=float) / 1e4


def test_urbano_s_example_has_its_published_t_test() -> None:
    test = scope_test(DELTA_Q[None], np.zeros((1, 50)))
    assert test.p_queries == pytest.approx(0.0013193972, abs=5e-11)
    assert test.delta / test.se_queries == pytest.approx(3.4072971705, abs=5e-11)
    assert test.delta == pytest.approx(0.053008, abs=5e-7)
    low, high = confidence_interval(test, scope="queries")
    assert (low, high) == pytest.approx((0.0217446, 0.0842714), abs=5e-8)
    assert math.isnan(test.p_both)


def test_urbano_s_example_has_its_published_sign_permutation_and_bootstrap_tests() -> None:
    """Sign test: topics within .01 tie. The other two published values are simulations as well."""
    wins, losses = int((DELTA_Q > 0.01).sum()), int((DELTA_Q < -0.01).sum())
    assert (wins, losses) == (31, 13)
    assert stats.binomtest(wins, wins + losses).pvalue == pytest.approx(0.009559879, abs=5e-10)
    num = 40_000
    matrix = matrix_of({"125": np.zeros(50), "126": DELTA_Q})
    rng = np.random.default_rng(1)
    (permuted,) = randomised_tukey(matrix, rng=rng, num_permutations=num)
    assert permuted.p == pytest.approx(0.001188, abs=3 * math.sqrt(0.0012 / num))
    weights = crossed_weights(matrix, rng=rng, num_replicates=num)
    shifted_B = weights.queries_BQ @ (DELTA_Q - DELTA_Q.mean())
    share = float((np.abs(shifted_B) >= DELTA_Q.mean()).mean())
    assert share == pytest.approx(0.000586, abs=3 * math.sqrt(0.0006 / num))


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
