"""What training reads: per query one relevant document and hard negatives, drawn each epoch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rank_core.data.collection import Split
from rank_core.errors import BadInput
from rank_core.seeding import generator


@dataclass(frozen=True)
class TrainingQuery:
    """A query with its relevant documents and the candidates that are not relevant."""

    query_id: str
    query: NDArray[np.int32]
    positives: tuple[str, ...]
    negatives: tuple[str, ...]


@dataclass(frozen=True)
class TrainingGroup:
    """A query, a relevant document and hard negatives."""

    query: NDArray[np.int32]
    positive: str
    negatives: tuple[str, ...]

    @property
    def documents(self) -> tuple[str, ...]:
        """The relevant one first."""
        return (self.positive, *self.negatives)


def training_queries(
    split: Split, queries: Mapping[str, NDArray[np.int32]], depth: int
) -> list[TrainingQuery]:
    """The queries that have a relevant document and a candidate that is not relevant."""
    usable = []
    for query_id, query in queries.items():
        relevance = split.qrels.get(query_id, {})
        positives = tuple(doc_id for doc_id, grade in relevance.items() if grade > 0)
        candidates = list(split.candidates.get(query_id, ()))[:depth]
        negatives = tuple(doc_id for doc_id in candidates if relevance.get(doc_id, 0) <= 0)
        if positives and negatives:
            usable.append(TrainingQuery(query_id, query, positives, negatives))
    if not usable:
        raise BadInput(
            "training needs a query with a relevant document and a candidate that is not relevant; "
            f"none of the {len(queries)} training queries has both"
        )
    return usable


def training_groups(
    queries: list[TrainingQuery], num_negatives: int, *, order_seed: int, negatives_seed: int
) -> Iterator[TrainingGroup]:
    """An endless stream: epoch after epoch, each a fresh permutation of the queries.

    The draw for a query depends on (seed, epoch, query_id) alone, not on what was drawn before. A
    query with fewer candidates than `num_negatives` repeats some.
    """
    epoch = 0
    while True:
        for i in generator(order_seed, epoch).permutation(len(queries)):
            query = queries[i]
            rng = generator(negatives_seed, epoch, query.query_id)
            positive = query.positives[rng.integers(len(query.positives))]
            yield TrainingGroup(query.query, positive, _draw(query.negatives, num_negatives, rng))
        epoch += 1


def _draw(names: tuple[str, ...], size: int, rng: np.random.Generator) -> tuple[str, ...]:
    """`size` of the names, all different where there are enough."""
    chosen = rng.choice(len(names), size, replace=len(names) < size)
    return tuple(names[i] for i in chosen)
