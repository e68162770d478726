"""Laws from the long table to the tested comparison: what may change a result and what may not."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from rank_core.errors import BadInput
from rank_core.evaluate import mean_values, per_query
from rank_core.stats.compare import Comparison, compare
from rank_core.stats.matrix import score_matrix
from rank_core.stats.scopes import seed_variances

CELLS = ("firstp", "maxp", "sump")
SEEDS, QUERIES = (1, 2, 3), tuple(f"q{number:02}" for number in range(40))


def long_table(seed: int = 0) -> pd.DataFrame:
    """Three cells, three seeds, forty queries; `maxp` is better."""
    rng = np.random.default_rng(seed)
    difficulty_Q = rng.uniform(0.2, 0.8, len(QUERIES))
    rows = []
    for cell, effect in zip(CELLS, (0.0, 0.04, 0.01), strict=True):
        taste_Q = rng.normal(effect, 0.04, len(QUERIES))
        for number in SEEDS:
            value_Q = difficulty_Q + taste_Q + rng.normal(0, 0.01) + rng.normal(0, 0.03, 40)
            rows += [
                (cell, number, "test", query_id, "AP", float(value))
                for query_id, value in zip(QUERIES, value_Q, strict=True)
            ]
    return pd.DataFrame(rows, columns=["cell", "seed", "split", "query_id", "measure", "value"])


def compared(table: pd.DataFrame, cells=CELLS, baseline="firstp") -> dict[str, Comparison]:
    matrix = score_matrix(table, measure="AP", cells=list(cells))
    return {one.system: one for one in compare(matrix, baseline=baseline)}


def assert_same(found: dict[str, Comparison], expected: dict[str, Comparison], *, but=()) -> None:
    """All numbers agree, except those named."""
    assert set(found) == set(expected)
    for name, one in expected.items():
        for field in dataclasses.fields(Comparison):
            value, other = getattr(one, field.name), getattr(found[name], field.name)
            if field.name in but:
                continue
            if isinstance(value, str):
                assert other == value
            else:
                assert other == pytest.approx(value, rel=1e-8, abs=1e-14, nan_ok=True), field.name


def renamed(table: pd.DataFrame, column: str, names: dict) -> pd.DataFrame:
    return table.assign(**{column: table[column].map(names)})


def test_the_order_of_the_rows_changes_nothing():
    assert_same(compared(long_table().sample(frac=1, random_state=1)), compared(long_table()))


def test_permuting_queries_changes_nothing():
    names = dict(zip(QUERIES, reversed(QUERIES), strict=True))
    assert_same(compared(renamed(long_table(), "query_id", names)), compared(long_table()))


def test_permuting_the_seeds_of_one_system_changes_nothing():
    table = long_table()
    own = table["cell"] == "maxp"
    turned = table.assign(seed=table["seed"].where(~own, table["seed"].map({1: 3, 2: 1, 3: 2})))
    assert_same(compared(turned), compared(table))


def test_permuting_the_systems_changes_nothing():
    assert_same(compared(long_table(), cells=CELLS[::-1]), compared(long_table()))


def test_adding_a_constant_per_query_to_all_systems_changes_no_test():
    table = long_table()
    shift = dict(zip(QUERIES, np.linspace(0, 3, 40), strict=True))
    moved = table.assign(value=table["value"] + table["query_id"].map(shift))
    assert_same(
        compared(moved), compared(table), but=("mean_system", "mean_baseline", "relative_gain")
    )


@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_scaling_leaves_p_and_scales_the_differences(factor: float):
    table = long_table()
    found = compared(table.assign(value=table["value"] * factor))
    scaled = {"mean_system", "mean_baseline", "delta", "se_both", "ci_low", "ci_high"}
    scaled |= {"se_queries", "ci_queries_low", "ci_queries_high"}
    assert_same(found, compared(table), but=scaled)
    for name, one in compared(table).items():
        for field in scaled:
            assert getattr(found[name], field) == pytest.approx(factor * getattr(one, field))


def test_swapping_system_and_baseline_flips_signs_only():
    pair = ("firstp", "maxp")
    one = compared(long_table(), cells=pair)["maxp"]
    turned = compared(long_table(), cells=pair, baseline="maxp")["firstp"]
    for name in ("p_queries", "p_seeds", "p_both", "p_both_adjusted", "se_both", "df_both"):
        assert getattr(turned, name) == pytest.approx(getattr(one, name), rel=1e-10)
    assert (turned.delta, turned.ci_low, turned.ci_high) == pytest.approx(
        (-one.delta, -one.ci_high, -one.ci_low)
    )
    assert (turned.wins, turned.losses) == (one.losses, one.wins)


def test_duplicating_a_system_gives_p_one():
    table = long_table()
    copy = table[table["cell"] == "firstp"].assign(cell="copy")
    found = compared(pd.concat([table, copy]), cells=(*CELLS, "copy"))
    one = found["copy"]
    assert (one.delta, one.p_queries, one.p_seeds, one.p_both) == (0, 1, 1, 1)
    assert (one.ties, one.wins, one.losses) == (40, 0, 0)
    before = compared(table)
    assert all(found[name].p_both == before[name].p_both for name in before)


@pytest.mark.parametrize("num_copies", [2, 3, 5])
def test_copying_one_seed_is_refused_and_not_rewarded(num_copies: int):
    table = long_table()
    one = table[(table["cell"] == "maxp") & (table["seed"] == 1)]
    copies = [one.assign(seed=10 + number) for number in range(num_copies)]
    with pytest.raises(BadInput, match="seed has no effect"):
        compared(pd.concat([table[table["cell"] != "maxp"], *copies]))


def test_one_seed_more_is_no_copy_and_is_accepted():
    table = long_table()
    other = long_table(5)
    more = other[(other["cell"] == "maxp") & (other["seed"] == 1)].assign(seed=4)
    assert compared(pd.concat([table, more]))["maxp"].num_seeds_system == 4


def test_sakai_s_analysis_of_variance_has_the_same_mean_squares():
    # Three systems on twenty topics (Sakai 2018, Table 5.1): systems stand where seeds stand.
    systems = (
        "7 3 2 6 4 4 0 7 1 3 5 4 0 6 5 3 1 5 2 1",
        "5 1 0 2 4 3 0 5 3 3 4 4 1 4 2 1 1 6 3 2",
        "0 0 2 1 3 3 1 2 4 4 4 3 3 2 2 2 1 5 4 3",
    )
    score_SQ = np.array([text.split() for text in systems], dtype=float) / 10
    between, error = seed_variances(score_SQ)
    assert error * 60 == pytest.approx(0.0219, abs=5e-5)
    assert between * 60 * 2 == pytest.approx(0.1083, abs=5e-5)
    assert between / error == pytest.approx(2.475, abs=5e-4)
    assert stats.f.sf(between / error, 2, 38) == pytest.approx(0.0976, abs=5e-5)
    X, Y, Z = score_SQ.mean(axis=1)
    effects = np.array([X - Y, X - Z, Y - Z]) / math.sqrt(error * 60)
    assert effects == pytest.approx([0.5070, 0.6760, 0.1690], abs=5e-5)


def test_the_example_of_ir_measures_has_its_published_values():
    qrels = {"Q0": {"D0": 0, "D1": 1}, "Q1": {"D0": 0, "D3": 2}}
    run = {"Q0": {"D0": 1.2, "D1": 1.0}, "Q1": {"D3": 3.6, "D0": 2.4}}
    found = mean_values(per_query(qrels, run, ["AP", "nDCG", "RR", "P(rel=2)@10"]))
    expected = {"AP": 0.75, "nDCG": 0.8154648768, "RR": 0.75, "P(rel=2)@10": 0.05}
    assert found == pytest.approx(expected, abs=5e-11)
