"""Matrices of made-up scores, and published ones."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from rank_core.stats.matrix import ScoreMatrix

A = np.array(
    [
        [0.50, 0.30, 0.70, 0.90, 0.10, 0.60, 0.42, 0.77],
        [0.58, 0.37, 0.75, 0.97, 0.17, 0.70, 0.50, 0.80],
        [0.44, 0.26, 0.66, 0.83, 0.03, 0.52, 0.38, 0.70],
    ]
)
B = np.array(
    [
        [0.41, 0.29, 0.60, 0.85, 0.05, 0.55, 0.30, 0.70],
        [0.46, 0.32, 0.68, 0.89, 0.12, 0.57, 0.37, 0.79],
        [0.36, 0.21, 0.55, 0.77, 0.00, 0.50, 0.27, 0.64],
    ]
)
"""The two systems of the worked example, three seeds on eight queries."""

# Sakai (2018), Table 5.1: three systems on twenty topics, in tenths.
SAKAI = {
    "X": "7 3 2 6 4 4 0 7 1 3 5 4 0 6 5 3 1 5 2 1",
    "Y": "5 1 0 2 4 3 0 5 3 3 4 4 1 4 2 1 1 6 3 2",
    "Z": "0 0 2 1 3 3 1 2 4 4 4 3 3 2 2 2 1 5 4 3",
}


def matrix_of(
    scores: Mapping[str, Any],
    measure: str = "AP",
    seeds: dict[str, tuple[int, ...]] | None = None,
) -> ScoreMatrix:
    """The matrix of {cell: scores (S, Q), or (Q,) of one run}; queries and seeds are numbered."""
    rows = {cell: np.atleast_2d(np.asarray(values, float)) for cell, values in scores.items()}
    queries = tuple(map(str, range(next(iter(rows.values())).shape[1])))
    seeds = seeds or {cell: tuple(range(len(score_SQ))) for cell, score_SQ in rows.items()}
    return ScoreMatrix(measure, tuple(rows), queries, seeds, rows)


def drawn(
    effects: Mapping[str, float],
    *,
    S: int = 3,
    Q: int = 60,
    seed: int = 0,
    own_sd: float = 0.0,
    seed_sd: float = 0.005,
    residual: float = 0.05,
) -> ScoreMatrix:
    """Cells whose scores differ from those of queries of some difficulty by these effects, and by
    what is normal: of the cell on a query, of a training run, of a single score."""
    rng = np.random.default_rng(seed)
    query_Q = rng.uniform(0.2, 0.8, Q)
    return matrix_of(
        {
            cell: query_Q
            + effect
            + rng.normal(0, own_sd, Q)
            + rng.normal(0, seed_sd, (S, 1))
            + rng.normal(0, residual, (S, Q))
            for cell, effect in effects.items()
        }
    )


def long_table(
    scores: Mapping[str, Mapping[int, Any]], *, split: str = "test", measure: str = "nDCG@10"
) -> pd.DataFrame:
    """{cell: {seed: value per query}} as the long table."""
    rows = [
        (cell, seed, split, f"q{number}", measure, float(value))
        for cell, by_seed in scores.items()
        for seed, values in by_seed.items()
        for number, value in enumerate(values)
    ]
    return pd.DataFrame(rows, columns=["cell", "seed", "split", "query_id", "measure", "value"])
