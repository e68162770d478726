"""No variance, no verdict: what a t-test cannot decide is at most as certain as a permutation."""

import math

import numpy as np
import pytest
from scipy import stats

from rank_core.stats.best import best_set
from rank_core.stats.compare import compare_cells
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.racing import race_so_far
from rank_core.stats.scopes import (
    SCOPES,
    certain_runs_p,
    confidence_interval,
    equivalence_p,
    paired_scope_test,
    scope_test,
)
from rank_core.stats.strata import over_collections


def flat(value, *, S=3, Q=3):
    return np.full((S, Q), float(value))


def matrix(**scores):
    Q = len(next(iter(scores.values()))[0])
    seeds = {name: tuple(range(1, len(own) + 1)) for name, own in scores.items()}
    return ScoreMatrix("RR@10", tuple(scores), tuple(map(str, range(Q))), seeds, scores)


def test_three_queries_that_differ_alike_in_every_run_show_nothing():
    # Signs of three queries: 2 of 8 outcomes are as extreme. Runs: 2 of 20 ways to split six.
    test = scope_test(flat(1), flat(0.5))
    assert (test.delta, test.p_queries, test.p_seeds, test.p_both) == (0.5, 0.25, 0.1, 0.25)
    for scope in SCOPES:
        assert all(map(math.isnan, confidence_interval(test, scope=scope)))
    [found] = compare_cells(matrix(A=flat(1), B=flat(0.5)), baseline="A", correction="max-t")
    assert (found.p_both_adjusted, found.significant(0.05)) == (0.25, False)
    assert all(map(math.isnan, (found.ci_low, found.family_high, found.ci_queries_low)))


@pytest.mark.parametrize("n", range(2, 13))
def test_n_constant_differences_are_as_certain_as_the_exact_sign_test(n):
    sign_test = stats.binomtest(n, n).pvalue  # 2 / 2^n
    fixed = scope_test(flat(1, S=1, Q=n), flat(0.5, S=1, Q=n), deterministic=(True, True))
    assert (fixed.p_queries, fixed.p_both) == (sign_test, sign_test)
    assert equivalence_p(fixed, margin=0.6) == sign_test
    assert equivalence_p(fixed, margin=0.4) == 1
    trained = scope_test(flat(1, Q=n), flat(0.5, Q=n))
    assert trained.p_both == max(sign_test, 0.1)  # three runs against three: 2 of 20
    [found] = compare_cells(
        matrix(A=flat(1, S=1, Q=n), B=flat(0.5, S=1, Q=n)), baseline="A", deterministic=("A", "B")
    )
    assert found.significant(0.05) == (n >= 6)
    best = best_set(
        matrix(A=flat(1, S=1, Q=n), B=flat(0.5, S=1, Q=n)), deterministic=("A", "B"), alpha=0.05
    )
    assert best.p["B"] == sign_test / 2  # one-sided


def test_two_queries_of_zeros_are_not_practically_equivalent():
    test = scope_test(flat(0, Q=2), flat(0, Q=2))
    assert (test.p_both, equivalence_p(test, margin=0.01)) == (1, 0.5)


def test_runs_alone_that_vary_decide_no_more_than_the_queries_allow():
    # Whole runs shift, all queries alike: V_q = V_e = 0. Ten runs against ten are far apart.
    shift_S1 = np.linspace(0, 0.01, 10)[:, None]
    test = scope_test(flat(0.9, S=10) + shift_S1, flat(0.5, S=10) + shift_S1)
    assert test.p_seeds < 1e-12 and test.p_queries == test.p_both == 0.25


@pytest.mark.parametrize(
    ("sides", "ways"),
    [((3, 3), 20), ((5, 3), 56), ((10, 10), 184756), ((4,), 16), ((4, 1e999), 16)],
)
def test_runs_are_permuted_between_sides_or_their_signs_of_one(sides, ways):
    assert certain_runs_p(sides) == pytest.approx(2 / ways)


def test_paired_runs_permute_their_signs():
    test = paired_scope_test(flat(1, Q=12), flat(0.5, Q=12))
    assert (test.p_seeds, test.p_both) == (0.25, 0.25)  # of three pairs: 2 of 8


def test_what_varies_between_queries_keeps_its_t_test():
    # By hand: differences .4, .5, .6, mean .5, SD .1: t = .5 / (.1 / sqrt 3).
    one, other = np.array([[0.9, 1.0, 1.1]] * 3), flat(0.5)
    test = scope_test(one, other)
    expected = 2 * stats.t.sf(0.5 / (0.1 / math.sqrt(3)), 2)
    assert test.p_queries == pytest.approx(expected) and test.p_both == pytest.approx(expected)
    assert test.p_least == 0


def test_a_constant_comparison_counts_in_its_family():
    rng = np.random.default_rng(1)
    Q = 9
    scores = {"base": flat(0.5, Q=Q), "high": flat(1, Q=Q), "low": flat(0.1, Q=Q)}
    scores |= {f"s{k}": 0.5 + rng.normal(0, 0.1, (3, Q)) for k in range(4)}
    for correction in ("max-t", "holm"):
        found = compare_cells(matrix(**scores), baseline="base", correction=correction)
        for one in found:
            least = 2.0 ** (1 - Q) if one.se_queries == 0 else 0
            assert one.p_both_adjusted >= one.p_both >= least
        constant = [one for one in found if one.system in ("high", "low")]
        assert {one.p_both for one in constant} == {0.1}
        assert min(one.p_both_adjusted for one in constant) > 0.1


def test_of_several_collections_the_smallest_counts():
    # Within each collection the difference is constant: +.5 of ten queries, +.1 of four.
    parts = [
        matrix(A=flat(1, S=1, Q=10), B=flat(0.5, S=1, Q=10)),
        matrix(A=flat(0.6, S=1, Q=4), B=flat(0.5, S=1, Q=4)),
    ]
    mean = over_collections(parts, measure="mean")
    [found] = compare_cells(mean, baseline="A", deterministic=("A", "B"))
    assert found.delta == pytest.approx(-0.3) and found.p_both == 2.0**-3


@pytest.mark.parametrize("best_set_of", [True, False])
def test_a_table_of_constants_never_has_a_verdict_of_fewer_than_six_queries(best_set_of):
    rng = np.random.default_rng(3)
    for _ in range(50):
        Q, K = int(rng.integers(2, 6)), int(rng.integers(2, 9))
        table = matrix(**{f"s{k}": flat(rng.integers(0, 5) / 4, Q=Q) for k in range(K)})
        if best_set_of:
            assert not best_set(table, alpha=0.05).left
        else:
            found = compare_cells(
                table, baseline="s0", correction=str(rng.choice(["max-t", "none"]))
            )
            assert not any(one.significant(0.05) or one.p_queries < 0.05 for one in found)


def test_a_race_of_equal_leads_eliminates_no_one_early():
    # Two seeds show the same lead: of four signs two are as extreme, p = .5.
    seeds = range(1, 9)
    values = {("A", s): np.array([1.0, 1, 1]) for s in seeds}
    values |= {("B", s): np.array([0.5, 0.5, 0.5]) for s in seeds}
    race = race_so_far(values, configurations=["A", "B"], seeds=seeds)
    assert [verdict.judged[1].p for verdict in race.verdicts] == [
        2.0 ** (1 - s) for s in range(2, 2 + len(race.verdicts))
    ]
    first = next((v.num_seeds for v in race.verdicts if v.leaves), 8)
    assert first >= 6 and race.winner == "A"
