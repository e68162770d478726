"""Laws from the long table to the tested comparison: what may change a result and what may not."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from rank_core.stats.compare import CellComparison, compare_cells
from rank_core.stats.matrix import score_matrix
from tests.rank_core.stats.matrices import drawn, long_table

CELLS = ("firstp", "maxp", "sump")
SEEDS, QUERIES = (1, 2, 3), tuple(f"q{number}" for number in range(40))


def table() -> pd.DataFrame:
    """Three cells, three seeds, forty queries; `maxp` is better."""
    effects = dict(zip(CELLS, (0.0, 0.04, 0.01), strict=True))
    matrix = drawn(effects, Q=40, own_sd=0.04, seed_sd=0.01, residual=0.03)
    scores = {cell: dict(zip(SEEDS, matrix.scores[cell], strict=True)) for cell in CELLS}
    return long_table(scores, measure="AP")


def compared(given: pd.DataFrame, cells=CELLS, baseline="firstp") -> dict[str, CellComparison]:
    matrix = score_matrix(given, measure="AP", cells=list(cells))
    return {one.system: one for one in compare_cells(matrix, baseline=baseline)}


def assert_same(
    found: dict[str, CellComparison], expected: dict[str, CellComparison], *, but=()
) -> None:
    """All numbers agree, except those named."""
    assert set(found) == set(expected)
    for name, one in expected.items():
        for field in dataclasses.fields(CellComparison):
            if field.name in ("family", "test"):
                continue  # of arrays: their numbers are those below
            value, other = getattr(one, field.name), getattr(found[name], field.name)
            if field.name in but:
                continue
            if isinstance(value, str):
                assert other == value
            else:
                assert other == pytest.approx(value, rel=1e-8, abs=1e-14, nan_ok=True), field.name


def turned_seeds(given: pd.DataFrame) -> pd.DataFrame:
    """The seeds of one system in another order."""
    own = given["cell"] == "maxp"
    return given.assign(seed=given["seed"].where(~own, given["seed"].map({1: 3, 2: 1, 3: 2})))


TURNS = {
    "the rows": lambda given: given.sample(frac=1, random_state=1),
    "the seeds of one system": turned_seeds,
    "the queries": lambda given: given.assign(
        query_id=given["query_id"].map(dict(zip(QUERIES, reversed(QUERIES), strict=True)))
    ),
}


@pytest.mark.parametrize("turned", TURNS)
@pytest.mark.parametrize("cells", [CELLS, CELLS[::-1]])
def test_no_order_changes_a_number(turned, cells):
    assert_same(compared(TURNS[turned](table()), cells=cells), compared(table()))


def test_adding_a_constant_per_query_to_all_systems_changes_no_test():
    given = table()
    shift = dict(zip(QUERIES, np.linspace(0, 3, 40), strict=True))
    moved = given.assign(value=given["value"] + given["query_id"].map(shift))
    assert_same(
        compared(moved), compared(given), but=("mean_system", "mean_baseline", "relative_gain")
    )


@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_scaling_leaves_p_and_scales_the_differences(factor: float):
    given = table()
    found = compared(given.assign(value=given["value"] * factor))
    scaled = {
        "mean_system",
        "mean_baseline",
        "delta",
        "se_both",
        "se_moderated",
        "ci_low",
        "ci_high",
    }
    scaled |= {"se_queries", "ci_queries_low", "ci_queries_high", "family_low", "family_high"}
    assert_same(found, compared(given), but=scaled)
    for name, one in compared(given).items():
        for field in scaled:
            assert getattr(found[name], field) == pytest.approx(factor * getattr(one, field))


def test_swapping_system_and_baseline_flips_signs_only():
    pair = ("firstp", "maxp")
    one = compared(table(), cells=pair)["maxp"]
    turned = compared(table(), cells=pair, baseline="maxp")["firstp"]
    for name in ("p_queries", "p_seeds", "p_both", "p_both_adjusted", "se_both", "df_both"):
        assert getattr(turned, name) == pytest.approx(getattr(one, name), rel=1e-10)
    assert (turned.delta, turned.ci_low, turned.ci_high) == pytest.approx(
        (-one.delta, -one.ci_high, -one.ci_low)
    )
    assert (turned.wins, turned.losses) == (one.losses, one.wins)
