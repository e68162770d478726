"""The set of systems that cannot be told from the best: its laws, and one verdict by hand."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from rank_core.errors import BadInput
from rank_core.stats import best
from rank_core.stats.best import BestSet, Rivalry, best_set
from rank_core.stats.compare import compare_cells
from rank_core.stats.multiplicity import MOST_DRAWN
from rank_core.stats.scopes import scope_test
from tests.rank_core.stats.matrices import drawn, matrix_of

EFFECTS = {"far": -0.2, "low": 0.0, "middle": 0.02, "high": 0.03, "best": 0.035, "twin": 0.034}
MATRIX = drawn(EFFECTS, own_sd=0.03, Q=150, seed=5)


def rebuilt(change=lambda scores: scores, cells=MATRIX.cells):
    return matrix_of({cell: change(MATRIX.scores[cell]) for cell in cells})


def assert_same(found: BestSet, expected: BestSet, scale: float = 1) -> None:
    assert (found.best, found.members, found.left) == (
        expected.best,
        expected.members,
        expected.left,
    )
    assert found.p == pytest.approx(expected.p, rel=1e-6)
    assert found.rivals == expected.rivals
    distances = {system: scale * limit for system, limit in expected.distances.items()}
    assert found.distances == pytest.approx(distances, rel=1e-6)


EXPECTED = best_set(MATRIX)


def test_the_set_has_the_highest_mean_and_what_is_near_it():
    means = {cell: MATRIX.scores[cell].mean() for cell in MATRIX.cells}
    assert EXPECTED.best == max(means, key=means.__getitem__) == EXPECTED.members[0]
    assert {"far", "low"} <= set(EXPECTED.left)
    assert set(EXPECTED.members) | set(EXPECTED.left) == set(MATRIX.cells)
    assert EXPECTED.p[EXPECTED.best] == 1 and EXPECTED.others == EXPECTED.members[1:]
    assert EXPECTED.rivals["far"] != "far" and EXPECTED.best not in EXPECTED.rivals


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("agree", [True, False])
def test_no_order_of_systems_queries_or_runs_changes_the_set(agree, paired, monkeypatch):
    monkeypatch.setattr("rank_core.stats.best.seeds_agree", lambda *_: agree)
    settings = {"paired_seeds": paired}
    expected = best_set(MATRIX, **settings)
    assert_same(best_set(rebuilt(cells=MATRIX.cells[::-1]), **settings), expected)
    order = np.random.default_rng(1).permutation(150)
    assert_same(best_set(rebuilt(lambda scores: scores[:, order]), **settings), expected)
    assert_same(best_set(rebuilt(lambda scores: scores[::-1]), **settings), expected)


def test_scale_and_shift_do_not_change_the_set():
    shift_Q = np.linspace(0, 2, 150)
    assert_same(best_set(rebuilt(lambda scores: 100 * scores)), EXPECTED, scale=100)
    assert_same(best_set(rebuilt(lambda scores: scores + shift_Q)), EXPECTED)


def test_the_set_shrinks_as_alpha_rises():
    before = set(MATRIX.cells)
    for alpha in (1e-6, 0.001, 0.01, 0.05, 0.2, 0.45):
        members = set(best_set(MATRIX, alpha=alpha).members)
        assert EXPECTED.best in members and members <= before
        assert members == {cell for cell in MATRIX.cells if EXPECTED.p[cell] >= alpha}
        before = members


def test_two_systems_are_decided_by_half_the_p_of_their_comparison():
    pair = rebuilt(cells=("low", "best"))
    (comparison,) = compare_cells(pair, baseline="low")
    assert best_set(pair).p["low"] == pytest.approx(comparison.p_both / 2, rel=1e-9)


def test_three_systems_by_hand(monkeypatch):
    """Without moderated tests: the probability that the larger one of two correlated normals
    reaches the smallest one-sided p."""
    monkeypatch.setattr("rank_core.stats.best.LEAST_POOL", 4)
    names = ("middle", "high", "best")
    found = best_set(rebuilt(cells=names))
    for cell in set(names) - {found.best}:
        rivals = sorted(set(names) - {cell})
        tests = [scope_test(MATRIX.scores[rival], MATRIX.scores[cell]) for rival in rivals]
        least = min(t.p_both / 2 if t.delta > 0 else 1 - t.p_both / 2 for t in tests)
        mean_Q = {name: MATRIX.scores[name].mean(axis=0) for name in names}
        shared = np.cov(*(mean_Q[rival] - mean_Q[cell] for rival in rivals))[0, 1] / 150
        shared += max(tests[0].variance_seeds_b - tests[0].variance_error_b, 0)
        r = shared / tests[0].se_both / tests[1].se_both
        z = stats.norm.isf(least)
        expected = 1 - stats.multivariate_normal.cdf([z, z], cov=[[1, r], [r, 1]])
        assert found.p[cell] == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("agree", [True, False])
def test_the_p_of_a_system_is_between_its_smallest_one_and_bonferroni_s(agree, paired, monkeypatch):
    """Of the larger p of both tests; where variances agree that of the moderated test and that of
    the own one alone are enough."""
    monkeypatch.setattr("rank_core.stats.best.seeds_agree", lambda *_: agree)
    found = best_set(MATRIX, paired_seeds=paired)
    rivalry = Rivalry(MATRIX, MATRIX.cells, frozenset(), paired)
    own_KK, moderated_KK = rivalry.one_sided()
    assert not np.isnan(moderated_KK[~np.eye(len(MATRIX.cells), dtype=bool)]).any()
    strictly = False
    for i, cell in enumerate(MATRIX.cells):
        others = np.arange(len(MATRIX.cells)) != i
        larger = np.maximum(own_KK, moderated_KK)[i, others].min()
        least = np.maximum(moderated_KK, 0 if agree else own_KK)[i, others].min()
        assert least <= found.p[cell] * (1 + 1e-9)
        if cell != found.best:
            assert found.p[cell] <= min(1, len(MATRIX.cells[1:]) * larger) * (1 + 1e-9)
            strictly |= larger * (1 + 1e-9) < found.p[cell] < len(MATRIX.cells[1:]) * larger
    assert strictly


def test_of_paired_runs_the_moderated_tests_are_over_tables_of_differences():
    """As `compare_cells` has them: the set and the letters of a table are of one test."""
    rivalry = Rivalry(MATRIX, MATRIX.cells, frozenset(), paired_seeds=True)
    _, moderated_KK = rivalry.one_sided()
    for base in ("low", "best"):
        i = MATRIX.cells.index(base)
        for one in compare_cells(MATRIX, baseline=base, paired_seeds=True):
            half = one.p_moderated / 2
            expected = half if one.delta > 0 else 1 - half
            j = MATRIX.cells.index(one.system)
            assert moderated_KK[i, j] == pytest.approx(expected, rel=1e-6)


def unlike_over_a_deterministic_best(raised=0.0):
    """Three runs of four systems, two of them unsteady, below the scores of a first stage."""
    effects = {"first": 0.2, "a": 0.1, "b": 0.05, "c": 0.0, "d": 0.02}
    scores = drawn(effects, S=3, own_sd=0.05, Q=80, seed_sd=0.002, seed=4).scores
    for cell in "cd":
        scores[cell] = scores[cell] + 0.03 * np.array([[-1.0], [0], [1]])
    return scores | {"first": scores["first"][:1], "d": scores["d"] + raised}


def test_a_deterministic_best_and_its_letters_are_of_one_test():
    matrix = matrix_of(unlike_over_a_deterministic_best())
    rivalry = Rivalry(matrix, matrix.cells, frozenset(["first"]), paired_seeds=False)
    _, moderated_KK = rivalry.one_sided()
    i = matrix.cells.index("first")
    assert [*rivalry._tests.apart] == [i]
    found = compare_cells(matrix, baseline="first", deterministic=["first"])
    assert {one.family.applied.p for one in found} == {"behrens-fisher"}
    for one in found:
        half = one.p_moderated / 2
        expected = half if one.delta > 0 else 1 - half
        j = matrix.cells.index(one.system)
        assert moderated_KK[i, j] == pytest.approx(expected, rel=1e-6)
    limit = best_set(matrix, deterministic=["first"]).distances["d"]
    for share, leaves in ((0.99, False), (1.01, True)):
        raised = matrix_of(unlike_over_a_deterministic_best(share * limit))
        assert ("first" in best_set(raised, deterministic=["first"]).left) is leaves


def test_systems_that_are_identical_enter_once():
    scores = {**MATRIX.scores, "copy": MATRIX.scores["best"], "again": MATRIX.scores["low"]}
    found = best_set(matrix_of(scores))
    for cell, first in (("copy", "best"), ("again", "low")):
        assert found.p[cell] == found.p[first]
    assert {cell: found.p[cell] for cell in MATRIX.cells} == EXPECTED.p


def test_all_equal_systems_stay():
    one = MATRIX.scores["low"]
    found = best_set(matrix_of({"a": one, "b": one.copy(), "c": one.copy()}))
    assert (found.members, found.left) == (("a", "b", "c"), ())
    assert best_set(matrix_of({"a": one})).members == ("a",)


def test_a_deterministic_system_is_a_member_and_one_run_of_a_trained_one_is_not_judged():
    scores = {"bm25": MATRIX.scores["best"][:1] + 0.001, **MATRIX.scores}
    fixed = best_set(matrix_of(scores), deterministic=["bm25"])
    assert fixed.best == "bm25" and "best" in fixed.members and not fixed.untested
    test = scope_test(scores["bm25"], scores["far"], deterministic=(True, False))
    assert fixed.p["far"] == pytest.approx(0, abs=1e-6) and test.p_both < 1e-6
    undeclared = best_set(matrix_of(scores))
    assert undeclared.untested == ("bm25",) and "bm25" not in undeclared.p
    assert undeclared.p == EXPECTED.p


def test_paired_runs_need_the_same_seeds():
    other = dataclasses.replace(MATRIX, seeds={**MATRIX.seeds, "low": (7, 8, 9)})
    assert best_set(other)
    with pytest.raises(BadInput):
        best_set(other, paired_seeds=True)


@pytest.mark.parametrize("correlation", [0.0, 0.9])
@pytest.mark.parametrize("S", [3, 5])
@pytest.mark.parametrize("paired", [False, True])
def test_what_rivals_share_is_a_correlation_matrix(paired, S, correlation):
    """Of paired runs the standard errors are those of differences: no side's variance is in them,
    and none may be added to the covariances."""
    common = np.random.default_rng(S).normal(0, 0.03 * correlation**0.5, (S, 1))
    cells = dict.fromkeys("abcdefghijkl", 0.0)
    own = drawn(cells, S=S, Q=100, own_sd=0.03, seed_sd=0.03 * (1 - correlation) ** 0.5)
    scores = {cell: score_SQ + common for cell, score_SQ in own.scores.items()}
    rivalry = Rivalry(matrix_of(scores), tuple(scores), frozenset(), paired)
    rivalry.leaving()
    for i in range(len(scores)):
        others = np.flatnonzero(np.arange(len(scores)) != i)
        R_JJ = rivalry._correlation(i, others)
        assert np.linalg.eigvalsh(R_JJ).min() > -1e-9
        assert R_JJ[~np.eye(len(R_JJ), dtype=bool)].max() < 1, "no two rivals are one"


def test_of_more_rivals_than_are_drawn_no_correlations_are_computed(monkeypatch):
    """They take the cube of the number of systems, and only how many can err counts."""
    cells = {f"c{k}": k % 2 * 0.1 for k in range(MOST_DRAWN + 2)}
    matrix = matrix_of(drawn(cells, S=3, Q=20, own_sd=0.05, seed_sd=0.02).scores)
    with monkeypatch.context() as changed:
        changed.setattr(best, "MOST_DRAWN", len(cells))
        expected = best_set(matrix)
    monkeypatch.setattr(np, "cov", None)
    assert best_set(matrix) == expected and 1 < len(expected.members) < len(cells)


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.0, 0.9])
@pytest.mark.parametrize(("K", "S", "sd"), [(6, 5, 0.01), (12, 5, 0.01), (12, 3, 0.03)])
def test_of_paired_runs_the_best_is_inside_as_often_as_said(K, S, sd, correlation, monkeypatch):
    """400 tables of equal systems. Without moderated tests it is inside in .89 of those of three
    runs."""
    monkeypatch.setattr("rank_core.stats.multiplicity.NUM_DRAWS", 2048)  # enough for a rate
    monkeypatch.setattr("rank_core.stats.scopes.HALVINGS", 25)
    cells, stays = dict.fromkeys("abcdefghijkl"[:K], 0.0), 0
    for seed in range(400):
        own = drawn(
            cells, S=S, Q=100, own_sd=0.06, seed_sd=sd * (1 - correlation) ** 0.5, seed=seed
        )
        run_S1 = np.random.default_rng(seed).normal(0, sd * correlation**0.5, (S, 1))
        matrix = matrix_of({cell: score_SQ + run_S1 for cell, score_SQ in own.scores.items()})
        stays += "a" in best_set(matrix, paired_seeds=True).members
    assert stays / 400 >= 0.94 - 2 * np.sqrt(0.05 * 0.95 / 400)


def test_the_truly_best_is_inside_as_often_as_said():
    """Five equal systems; every one is the best, so each leaves in at most alpha of the tables."""
    stays = [
        "a" in best_set(drawn(dict.fromkeys("abcde", 0.0), own_sd=0.03, seed=seed)).members
        for seed in range(40)
    ]
    assert np.mean(stays) > 0.95 - 3 * stats.binom.std(40, 0.05) / 40


def test_a_system_of_two_runs_does_not_keep_the_others_inside():
    matrix = drawn({"high": 0.3, "low": 0.0, "two": -0.01}, S=3)
    matrix.scores["two"] = matrix.scores["two"][:2]
    seeds = {**matrix.seeds, "two": matrix.seeds["two"][:2]}
    found = best_set(dataclasses.replace(matrix, seeds=seeds))
    assert found.members == ("high", "two") and found.left == ("low",)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize(("agree", "S"), [(True, 3), (False, 3), (False, 5)])
def test_a_system_is_within_a_margin_where_with_this_margin_more_it_would_beat_the_best(
    agree, S, paired, monkeypatch
):
    """The limit of the distance is where the decision of the set would turn, by every rule."""
    monkeypatch.setattr("rank_core.stats.best.seeds_agree", lambda *_: agree)
    effects = {"low": 0.0, "middle": 0.05, "best": 0.2}
    scores = drawn(effects, S=S, own_sd=0.05, Q=80, seed=3).scores
    found = best_set(matrix_of(scores), paired_seeds=paired)
    assert found.members == ("best",) and found.distances["best"] == 0
    for system in ("low", "middle"):
        limit = found.distances[system]
        assert limit > scores["best"].mean() - scores[system].mean()
        for share, leaves in ((0.99, False), (1.01, True)):
            raised = matrix_of(scores | {system: scores[system] + share * limit})
            assert ("best" in best_set(raised, paired_seeds=paired).left) is leaves
    assert found.within(found.distances["middle"] * 1.01) == ("best", "middle")
    assert found.within(1e-9) == ("best",)


def test_a_system_must_be_near_every_one_that_may_be_the_best():
    found = EXPECTED
    assert len(found.members) > 2 and min(found.distances.values()) > 0
    alone = {
        cell: best_set(rebuilt(cells=[cell, "low"]), alpha=found.alpha).distances["low"]
        for cell in found.members
    }
    assert found.distances["low"] > max(alone.values()), "the family is larger"
    assert found.within(1.0) == (*found.members, *found.left) and found.within(0.001) == ()


def test_two_runs_bound_nothing():
    scores = dict(drawn({"a": 0.0, "b": 0.01, "c": 0.3}, S=3).scores)
    scores["a"] = scores["a"][:2]
    found = best_set(matrix_of(scores))
    assert found.distances["a"] == np.inf and found.within(2.0) == ()


def test_equal_systems_share_their_distance():
    scores = drawn({"a": 0.0, "b": 0.3}, S=3).scores
    found = best_set(matrix_of({**scores, "copy": scores["a"]}))
    assert found.distances["copy"] == found.distances["a"] < np.inf
    alone = best_set(matrix_of({"a": scores["a"], "copy": scores["a"]}))
    assert alone.distances == {"a": 0, "copy": 0}


@pytest.mark.slow
@pytest.mark.parametrize("S", [3, 5])
def test_what_is_a_margin_below_the_best_is_hardly_ever_said_to_be_within_it(S, monkeypatch):
    """Of systems at the margin below the true best and at twice the margin, in 5% of tables."""
    monkeypatch.setattr("rank_core.stats.multiplicity.NUM_DRAWS", 2048)  # enough for a rate
    margin, tables, claims, near = 0.02, 200, 0, 0
    effects = {"best": 0.2, "tied": 0.2, "near": 0.198, "at": 0.2 - margin, "far": 0.2 - 2 * margin}
    for number in range(tables):
        matrix = drawn(effects, S=S, Q=150, own_sd=0.02, seed_sd=0.003, seed=number)
        within = best_set(matrix).within(margin)
        claims += bool({"at", "far"} & {*within})
        near += "near" in within
    assert claims / tables <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / tables)
    assert near / tables > 0.5, "the limits can show something"
