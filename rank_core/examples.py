"""What training reads: per query one relevant document and one hard negative, drawn each epoch."""

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
class TrainingPair:
    """One (query, relevant document, hard negative)."""

    query: NDArray[np.int32]
    positive: str
    negative: str


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


def training_pairs(
    queries: list[TrainingQuery], *, order_seed: int, negatives_seed: int
) -> Iterator[TrainingPair]:
    """An endless stream: epoch after epoch, each a fresh permutation of the queries.

    The draw for a query depends on (seed, epoch, query_id) alone, not on what was drawn before.
    """
    epoch = 0
    while True:
        for i in generator(order_seed, epoch).permutation(len(queries)):
            query = queries[i]
            rng = generator(negatives_seed, epoch, query.query_id)
            positive = query.positives[rng.integers(len(query.positives))]
            negative = query.negatives[rng.integers(len(query.negatives))]
            yield TrainingPair(query.query, positive, negative)
        epoch += 1
