"""The A/A check: seeds of one cell split into two pseudo-systems that are equal by construction.

Whatever a test calls different here is a false positive, on the user's own data and for free.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np

from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.power import check_probability
from rank_core.stats.scopes import Floats, scope_test

MOST_SPLITS = 200
"""Splits looked at per cell; ten seeds have 126."""


@dataclass(frozen=True)
class AACheck:
    """Shares of splits called different at alpha; NaN where no cell has enough seeds.

    Scope `queries` needs two seeds of a cell, the other scopes four. Splits of a cell overlap, so
    the rates are less certain than their number suggests.
    """

    measure: str
    alpha: float
    num_splits: int
    num_splits_both: int
    rate_queries: float
    rate_seeds: float
    rate_both: float


def aa_check(matrix: ScoreMatrix, *, alpha: float = 0.05) -> AACheck:
    """Test every half of every cell's seeds against the other half."""
    check_probability("alpha", alpha)
    tests = [
        scope_test(first_SQ, second_SQ)
        for cell in matrix.cells
        for first_SQ, second_SQ in islice(_halves(matrix.scores[cell]), MOST_SPLITS)
    ]
    both = [test for test in tests if not math.isnan(test.p_both)]
    return AACheck(
        measure=matrix.measure,
        alpha=alpha,
        num_splits=len(tests),
        num_splits_both=len(both),
        rate_queries=_rate([test.p_queries for test in tests], alpha),
        rate_seeds=_rate([test.p_seeds for test in both], alpha),
        rate_both=_rate([test.p_both for test in both], alpha),
    )


def _halves(score_SQ: Floats) -> Iterator[tuple[Floats, Floats]]:
    """Every split of the rows into two halves, each unordered pair once."""
    S = len(score_SQ)
    for chosen in combinations(range(S), S // 2):
        if not chosen or (S % 2 == 0 and chosen[0] != 0):
            continue
        inside_S = np.isin(np.arange(S), chosen)
        yield score_SQ[inside_S], score_SQ[~inside_S]


def _rate(p: list[float], alpha: float) -> float:
    return float(np.mean(np.array(p) < alpha)) if p else math.nan
