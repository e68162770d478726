"""The measure of every system by the place of the evidence, where a sweep's folder knows it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.positions import PositionCurves, position_curves
from sweeps.store.queries import read_query_facts


def curves_of(
    matrix: ScoreMatrix, systems: Sequence[str], folder: Path, split: str, alpha: float
) -> PositionCurves | None:
    """The curves of the systems over the queries whose evidence has a known place; None where too
    few have one, and for a measure with negative values."""
    positions: Mapping[str, str] = read_query_facts(folder, split).position
    known = [place for place, query_id in enumerate(matrix.query_ids) if query_id in positions]
    scores = {name: matrix.scores[name][:, known] for name in systems if name in matrix.scores}
    if not known or any(np.min(values) < 0 for values in scores.values()):
        return None
    return position_curves(
        scores, [int(positions[matrix.query_ids[place]]) for place in known], alpha=alpha
    )
