"""The bound of the familywise error is that of the table's own case."""

from dataclasses import replace

import numpy as np
import pytest

from rank_core.stats.compare import CellComparison, compare_cells
from sweeps.report.error_bounds import BIMODAL, DIFFERENT, FEWER, error_bounds, error_sentence
from tests.rank_core.stats.matrices import matrix_of


def compared(*seeds: int) -> list[CellComparison]:
    """A baseline and other systems with these numbers of runs."""
    rng = np.random.default_rng(0)
    scores = {f"s{k}": rng.normal(size=(S, 20)) for k, S in enumerate(seeds)}
    return compare_cells(matrix_of(scores), baseline="s0")


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [
        ((3,) * 5, DIFFERENT[3][0]),
        ((3,) * 10, DIFFERENT[3][2]),
        ((4,) * 6, DIFFERENT[4][1]),
        ((10, *(3,) * 4), FEWER[3][0]),
        ((3, *(10,) * 8), FEWER[3][1]),
        ((4, *(10,) * 4), FEWER[3][0]),  # that of three, which is no smaller
        ((5, *(10,) * 4), FEWER[5][0]),
        ((7,) * 5, DIFFERENT[5][0]),  # that of five
    ],
)
def test_a_table_has_the_bound_of_its_runs_and_comparisons(seeds, expected):
    differ, bimodal = error_bounds(compared(*seeds))
    assert differ == expected
    assert bimodal in BIMODAL[min(max(S for S in BIMODAL if S <= min(seeds)), 5)]


def test_more_comparisons_than_were_simulated_have_the_bound_of_the_most():
    [pair, *_] = compared(3, 3, 3)
    assert error_bounds([replace(pair, family_size=100)])[0] == DIFFERENT[3][3]
    assert error_bounds([replace(pair, family_size=8)], num_families=2)[0] == DIFFERENT[3][0]


def test_bounds_grow_with_comparisons_and_fall_with_runs():
    for bounds in (DIFFERENT, FEWER, BIMODAL):
        table = np.array([bounds[S] for S in sorted(bounds)])
        assert (np.diff(table, axis=1) >= 0).all() and (np.diff(table, axis=0) <= 0).all()


def test_the_sentence_names_the_runs_and_is_silent_where_the_level_holds():
    assert error_sentence(compared(*(3,) * 5)).startswith(
        f"With 3 seeds, the familywise error is up to {DIFFERENT[3][0]:.2f} where seed variances"
    )
    assert error_sentence(compared(10, 3, 3)).startswith("With 3 to 10 seeds, the familywise")
    assert error_sentence(compared(*(7,) * 5)) == ""
