"""Tuning of the first stage's parameters on dev queries over a small grid."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from rank_core.errors import BadInput
from rank_core.evaluate import check_measures, mean_values, per_query
from rank_core.first_stage.bm25 import DEPTH, Bm25Settings, Retriever, Rm3
from rank_core.records import Qrels

_USUAL = [Bm25Settings(k1, b) for k1, b in product((0.6, 0.9, 1.2, 2.0), (0.2, 0.4, 0.6, 0.8))]
# The defaults come first: among equally good points, the earliest wins.
BM25_GRID = tuple(dict.fromkeys([Bm25Settings(), *_USUAL]))
"""k1 and b over the usual ranges for MS MARCO and Robust04, 16 points."""


def rm3_grid(best: Bm25Settings) -> tuple[Bm25Settings, ...]:
    """`best` without RM3 and 12 versions with it; tune k1 and b first."""
    versions = product((10, 20), (5, 10), (0.5, 0.7, 0.9))
    return (
        Bm25Settings(best.k1, best.b),
        *(Bm25Settings(best.k1, best.b, Rm3(*version)) for version in versions),
    )


@dataclass(frozen=True)
class GridPoint:
    """A point of the grid and the mean of the measure over the dev queries."""

    settings: Bm25Settings
    value: float


@dataclass(frozen=True)
class Tuning:
    """The points tried, in grid order, and the best one."""

    measure: str
    depth: int
    num_queries: int
    best: Bm25Settings
    table: tuple[GridPoint, ...]

    def record(self) -> dict[str, Any]:
        """The tuning as plain values for JSON."""
        return asdict(self)


def tune_bm25(
    retriever: Retriever,
    queries: Mapping[str, str],
    qrels: Qrels,
    measure: str = "nDCG@10",
    grid: Sequence[Bm25Settings] = BM25_GRID,
    *,
    depth: int = DEPTH,
) -> Tuning:
    """The point of `grid` with the highest mean `measure` over the judged queries, the earliest
    among equals. Raises `BadInput` for an empty grid and no judged query.

    `retriever` is a `Bm25Index`, or a `LuceneIndex`, of the documents.
    """
    check_measures([measure], [qrels])  # before the first search
    judged = {query_id: text for query_id, text in queries.items() if query_id in qrels}
    if not judged or not grid:
        raise BadInput("tuning needs points and judged queries, and there are none")
    of_judged = {query_id: qrels[query_id] for query_id in judged}
    table = []
    for settings in grid:
        run = retriever.run(judged, settings, depth=depth)
        value = mean_values(per_query(of_judged, run, [measure]))[measure]
        table.append(GridPoint(settings, value))
    best = max(table, key=lambda point: point.value)  # max returns the first of equals
    return Tuning(measure, depth, len(judged), best.settings, tuple(table))
