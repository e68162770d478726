"""The p-values behind the A/A check are those whose share below alpha the check reports."""

import numpy as np

from rank_core.seeding import generator
from rank_core.stats.aa_check import aa_check
from rank_core.stats.aa_values import aa_p_values
from rank_core.stats.matrix import ScoreMatrix


def _matrix(num_seeds: int) -> ScoreMatrix:
    rng = generator(3, "halves")
    scores = {
        cell: rng.normal(0.4, 0.1, 50) + rng.normal(0, 0.02, (num_seeds, 1))
        + rng.normal(0, 0.05, (num_seeds, 50))
        for cell in ("a", "b", "c")
    }  # fmt: skip
    return ScoreMatrix(
        measure="nDCG@10",
        cells=tuple(scores),
        query_ids=tuple(f"q{i}" for i in range(50)),
        seeds={cell: tuple(range(num_seeds)) for cell in scores},
        scores=scores,
    )


def test_the_share_below_alpha_is_the_rate_of_the_check() -> None:
    matrix = _matrix(5)
    values, check = aa_p_values(matrix), aa_check(matrix, alpha=0.2)
    assert len(values["queries"]) == check.num_splits
    assert np.mean(np.array(values["queries"]) < 0.2) == check.rate_queries
    assert np.mean(np.array(values["both"]) < 0.2) == check.rate_both
    assert values["both"] == sorted(values["both"])


def test_three_seeds_have_no_split_that_both_can_test() -> None:
    values = aa_p_values(_matrix(3))
    assert len(values["queries"]) == 9 and values["both"] == []
