"""Exact search over vectors in blocks: all chunks are scored, a document has the score of its best
chunk."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rank_core.arrays import Singles

Ints = NDArray[np.int64]
Scoring = Callable[[Singles], Singles]
"""From vectors (N, D) to the scores of the queries (Q, N)."""


class IndexBlock(NamedTuple):
    """Consecutive whole documents: their first document and chunk, where the chunks of each begin,
    and the vectors."""

    document: int
    chunk: int
    offsets: Ints  # of each document's first chunk within the block
    vectors: Singles


class Top(NamedTuple):
    """The best items of each query, best first, (Q, K); equal scores in the order of items."""

    items: Ints
    scores: Singles


class Found(NamedTuple):
    """The best documents and the best chunks of each query."""

    documents: Top
    chunks: Top


def search(
    blocks: Iterable[IndexBlock],
    score: Scoring,
    num_queries: int,
    *,
    depth: int,
    num_chunks: int = 0,
) -> Found:
    """The best `depth` documents and `num_chunks` chunks of each query."""
    documents = chunks = empty(num_queries)
    for block in blocks:
        score_QN = score(block.vectors)
        best_QD = np.maximum.reduceat(score_QN, block.offsets, axis=1)
        documents = better(documents, _items(block.document, best_QD), depth)
        if num_chunks:
            chunks = better(chunks, _items(block.chunk, score_QN), num_chunks)
    return Found(documents, chunks)


def empty(num_queries: int) -> Top:
    """No item of any query."""
    return Top(np.zeros((num_queries, 0), np.int64), np.zeros((num_queries, 0), np.float32))


def better(first: Top, second: Top, number: int) -> Top:
    """The best `number` of both; among equal scores those of the first, then in their order."""
    item_QK = np.concatenate([first.items, second.items], axis=1)
    score_QK = np.concatenate([first.scores, second.scores], axis=1)
    order_QK = np.argsort(-score_QK, axis=1, kind="stable")[:, :number]
    return Top(
        *(np.take_along_axis(values_QK, order_QK, axis=1) for values_QK in (item_QK, score_QK))
    )


def _items(first: int, score_QN: Singles) -> Top:
    item_N = np.arange(first, first + score_QN.shape[1])
    return Top(np.broadcast_to(item_N, score_QN.shape), score_QN)
