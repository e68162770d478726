"""max-t: between a single p and Bonferroni's, at one comparison the p itself, on independent normal
data Dunnett's test, and on any family never above Holm."""

import numpy as np
import pytest
from scipy import stats

from rank_core.errors import BadInput
from rank_core.stats import multiplicity
from rank_core.stats.behrens_fisher import half_width
from rank_core.stats.compare import compare_cells
from rank_core.stats.family import BEHRENS_FISHER, LARGER, MODERATED, Family, correlations
from rank_core.stats.moderation import seeds_agree
from rank_core.stats.multiplicity import effective_number, family_level, holm, max_t
from rank_core.stats.scopes import confidence_interval, scope_test
from tests.rank_core.stats.matrices import drawn, matrix_of

P = np.array([0.0004, 0.008, 0.021, 0.04, 0.3])


def alike(K, r=0.5):
    return np.full((K, K), r) + (1 - r) * np.eye(K)


@pytest.mark.parametrize("r", [0.0, 0.3, 0.7, 0.95])
def test_a_corrected_p_is_between_the_p_and_holm_s(r):
    adjusted = max_t(P, alike(5, r))
    assert (adjusted >= P).all() and (adjusted <= holm(P) + 1e-15).all()
    assert (np.diff(adjusted) >= 0).all()
    assert adjusted[-1] == P[-1]


def test_one_comparison_keeps_its_p_and_equal_ones_count_once():
    assert max_t([0.03], [[1.0]]).tolist() == [0.03]
    assert max_t([0.03, 0.03], np.ones((2, 2))) == pytest.approx(0.03, rel=1e-3)
    assert family_level(0.05, np.ones((1, 1))) == 0.05


@pytest.mark.parametrize("two_sided", [True, False])
@pytest.mark.parametrize("r", [0.0, 0.5])
def test_the_effective_number_is_that_of_the_one_factor_integral(two_sided, r):
    for K in (2, 8, 17):
        for p in (0.2, 0.02, 1e-4):
            z = stats.norm.isf(p / 2 if two_sided else p)
            x = np.linspace(-9, 9, 4001)
            inside = stats.norm.cdf((z - np.sqrt(r) * x) / np.sqrt(1 - r))
            if two_sided:
                inside -= stats.norm.cdf((-z - np.sqrt(r) * x) / np.sqrt(1 - r))
            exact = 1 - np.trapezoid(inside**K * stats.norm.pdf(x), x)
            found = p * float(effective_number(p, alike(K, r), two_sided=two_sided))
            assert found == pytest.approx(exact, rel=0.015)


def test_of_more_comparisons_than_are_drawn_the_effective_number_is_bonferroni_s():
    size = multiplicity.MOST_DRAWN + 2
    p = np.geomspace(1e-5, 0.9, size)
    adjusted, by_holm = max_t(p, alike(size)), holm(p)
    assert adjusted[:2].tolist() == by_holm[:2].tolist()
    assert (adjusted <= by_holm).all() and (adjusted[2:50] < by_holm[2:50]).all()
    assert family_level(0.05, alike(size)) == pytest.approx(0.05 / size)
    assert effective_number([0.01, 0.2], alike(size)).tolist() == [size] * 2
    assert effective_number(0.01, alike(size - 2)) < size - 2


def test_the_search_for_a_level_draws_its_family_once(monkeypatch):
    drawn_families = []
    draw = multiplicity._drawn
    monkeypatch.setattr(multiplicity, "_drawn", lambda *of: drawn_families.append(1) or draw(*of))
    family_level(0.0432, alike(11, 0.321))
    assert len(drawn_families) == 1


def test_a_level_of_simultaneous_intervals_errs_with_alpha():
    level = family_level(0.05, alike(8))
    assert 0.05 / 8 < level < 0.05
    assert level * float(effective_number(level, alike(8))) == pytest.approx(0.05, rel=1e-4)


def test_untested_and_identical_comparisons_are_no_part_of_the_family():
    R = alike(4)
    R[3], R[:, 3] = 0, 0
    found = max_t([0.01, float("nan"), 0.02, 1.0], R)
    assert np.isnan(found[1]) and found[3] == 1
    assert found[[0, 2]].tolist() == max_t([0.01, 0.02], alike(2)).tolist()


def test_correlations_of_another_family_are_refused():
    with pytest.raises(BadInput):
        max_t([0.1, 0.2], np.eye(3))


MATRIX = drawn({"base": 0.0, "a": 0.01, "b": 0.02, "c": 0.03, "d": 0.05}, own_sd=0.04, Q=80)


def test_the_correlations_are_those_of_queries_and_shared_runs():
    cells = ("a", "b", "c")
    tests = [scope_test(MATRIX.scores[cell], MATRIX.scores["base"]) for cell in cells]
    found = correlations(MATRIX, [(cell, "base") for cell in cells], tests)
    mean = {cell: MATRIX.scores[cell].mean(axis=0) for cell in MATRIX.cells}
    shared = np.cov(mean["a"] - mean["base"], mean["b"] - mean["base"])[0, 1] / 80
    shared += max(tests[0].variance_seeds_b - tests[0].variance_error_b, 0)
    assert found[0, 1] == pytest.approx(shared / tests[0].se_both / tests[1].se_both)
    assert np.diagonal(found).tolist() == [1, 1, 1]
    queries = correlations(MATRIX, [(cell, "base") for cell in cells], tests, scope="queries")
    delta = np.array([mean[cell] - mean["base"] for cell in cells])
    assert queries == pytest.approx(np.corrcoef(delta))


def test_max_t_is_an_option_of_a_comparison_and_intervals_agree_with_it():
    by_holm, by_max_t = (
        compare_cells(MATRIX, baseline="base", correction=c) for c in ("holm", "max-t")
    )
    for holm_, max_t_ in zip(by_holm, by_max_t, strict=True):
        assert max_t_.p_both == holm_.p_both
        assert max_t_.p_both <= max_t_.p_both_adjusted
        assert max_t_.p_queries_adjusted <= holm_.p_queries_adjusted
        assert max_t_.family_low <= max_t_.ci_low and max_t_.family_high >= max_t_.ci_high
        if max_t_.family_low > 0 or max_t_.family_high < 0:
            assert max_t_.p_both_adjusted < 0.05


@pytest.mark.parametrize(("correction", "num"), [("holm", 9), ("max-t", 5), ("max-t", 9)])
def test_an_interval_is_the_wider_one_of_both_tests_and_agrees_with_the_larger_p(correction, num):
    matrix = drawn({f"s{n}": 0.008 * n for n in range(num)}, own_sd=0.05, Q=80)
    for seed_sd in (0.004, 0.04):
        matrix.scores["s2"] += seed_sd * np.array([[-1.0], [0], [1]])
        for one in compare_cells(matrix, baseline="s0", correction=correction):
            test = scope_test(matrix.scores[one.system], matrix.scores["s0"])
            own = stats.t.isf(0.025, test.df_both) * test.se_both
            assert one.ci_high - one.delta >= own * (1 - 1e-12)
            excludes = one.ci_low > 0 or one.ci_high < 0
            assert excludes == (max(one.p_both, one.p_moderated) < 0.05)


def test_max_t_corrects_the_moderated_p_where_variances_agree_and_the_larger_one_elsewhere():
    own, moderated, R = np.array([0.02, 0.03]), np.array([0.001, 0.04]), alike(2)
    apart, together = (Family(own, moderated, R, agree) for agree in (False, True))
    assert {one.applied("max-t").text for one in (apart, together)} == {"max-t over 2 comparisons"}
    assert apart.adjusted("max-t").tolist() == max_t(np.maximum(own, moderated), R).tolist()
    assert together.adjusted("max-t")[0] == 0.02
    assert together.adjusted("max-t")[1] == pytest.approx(0.04)
    level = family_level(0.05, R)
    assert 0.025 < level < 0.05 and apart.levels(0.05, "max-t") == (level, level)
    assert together.levels(0.05, "max-t") == (0.05, level)


UNLIKE = {"a": 0.05, "b": 0.01, "c": 0.0, "d": -0.03}


def against_first_stage(S, seed_sd=0.03, steady_sd=0.002):
    """Four systems over a deterministic first stage; the runs of the last two scatter more."""
    found = drawn({"first": 0.0} | UNLIKE, S=S, own_sd=0.05, Q=80, seed_sd=steady_sd, seed=4)
    scores = {**found.scores, "first": found.scores["first"][:1]}
    for cell in "cd":
        scores[cell] = scores[cell] + seed_sd * np.linspace(-1, 1, S)[:, None]
    return matrix_of(scores)


def test_few_unlike_runs_against_a_deterministic_baseline_are_tested_by_behrens_and_fisher():
    few = compare_cells(against_first_stage(3), baseline="first", deterministic=["first"])
    record = few[0].family
    assert record.applied.p == BEHRENS_FISHER and not record.seeds_agree
    assert record.applied.text == "max-t over 4 comparisons"
    expected = max_t([one.p_moderated for one in few], record.correlation_both)
    for one, corrected in zip(few, expected, strict=True):
        # The part of the runs, by hand.
        S, V_s = 3, one.test.variance_seeds_a
        df = min(record.prior_df + S - 1, record.pool_df)
        prior = record.prior_df * record.prior_variance
        V = (prior + (S - 1) * S * V_s) / (record.prior_df + S - 1) / S
        parts = [(one.test.variance_queries - one.test.variance_error_a, 79), (V, df)]
        for low, level in ((one.ci_low, 0.05), (one.family_low, record.level)):
            half = half_width(parts, level)
            own = confidence_interval(one.test, 0.95)
            assert low == pytest.approx(min(one.delta - half, own[0]), abs=1e-6)
        assert half_width(parts, one.p_moderated) == pytest.approx(abs(one.delta), rel=1e-3)
        assert one.p_both_adjusted == pytest.approx(max(corrected, one.p_both), rel=1e-9)
        excludes = one.ci_low > 0 or one.ci_high < 0
        assert excludes == (max(one.p_both, one.p_moderated) < 0.05)


@pytest.mark.parametrize(
    ("matrix", "baseline", "rule"),
    [
        (against_first_stage(5), "first", LARGER),
        (against_first_stage(3, seed_sd=0.0, steady_sd=0.01), "first", MODERATED),
        (against_first_stage(3), "a", LARGER),
    ],
    ids=["five runs", "runs alike", "a trained baseline"],
)
def test_other_tables_are_not(matrix, baseline, rule):
    found = compare_cells(matrix, baseline=baseline, deterministic=["first"])
    assert {one.family.applied.p for one in found} == {rule}


def test_seed_variances_agree_by_bartlett_s_test_and_that_of_the_baseline():
    rng = np.random.default_rng(4)
    groups = [rng.normal(0, 1, 4) for _ in range(6)]
    s2 = np.array([group.var(ddof=1) for group in groups])
    assert stats.bartlett(*groups).pvalue > 0.25 and seeds_agree(s2, np.full(6, 3.0))
    assert not seeds_agree(s2 * [1, 1, 1, 1, 1, 400], np.full(6, 3.0))
    assert not seeds_agree([1.0] * 17 + [4.5], np.full(18, 2.0), [17])
    assert seeds_agree(np.zeros(4), np.full(4, 2.0))
    assert not seeds_agree([0.0, 1, 1, 1], np.full(4, 2.0))


@pytest.mark.parametrize("K", [2, 3, 6, 7, 12])
def test_copies_of_one_comparison_need_no_correction(K):
    everywhere = np.ones((K, K))
    assert family_level(0.05, everywhere) == pytest.approx(0.05, rel=1e-3)
    assert effective_number(0.05, everywhere) == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize("kept", [True, False])
def test_a_number_is_the_same_each_time_whatever_is_done_with_the_first(kept, monkeypatch):
    families = np.stack([alike(3, 0.2), alike(3, 0.7)])
    p = np.array([0.01, 0.2])
    monkeypatch.setattr(multiplicity, "_REMEMBERED", 4096 if kept else 0)
    first = effective_number(p, families)
    expected = first.copy()
    first[:] = 7.0
    assert effective_number(p, families).tolist() == expected.tolist()
    alone = [float(effective_number(*one)) for one in zip(p, families, strict=True)]
    assert alone == expected.tolist()
    for other in (
        effective_number(p[::-1], families),
        effective_number(p, families[::-1]),
        effective_number(p, families, two_sided=False),
        effective_number(p, families, num_draws=4096),
    ):
        assert (other != expected).all()
