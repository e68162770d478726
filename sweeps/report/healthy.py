"""The scores of a sweep without its collapsed seeds, for the second look at every result."""

import pandas as pd

from rank_core.stats.matrix import ScoreMatrix, score_matrix
from sweeps.report.analysis import Analysis


def collapsed_trials(analysis: Analysis) -> set[tuple[str, int]]:
    """(cell, seed) of every collapsed trial."""
    return {(one.cell.cell, seed) for one in analysis.cells for seed in one.seeds("collapsed")}


def healthy_matrix(analysis: Analysis) -> ScoreMatrix | None:
    """The primary measure without collapsed seeds; None if nothing collapsed or nothing is left."""
    sweep, collapsed = analysis.sweep, collapsed_trials(analysis)
    if not collapsed:
        return None
    keys = pd.MultiIndex.from_frame(sweep.scores[["cell", "seed"]])
    kept = sweep.scores[~keys.isin(list(collapsed))]
    alive = set(kept["cell"])
    cells = [one.cell for one in sweep.cells if one.cell in alive]
    return score_matrix(kept, measure=sweep.primary, cells=cells) if cells else None
