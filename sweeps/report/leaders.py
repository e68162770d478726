"""Which cells no test tells from the best one: a table that bolds one number hides them."""

import numpy as np

from rank_core.stats.compare import compare
from rank_core.stats.matrix import ScoreMatrix


def best_cell(matrix: ScoreMatrix) -> str:
    """The cell with the highest mean; the first of equals."""
    return max(matrix.cells, key=lambda cell: float(np.mean(matrix.scores[cell])))


def tied_with_best(
    matrix: ScoreMatrix, *, alpha: float, correction: str, paired: bool
) -> frozenset[str]:
    """Cells that do not differ from the best one with queries and training runs random.

    The family is all comparisons with the best cell. A cell with one seed is never named: that
    nothing is known about it does not make it as good.
    """
    found = compare(
        matrix,
        baseline=best_cell(matrix),
        correction=correction,
        alpha=alpha,
        paired_seeds=paired,
    )
    return frozenset(one.system for one in found if one.p_both_adjusted >= alpha)
