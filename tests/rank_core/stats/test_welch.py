"""Welch's second-order degrees of freedom and the moderated seed variances, by published vectors
and by the sizes of the tests that use them."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from rank_core.stats.compare import compare_cells
from rank_core.stats.moderation import LEAST_POOL, fitted_prior, moderated_error
from rank_core.stats.multiplicity import holm
from rank_core.stats.scopes import infer, two_sided_p
from tests.rank_core.stats.matrices import matrix_of

# delta, V_q, Q, (V_s, V_e, S) of the trained sides: standard error, Satterthwaite's df, and of the
# second order df at .05, p, interval, df at .05/17. Computed by an independent implementation.
VECTORS = {
    "unlike": (
        (0.03, 3.2e-5, 250, (1.2e-4, 3.0e-6, 3), (4.0e-6, 3.3e-6, 3)),
        (0.0122351951, 3.107268, 2.155632, 0.1127926, -0.01916416, 0.07916416, 2),
    ),
    "against a deterministic system": (
        (0.03, 5.0e-5, 250, (6.0e-5, 3.0e-6, 3)),
        (0.0103440804, 6.325211, 4.078909, 0.04424034, 0.001498026, 0.05850197, 2.665704),
    ),
    "3 seeds and 10": (
        (0.03, 3.0e-5, 250, (9.0e-5, 3.3e-6, 3), (1.2e-6, 1.0e-6, 10)),
        (0.0108120303, 3.371064, 2.263294, 0.087119, -0.01170043, 0.07170043, 2),
    ),
    "less seed variance than residual": (
        (0.02, 8.0e-5, 200, (2.0e-5, 3.75e-5, 3), (5.0e-5, 3.8e-5, 3)),
        (0.00959166305, 5.683122, 5.371118, 0.08474375, -0.00415245, 0.04415245, 3.756301),
    ),
    "5 seeds each": (
        (0.02, 3.0e-5, 250, (4.0e-5, 2.0e-6, 5), (6.0e-6, 2.0e-6, 5)),
        (0.00848528137, 12.56354, 10.22562, 0.04016981, 0.001150007, 0.03884999, 7.819693),
    ),
    "fewer than any mean square has": (
        (0.0620833333, 8.01736111e-5, 6, (6.96180556e-5, 6.10069444e-5, 4),
         (4.62962963e-7, 1.10185185e-5, 4)),
        (0.0094225645, 2.4965817, 2.4965817, 0.012272995, 0.0283679, 0.0957988, 2.4965817),
    ),
}  # fmt: skip


def inference(delta, V_q, Q, *sides):
    V_s, V_e, S = zip(*sides, strict=True)
    return infer(
        delta=delta, variance_queries=V_q, variance_seeds=V_s, variance_error=V_e, num_seeds=S,
        num_queries=Q,
    )  # fmt: skip


@pytest.mark.parametrize("name", VECTORS)
def test_degrees_of_freedom_p_and_interval_are_those_of_an_independent_computation(name):
    given, (se, first, df, p, low, high, df_17) = VECTORS[name]
    found = inference(*given)
    half = stats.t.isf(0.025, found.df_both) * found.se_both
    ends = given[0] - half, given[0] + half
    assert found.se_both == pytest.approx(se, rel=1e-7)
    assert found.welch.satterthwaite == pytest.approx(first, rel=1e-6)
    assert found.df_both == pytest.approx(df, rel=1e-6)
    assert found.p_both == pytest.approx(p, rel=1e-6)
    assert ends == (pytest.approx(low, rel=1e-6), pytest.approx(high, rel=1e-6))
    assert found.welch.at_level(0.05 / 17) == pytest.approx(df_17, rel=1e-6)


@pytest.mark.parametrize("seeds", [(3, 3), (3, 10), (5, 5)])
def test_an_unstable_system_beside_a_stable_one_holds_the_level(seeds):
    rng, num, Q, noise = np.random.default_rng(1), 20_000, 250, 0.06**2 / 250
    sides, scatter = [], (0.03, 0.002)
    delta = rng.normal(0, math.sqrt(2 * noise), num)
    for S, sd in zip(seeds, scatter, strict=True):
        delta += rng.normal(0, sd / math.sqrt(S), num)
        sides.append((sd**2 / S * rng.chisquare(S - 1, num) / (S - 1), np.zeros(num), S))
    found = inference(delta, 2 * noise * rng.chisquare(Q - 1, num) / (Q - 1), Q, *sides)
    first_order = 2 * stats.t.sf(np.abs(delta) / found.se_both, found.welch.satterthwaite)
    assert (found.p_both < 0.05).mean() <= 0.067
    if seeds[0] == 3:
        assert (first_order < 0.05).mean() > 0.07


def test_the_prior_is_found_again_from_variances_that_were_drawn_from_one():
    rng, d0, s0 = np.random.default_rng(2), 6.0, 0.02
    df_K = np.tile([2.0, 4.0, 9.0], 4000)
    true_K = d0 * s0 / rng.chisquare(d0, len(df_K))
    found = fitted_prior(true_K * rng.chisquare(df_K) / df_K, df_K)
    assert found.df == pytest.approx(d0, rel=0.1) and found.variance == pytest.approx(s0, rel=0.05)


def family(num_systems, S, sd, seed, baseline_sd=0.0):
    """Equal systems on 60 queries; the first is the baseline."""
    rng = np.random.default_rng(seed)
    scores = {
        f"s{k}": rng.normal(0, baseline_sd if k == 0 else sd, (S, 1)) + rng.normal(0, 0.05, (S, 60))
        for k in range(num_systems)
    }
    return matrix_of(scores, "nDCG@10")


def test_a_large_family_takes_the_larger_one_of_both_p_values():
    found = compare_cells(family(12, 3, 0.01, 3), baseline="s0", correction="holm")
    larger = [max(one.p_both, one.p_moderated) for one in found]
    assert [one.p_both_adjusted for one in found] == holm(larger).tolist()
    assert any(one.p_moderated > one.p_both for one in found)
    few = compare_cells(family(LEAST_POOL - 1, 3, 0.01, 3), baseline="s0", correction="holm")
    assert all(math.isnan(one.p_moderated) for one in few)


def test_holm_beside_a_stable_baseline_holds_the_familywise_level():
    wrong = {"alone": 0, "both": 0}
    num = 40
    for seed in range(num):
        found = compare_cells(family(18, 3, 0.03, seed), baseline="s0", correction="holm")
        wrong["alone"] += (holm([one.p_both for one in found]) < 0.05).any()
        wrong["both"] += any(one.significant(0.05) for one in found)
    assert wrong["alone"] / num > 0.12 and wrong["both"] / num <= 0.08


def test_two_seeds_are_never_called_significant():
    A, B = family(2, 2, 0.0, 5).scores.values()
    far = matrix_of({"s0": A, "s1": B + 5}, "nDCG@10")
    (found,) = compare_cells(far, baseline="s0")
    assert found.p_both_adjusted < 0.05 and not math.isnan(found.ci_low)
    assert not found.significant(0.05) and found.fewest_seeds == 2
    assert dataclasses.replace(found, num_seeds_system=3, num_seeds_baseline=3).significant(0.05)


def test_the_moderated_p_of_one_pair_is_satterthwaites_with_the_prior_put_in():
    prior = fitted_prior([1e-4] * 9, [2] * 9)
    p = two_sided_p(0.02, *moderated_error(1e-5, 100, [(5e-4, 1e-6, 3)], prior))
    V_s = prior.variance / 3
    V = 1e-5 + V_s - 1e-6
    df = V**2 / (1e-10 / 99 + V_s**2 / 18 + 1e-12 / (2 * 99))
    assert p == pytest.approx(2 * stats.t.sf(0.02 / math.sqrt(V), df), rel=1e-12)
