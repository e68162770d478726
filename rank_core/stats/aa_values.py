"""The p-values behind the A/A check, for a plot against the uniform they should follow."""

import math
from itertools import islice

from rank_core.stats.aa_check import MOST_SPLITS, _halves
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.scopes import scope_test


def aa_p_values(matrix: ScoreMatrix) -> dict[str, list[float]]:
    """{scope: sorted p-values} of `queries` and `both` over the splits of every cell's seeds.

    `both` is empty where no cell has four seeds.
    """
    tests = [
        scope_test(first_SQ, second_SQ)
        for cell in matrix.cells
        for first_SQ, second_SQ in islice(_halves(matrix.scores[cell]), MOST_SPLITS)
    ]
    return {
        "queries": sorted(test.p_queries for test in tests),
        "both": sorted(test.p_both for test in tests if not math.isnan(test.p_both)),
    }
