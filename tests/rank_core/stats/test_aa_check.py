"""The A/A check finds false positives where seeds vary, and none where nothing does."""

import math

import numpy as np
import pytest

from rank_core.stats.aa_check import aa_check
from rank_core.stats.matrix import ScoreMatrix


def sweep(*, S, sigma_S, num_cells=12, Q=80, seed=0):
    rng = np.random.default_rng(seed)
    scores = {
        f"cell{number}": rng.uniform(0, 1, Q)
        + rng.normal(0, sigma_S, (S, 1))
        + rng.normal(0, 0.05, (S, Q))
        for number in range(num_cells)
    }
    return ScoreMatrix(
        measure="AP",
        cells=tuple(scores),
        query_ids=tuple(map(str, range(Q))),
        seeds={cell: tuple(range(S)) for cell in scores},
        scores=scores,
    )


def test_seed_variance_breaks_the_queries_scope_and_not_the_one_that_decides():
    check = aa_check(sweep(S=6, sigma_S=0.03))
    assert check.num_splits == check.num_splits_both == 12 * 10
    assert check.rate_queries > 0.4
    assert check.rate_both < 0.12


def test_without_seed_variance_all_scopes_hold():
    check = aa_check(sweep(S=6, sigma_S=0.0, num_cells=40))
    assert max(check.rate_queries, check.rate_seeds, check.rate_both) < 0.1


@pytest.mark.parametrize(("S", "splits"), [(2, 1), (3, 3), (4, 3), (5, 10)])
def test_every_unordered_split_is_looked_at_once(S, splits):
    check = aa_check(sweep(S=S, sigma_S=0.01, num_cells=1))
    assert check.num_splits == splits
    assert check.num_splits_both == (splits if S >= 4 else 0)


def test_too_few_seeds_are_said_and_not_guessed():
    single = aa_check(sweep(S=1, sigma_S=0.01))
    assert single.num_splits == 0 and math.isnan(single.rate_queries)
    three = aa_check(sweep(S=3, sigma_S=0.01))
    assert three.num_splits > 0 and math.isnan(three.rate_both) and math.isnan(three.rate_seeds)
