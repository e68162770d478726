"""Rank intervals: by hand, their laws, and how often they hold."""

import numpy as np
import pytest
from scipy import stats

from rank_core.stats.ranks import rank_intervals
from rank_core.stats.scopes import scope_test
from tests.rank_core.stats.matrices import drawn, matrix_of

EFFECTS = {"far": -0.2, "low": 0.0, "middle": 0.012, "high": 0.05}
MATRIX = drawn(EFFECTS, own_sd=0.03, Q=100, seed=5)


def test_three_systems_by_hand(monkeypatch):
    """Without moderated tests. Six ordered pairs; Holm's steps multiply the smallest p by 6, the
    next by 5, ..."""
    monkeypatch.setattr("rank_core.stats.best.LEAST_POOL", 4)
    names = ("low", "middle", "high")
    p = {}
    for system in names:
        for rival in set(names) - {system}:
            test = scope_test(MATRIX.scores[rival], MATRIX.scores[system])
            p[system, rival] = test.p_both / 2 if test.delta > 0 else 1 - test.p_both / 2
    better, open_ = set(), True
    for step, pair in enumerate(sorted(p, key=p.__getitem__)):
        open_ = open_ and (6 - step) * p[pair] < 0.05
        better |= {pair} if open_ else set()
    assert better == {("low", "high"), ("middle", "high"), ("low", "middle")}
    assert 4 * p["low", "middle"] < 0.05 < 6 * p["low", "middle"], "by Holm, not by Bonferroni"
    table = matrix_of({name: MATRIX.scores[name] for name in names})
    found = rank_intervals(table)
    assert found.intervals == {"high": (1, 1), "middle": (2, 2), "low": (3, 3)}
    assert found.groups == (("high",), ("middle",), ("low",))
    strict = rank_intervals(table, alpha=0.02)
    assert strict.intervals == {"high": (1, 1), "middle": (2, 3), "low": (2, 3)}
    assert strict.groups == (("high",), ("middle", "low"))


def test_a_group_may_hold_what_other_systems_tell_apart():
    """a beats c alone: b is tied with both, and its interval says so."""
    rng = np.random.default_rng(0)
    noise = {"a": 0.001, "b": 0.3, "c": 0.001}
    base_Q = rng.uniform(0.3, 0.6, 40)
    level = {"a": 0.1, "b": 0.05, "c": 0.0}
    scores = {
        name: base_Q + level[name] + rng.normal(0, sd, 40) * (np.arange(3) + 1)[:, None] / 2
        for name, sd in noise.items()
    }
    found = rank_intervals(matrix_of(scores))
    assert found.groups == (("a", "b"), ("c",)) or found.groups == (("b", "a"), ("c",))
    assert found.intervals == {"a": (1, 2), "b": (1, 3), "c": (2, 3)}


def test_order_and_scale_change_nothing():
    turned = matrix_of({cell: 7 * MATRIX.scores[cell][::-1] for cell in MATRIX.cells[::-1]})
    assert rank_intervals(turned) == rank_intervals(MATRIX)


def test_copies_share_every_rank():
    one = MATRIX.scores["low"]
    found = rank_intervals(matrix_of(dict.fromkeys("abc", one)))
    assert found.groups == (("a", "b", "c"),) and {*found.intervals.values()} == {(1, 3)}


def test_few_runs_have_no_rank_and_a_deterministic_one_has():
    scores = {**MATRIX.scores, "two": MATRIX.scores["high"][:2], "bm25": MATRIX.scores["far"][:1]}
    found = rank_intervals(matrix_of(scores))
    assert set(found.unranked) == {"two", "bm25"} and found.groups[0] == ("high",)
    assert found.intervals == rank_intervals(MATRIX).intervals
    fixed = rank_intervals(matrix_of(scores), deterministic=["bm25"])
    assert fixed.unranked == ("two",) and fixed.intervals["bm25"][0] == 4
    assert rank_intervals(matrix_of({"one": scores["two"]})).groups == ()


@pytest.mark.parametrize("step", [0.0, 0.01])
def test_all_intervals_hold_at_once_as_often_as_said(step):
    """Six systems, equal or in steps; a truth of equal means is the rank 1 of all."""
    effects = {name: -step * at for at, name in enumerate("abcdef")}
    truth = {name: 1 + at * (step > 0) for at, name in enumerate("abcdef")}
    held = [
        all(low <= truth[name] <= high for name, (low, high) in found.intervals.items())
        for seed in range(80)
        for found in [rank_intervals(drawn(effects, own_sd=0.03, seed=seed))]
    ]
    assert np.mean(held) > 0.95 - 3 * stats.binom.std(80, 0.05) / 80
