"""Several collections: the mean over them as fixed strata, and one family of all letters."""

from dataclasses import replace

import numpy as np
import pytest

from rank_core.errors import BadInput
from rank_core.stats.best import best_set
from rank_core.stats.compare import CellComparison, compare_cells, scope_test_of
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.strata import compare_collections, over_collections

PLAIN = {"paired_seeds": False, "deterministic": ()}


def matrix(seed: int, Q: int, *, systems: int = 2, S: int = 3) -> ScoreMatrix:
    rng = np.random.default_rng(seed)
    query_Q = rng.normal(0.4, 0.2, Q)
    cells = tuple("abcdefgh"[:systems])
    scores = {
        cell: query_Q + 0.02 * at + rng.normal(0, 0.03, (S, 1)) + rng.normal(0, 0.1, (S, Q))
        for at, cell in enumerate(cells)
    }
    ids = tuple(f"q{q:03}" for q in range(Q))
    return ScoreMatrix(f"m{seed}", cells, ids, {c: tuple(range(S)) for c in cells}, scores)


def numbers(pair: CellComparison) -> dict[str, float]:
    return {name: value for name, value in pair.facts.items() if not isinstance(value, str)}


def compared(ones: list[ScoreMatrix], separate: str = "", **options):
    mean = over_collections(ones, measure="mean", separate_runs=separate)
    return compare_collections(ones, mean, baselines=["a"], **options)


def parts(y: np.ndarray) -> tuple[float, float]:
    """V_s and V_e, by their definitions."""
    S, Q = y.shape
    residual = y - y.mean(1, keepdims=True) - y.mean(0) + y.mean()
    return y.mean(1).var(ddof=1) / S, (residual**2).sum() / ((S - 1) * (Q - 1)) / (Q * S)


@pytest.mark.parametrize("separate", [False, True])
def test_the_mean_over_collections_by_hand(separate: bool) -> None:
    """Every part from the collections themselves, without the matrix of the mean."""
    ones = [matrix(1, 9), matrix(2, 14), matrix(3, 30)]
    C, sides = len(ones), ("b", "a")
    test = scope_test_of(
        over_collections(ones, measure="mean", separate_runs="ab" if separate else ()),
        sides,
        **PLAIN,
    )
    delta = [one.scores["b"].mean() - one.scores["a"].mean() for one in ones]
    V_q = [
        (one.scores["b"].mean(0) - one.scores["a"].mean(0)).var(ddof=1) / len(one.query_ids)
        for one in ones
    ]
    V_e = {c: sum(parts(one.scores[c])[1] for one in ones) / C**2 for c in sides}
    V_s, df_s = {}, {}
    for cell in sides:
        own = [parts(one.scores[cell])[0] for one in ones]
        mean_S = np.mean([one.scores[cell].mean(1) for one in ones], axis=0)
        V_s[cell], df_s[cell] = mean_S.var(ddof=1) / 3, 2.0
        if separate:
            V_s[cell] = sum(own) / C**2
            df_s[cell] = sum(own) ** 2 / sum(v**2 / 2 for v in own)
    V = sum(V_q) / C**2 + sum(max(V_s[c] - V_e[c], 0) for c in sides)
    assert test.delta == pytest.approx(np.mean(delta))
    assert test.variance_queries == pytest.approx(sum(V_q) / C**2)
    assert (test.variance_seeds_a, test.variance_seeds_b) == pytest.approx((V_s["b"], V_s["a"]))
    assert (test.variance_error_a, test.variance_error_b) == pytest.approx((V_e["b"], V_e["a"]))
    assert test.se_both == pytest.approx(np.sqrt(V))
    df_q = sum(V_q) ** 2 / sum(
        v**2 / (len(o.query_ids) - 1) for v, o in zip(V_q, ones, strict=True)
    )
    assert test.df_queries == pytest.approx(df_q)
    first = (sum(V_q) / C**2) ** 2 / df_q
    first += sum(V_s[c] ** 2 / df_s[c] + V_e[c] ** 2 / (df_s[c] * df_q) for c in sides)
    assert test.welch.satterthwaite == pytest.approx(V**2 / first)


def test_one_collection_is_its_own_mean() -> None:
    one = matrix(4, 20, systems=6)
    own, of_mean = compared([one], correction="max-t")
    alone = compare_cells(one, baseline="a", correction="max-t")
    assert own[0]["a"] == alone
    for found, expected in zip(of_mean["a"], alone, strict=True):
        assert numbers(found) == pytest.approx(numbers(expected), nan_ok=True)


@pytest.mark.parametrize(
    ("correction", "separate"), [("max-t", True), ("max-t", False), ("holm", True), ("bh", False)]
)
def test_the_order_of_collections_changes_nothing(separate: bool, correction: str) -> None:
    ones = [matrix(seed, Q, systems=5) for seed, Q in ((1, 9), (2, 14), (3, 30))]

    def found(order) -> dict[tuple[str, str], dict[str, float]]:
        own, of_mean = compared(
            list(order), separate="abcde" if separate else "", correction=correction
        )
        pairs = [pair for letters in (*own, of_mean) for pair in letters["a"]]
        return {(pair.measure, pair.system): numbers(pair) for pair in pairs}

    first = found(ones)
    for order in (ones[::-1], [*ones[1:], ones[0]]):
        other = found(order)
        for key in first:
            assert other[key] == pytest.approx(first[key], rel=1e-9, nan_ok=True), key


def test_all_collections_are_one_family() -> None:
    ones = [matrix(seed, 20, systems=5) for seed in (1, 2)]
    own, of_mean = compared(ones)
    for one, letters in zip(ones, own, strict=True):
        by_holm = compare_cells(one, baseline="a", correction="holm")
        for found, alone in zip(letters["a"], by_holm, strict=True):
            assert found.p_both_adjusted == pytest.approx(min(2 * alone.p_both_adjusted, 1))
            assert found.p_queries_adjusted == pytest.approx(min(2 * alone.p_queries_adjusted, 1))
            assert (found.family_size, found.p_both) == (8, alone.p_both)
            assert found.family_low < alone.family_low < alone.family_high < found.family_high
    for at, pair in enumerate(of_mean["a"]):
        assert pair.family_size == 4
        assert pair.wins == sum(letters["a"][at].wins for letters in own)
        assert pair.wins + pair.ties + pair.losses == pair.num_queries == 40


def test_separate_runs_may_differ_in_number_and_two_of_them_never_decide() -> None:
    ones = [matrix(1, 20, S=5), matrix(2, 20, S=2)]
    ones[0].scores["b"] += 1
    ones[1].scores["b"] += 1
    with pytest.raises(BadInput, match="same on every collection"):
        over_collections(ones, measure="mean")
    _, of_mean = compared(ones, "ab")
    [pair] = of_mean["a"]
    assert pair.num_seeds_system == 2 and pair.p_both < 0.05 and not pair.significant(0.05)
    mean = over_collections(ones, measure="mean", separate_runs="ab")
    assert best_set(mean).members == ("b", "a")
    single = [
        replace(one, scores=one.scores | {"b": one.scores["b"][:1]}, seeds=one.seeds | {"b": (0,)})
        for one in ones
    ]
    _, of_mean = compared(single, "ab")
    assert np.isnan(of_mean["a"][0].p_both) and of_mean["a"][0].p_queries < 0.05


def test_paired_separate_runs_leave_the_set_by_the_test_of_their_differences() -> None:
    ones = [matrix(1, 20, S=3), matrix(2, 30, S=7)]
    mean = over_collections(ones, measure="mean", separate_runs="ab")
    test = scope_test_of(mean, ("b", "a"), paired_seeds=True, deterministic=())
    found = best_set(mean, paired_seeds=True)
    assert min(found.p.values()) == pytest.approx(test.p_both / 2)


def test_a_system_must_be_on_every_collection() -> None:
    ones = [matrix(1, 20), matrix(2, 20, systems=3)]
    for order in (ones, ones[::-1]):
        with pytest.raises(BadInput, match="c has no m1"):
            over_collections(order, measure="mean")
