"""Variance components against the worked example, planted truth, and the chi-square facts."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import integrate, stats

from rank_core.stats.scopes import scope_test
from rank_core.stats.variance import (
    chi_square_factors,
    detectable_difference,
    detectable_effect,
    homogeneity,
    seed_correlation,
    sweep_components,
)
from tests.rank_core.stats.matrices import A, B, drawn, matrix_of

SIGMA_D, SIGMA_S, SIGMA_E = 0.08, 0.01, 0.05


PLANTED = drawn(
    {f"cell{number}": 0.0 for number in range(8)},
    S=5,
    Q=300,
    own_sd=SIGMA_D / math.sqrt(2),
    seed_sd=SIGMA_S,
    residual=SIGMA_E,
)


def cell_components(score_SQ):
    """The components of a sweep of one cell: of its seeds and of the residual."""
    matrix = matrix_of({"cell": score_SQ})
    parts = sweep_components(matrix, baseline="cell")
    return parts.seed, parts.residual


@pytest.mark.parametrize(
    ("df", "level", "low", "high"),
    [(2, 0.95, 0.52, 6.28), (4, 0.95, 0.60, 2.87), (9, 0.95, 0.69, 1.83), (36, 0.95, 0.81, 1.30)],
)
def test_what_a_few_seeds_know_of_their_standard_deviation(df, level, low, high):
    assert chi_square_factors(df, level) == pytest.approx((low, high), abs=0.005)


def test_the_interval_of_a_component_follows_its_chi_square():
    seed, residual = cell_components(A)
    low, high = chi_square_factors(14)
    assert (seed.df, residual.df) == (2, 14)
    assert (residual.low, residual.high) == pytest.approx((residual.sd * low, residual.sd * high))
    assert seed.low < seed.sd < seed.high


def test_pooled_components_find_what_was_planted():
    found = sweep_components(PLANTED, baseline="cell0")
    for component, truth in (
        (found.seed, SIGMA_S),
        (found.residual, SIGMA_E),
        (found.difference, SIGMA_D),
    ):
        assert component.low < truth < component.high
        assert component.sd == pytest.approx(truth, rel=0.25)
    assert (found.seed.df, found.difference.df, found.num_cells) == (32, 299, 8)


def test_one_seed_has_no_components_and_is_left_out_of_the_pool():
    matrix = PLANTED
    cells = matrix.scores | {"cell1": matrix.scores["cell1"][:1]}
    seed, residual = cell_components(cells["cell1"])
    assert math.isnan(seed.sd) and math.isnan(residual.sd)
    mixed = sweep_components(dataclasses.replace(matrix, scores=cells), baseline="cell0")
    assert mixed.seed.df == 28 and mixed.difference.sd > 0
    single = {cell: score_SQ[:1] for cell, score_SQ in matrix.scores.items()}
    nothing = sweep_components(dataclasses.replace(matrix, scores=single), baseline="cell0")
    assert math.isnan(nothing.seed.sd) and math.isnan(nothing.difference.high)


def test_the_detectable_difference_grows_with_the_family_and_needs_seeds():
    test = scope_test(A, B)
    assert detectable_difference(test) > 2.8 * test.se_both
    assert detectable_difference(test, family_size=5) > detectable_difference(test)
    assert math.isnan(detectable_difference(scope_test(A[:1], B)))


def test_homogeneity_is_bartlett_s_test_on_the_seed_means():
    matrix = PLANTED
    means = [score_SQ.mean(axis=1) for score_SQ in matrix.scores.values()]
    assert homogeneity(matrix) == pytest.approx(stats.bartlett(*means).pvalue)


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


def test_the_correlation_of_runs_that_share_a_seed_is_the_published_icc() -> None:
    """ICC(3,1) of Shrout and Fleiss (1979), Table 2: six targets (here seeds) and four judges."""
    columns = np.array(
        [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
    ).T
    judges = {f"judge {n}": column[:, None] / 10 for n, column in enumerate(columns)}
    found = seed_correlation(matrix_of(judges))
    assert found and (found.num_cells, found.num_seeds) == (4, 6)
    assert found.r == pytest.approx(0.7148, abs=5e-5)
    assert (found.low, found.high) == pytest.approx((0.3425, 0.9459), abs=1e-4)
    # A pair of equal variances: the plain correlation. Seeds that one cell lacks do not count.
    pair = {"a": A, "b": A[[2, 0, 1]]}
    plain = np.corrcoef(A.mean(axis=1), A[[2, 0, 1]].mean(axis=1))[0, 1]
    for seeds in ({"a": (1, 2, 3), "b": (1, 2, 3)}, {"a": (3, 2, 1), "b": (3, 2, 1)}):
        both = seed_correlation(matrix_of(pair, seeds=seeds))
        assert both and both.r == pytest.approx(plain)
    longer = {"a": np.vstack([A, 9 * A[:1]]), "b": A[[2, 0, 1]]}
    more = seed_correlation(matrix_of(longer, seeds={"a": (1, 2, 3, 4), "b": (1, 2, 3)}))
    assert more and more.r == pytest.approx(plain) and more.num_seeds == 3
    assert seed_correlation(matrix_of({"a": A})) is None
    assert seed_correlation(matrix_of({"a": 0 * A, "b": 0 * B})) is None
