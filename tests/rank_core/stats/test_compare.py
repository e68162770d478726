"""Every cell against the baseline: family, correction, effect sizes."""

import dataclasses

import numpy as np
import pytest

from rank_core.errors import BadInput
from rank_core.stats.compare import Comparison, compare, predicted_false_positive_rate
from rank_core.stats.multiplicity import holm
from rank_core.stats.scopes import confidence_interval, paired_scope_test, scope_test
from tests.rank_core.stats.matrices import matrix_of


def matrix(scores, *, seeds=None):
    return matrix_of(scores, "nDCG@10", seeds)


def random_scores(effects, *, S=3, Q=60, seed=0):
    rng = np.random.default_rng(seed)
    query_Q = rng.uniform(0.2, 0.8, Q)
    return {
        name: query_Q + effect + rng.normal(0, 0.05, (S, Q)) + rng.normal(0, 0.005, (S, 1))
        for name, effect in effects.items()
    }


SCORES = random_scores({"base": 0.0, "better": 0.05, "same": 0.0, "worse": -0.05})


def test_every_other_cell_is_compared_in_the_order_of_the_matrix():
    found = compare(matrix(SCORES), baseline="same")
    assert [(c.system, c.baseline) for c in found] == [
        ("base", "same"),
        ("better", "same"),
        ("worse", "same"),
    ]
    assert {c.family_size for c in found} == {3}


def test_a_comparison_carries_the_scope_test_and_the_family_s_correction():
    found = compare(matrix(SCORES), baseline="base", alpha=0.1)
    tests = [scope_test(SCORES[c.system], SCORES["base"]) for c in found]
    assert [c.p_both for c in found] == [t.p_both for t in tests]
    assert [c.p_seeds for c in found] == [t.p_seeds for t in tests]
    assert [c.p_both_adjusted for c in found] == holm([t.p_both for t in tests]).tolist()
    assert [c.p_queries_adjusted for c in found] == holm([t.p_queries for t in tests]).tolist()
    assert (found[0].ci_low, found[0].ci_high) == confidence_interval(tests[0], 0.9)


def test_effect_sizes_are_those_of_the_means():
    better = compare(matrix(SCORES), baseline="base")[0]
    assert better.mean_system == pytest.approx(SCORES["better"].mean())
    assert better.delta == pytest.approx(better.mean_system - better.mean_baseline)
    assert better.relative_gain == pytest.approx(better.delta / SCORES["base"].mean())
    assert better.wins + better.ties + better.losses == better.num_queries == 60
    assert better.wins > better.losses


def test_wins_ties_and_losses_are_counted_per_query_on_means_over_seeds():
    system_SQ = np.array([[0.2, 0.5, 0.1, 0.3], [0.4, 0.5, 0.1, 0.1]])
    base_SQ = np.array([[0.3, 0.4, 0.2, 0.2], [0.3, 0.4, 0.2, 0.2]])
    (found,) = compare(matrix({"base": base_SQ, "system": system_SQ}), baseline="base")
    assert (found.wins, found.ties, found.losses) == (1, 2, 1)


def test_the_first_fields_are_the_result_format():
    names = [field.name for field in dataclasses.fields(Comparison)]
    assert (
        names[:19]
        == (
            "measure system baseline delta relative_gain p_queries p_seeds p_both p_both_adjusted "
            "df_both se_both ci_low ci_high num_seeds_system num_seeds_baseline num_queries "
            "family_size correction mean_system"
        ).split()
    )


def test_one_seed_has_the_queries_scope_only_and_is_outside_the_family_of_both():
    scores = SCORES | {"better": SCORES["better"][:1]}
    found = {c.system: c for c in compare(matrix(scores), baseline="base")}
    single = found["better"]
    undefined = "p_seeds p_both p_both_adjusted ci_low ci_high predicted_false_positive_rate"
    assert all(np.isnan(getattr(single, name)) for name in undefined.split())
    assert single.p_queries_adjusted < 0.05
    assert (single.num_seeds_system, single.num_seeds_baseline) == (1, 3)
    assert found["worse"].p_both_adjusted == pytest.approx(2 * found["worse"].p_both)
    assert {one.family_size for one in found.values()} == {2}


def test_paired_seeds_use_the_paired_test_and_demand_equal_seeds():
    found = compare(matrix(SCORES), baseline="base", paired_seeds=True)
    assert found[0].p_both == paired_scope_test(SCORES["better"], SCORES["base"]).p_both
    seeds = {cell: (1, 2, 3) for cell in SCORES} | {"worse": (1, 2, 4)}
    with pytest.raises(BadInput, match="paired seeds need the same seeds in every cell"):
        compare(matrix(SCORES, seeds=seeds), baseline="base", paired_seeds=True)


def test_a_copy_of_the_baseline_has_p_one_and_changes_nothing_but_the_family():
    copied = compare(matrix(SCORES | {"copy": SCORES["base"].copy()}), baseline="base")
    assert (copied[-1].p_both, copied[-1].p_both_adjusted, copied[-1].ties) == (1, 1, 60)
    before = compare(matrix(SCORES), baseline="base")
    assert [c.p_both for c in copied[:-1]] == [c.p_both for c in before]
    assert {c.family_size for c in copied} == {4}


def test_the_order_of_the_systems_changes_no_number():
    before = {c.system: c for c in compare(matrix(SCORES), baseline="base")}
    turned = matrix({name: SCORES[name] for name in reversed(SCORES)})
    assert {c.system: c for c in compare(turned, baseline="base")} == before


def test_the_predicted_false_positive_rate_of_the_queries_test():
    # V_q / V = 1/4: the queries-only test is off by a factor of two, 2 Phi(-1.96 / 2) = .327.
    test = dataclasses.replace(
        scope_test(SCORES["better"], SCORES["base"]), se_queries=0.01, se_both=0.02
    )
    assert predicted_false_positive_rate(test) == pytest.approx(0.3271, abs=1e-4)
    same = dataclasses.replace(test, se_both=0.01)
    assert predicted_false_positive_rate(same, alpha=0.01) == pytest.approx(0.01)


def test_a_collapsed_baseline_has_no_relative_gain():
    scores = {"base": np.zeros((3, 60)), "better": SCORES["better"]}
    (found,) = compare(matrix(scores), baseline="base")
    assert np.isnan(found.relative_gain) and found.delta > 0


def test_a_lonely_baseline_has_no_comparisons():
    assert compare(matrix({"base": SCORES["base"]}), baseline="base") == []


@pytest.mark.parametrize(
    ("settings", "law"),
    [
        ({"baseline": "bse"}, "unknown baseline 'bse'; did you mean base"),
        ({"baseline": "base", "correction": "bonferroni"}, "unknown correction"),
        ({"baseline": "base", "alpha": 5}, "0 < alpha < 1"),
    ],
)
def test_wrong_settings_are_refused(settings, law):
    with pytest.raises(BadInput, match=law):
        compare(matrix(SCORES), **settings)


@pytest.mark.timeout(60)  # 1 s on an idle core; cell by cell it would be minutes
def test_a_hundred_cells_on_five_thousand_queries_take_seconds():
    wide = matrix(random_scores({f"cell{i}": 0.0 for i in range(100)}, S=5, Q=5193))
    assert len(compare(wide, baseline="cell0")) == 99


def with_bm25():
    return matrix({"bm25": random_scores({"bm25": -0.1}, S=1)["bm25"], **SCORES})


def test_a_baseline_declared_deterministic_gives_every_comparison_a_p():
    undeclared = compare(with_bm25(), baseline="bm25")
    assert all(np.isnan(c.p_both) for c in undeclared)
    found = compare(with_bm25(), baseline="bm25", deterministic=["bm25"])
    scores = with_bm25().scores
    for c in found:
        test = scope_test(scores[c.system], scores["bm25"], deterministic=(False, True))
        assert (c.p_both, c.num_seeds_baseline) == (test.p_both, 1)
        assert c.ci_low < c.delta < c.ci_high
    paired = compare(with_bm25(), baseline="bm25", deterministic=["bm25"], paired_seeds=True)
    assert paired == found


def test_only_a_cell_with_one_run_can_be_declared_deterministic():
    with pytest.raises(BadInput, match="unknown deterministic system"):
        compare(with_bm25(), baseline="bm25", deterministic=["qld"])
    with pytest.raises(BadInput, match="must have one run, got 3 for base"):
        compare(with_bm25(), baseline="bm25", deterministic=["base"])
