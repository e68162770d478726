"""Wilcoxon's signed-rank test on means over seeds: a second look at the queries scope, no more.

It never decides. Its hypothesis is that the differences are symmetric about 0, which is another
question than that of the means in the table; ranks throw away how large a difference is, and the
many queries on which rerankers agree are dropped; above all it knows nothing of training runs, so
it is as wrong about methods as the customary t-test. If it disagrees with p_queries, a few queries
carry the difference of the means: look at them.
"""

import numpy as np
from scipy import stats

from rank_core.errors import BadInput, unknown
from rank_core.stats.compare import TIE
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.scopes import Floats


def signed_rank_p(delta_Q: Floats) -> float:
    """Two-sided p of one difference per query: normal approximation, continuity corrected.

    Queries that tie are dropped (Wilcoxon's own treatment), equal sizes share their rank, and 1 is
    given where every query ties. Both options are fixed, because scipy's default changes between
    the exact distribution and the approximation with the number of queries and their ties.
    """
    delta_Q = np.asarray(delta_Q, dtype=np.float64)
    if delta_Q.ndim != 1 or not len(delta_Q) or not np.isfinite(delta_Q).all():
        raise BadInput(
            f"differences must be a list of finite numbers, got the shape {delta_Q.shape}"
        )
    # Rounding would make two sizes of what is one, and a difference of what is a tie.
    delta_Q = np.round(delta_Q / TIE) * TIE
    if not delta_Q.any():
        return 1.0
    return float(stats.wilcoxon(delta_Q, method="approx", correction=True).pvalue)


def signed_rank(matrix: ScoreMatrix, *, baseline: str) -> dict[str, float]:
    """{system: p against the baseline}, on means over seeds and adjusted for nothing."""
    if baseline not in matrix.cells:
        raise unknown("baseline", baseline, matrix.cells)
    mean_Q = {cell: score_SQ.mean(axis=0) for cell, score_SQ in matrix.scores.items()}
    return {
        cell: signed_rank_p(mean_Q[cell] - mean_Q[baseline])
        for cell in matrix.cells
        if cell != baseline
    }
