"""Exact search equals a matrix product and a maximum, in blocks of any size."""

from itertools import pairwise

import numpy as np
import pytest

from rank_core.retrieval.search import IndexBlock, search


def blocks_of(vector_ND, offsets, size):
    """Blocks of `size` documents."""
    for row in range(0, len(offsets) - 1, size):
        own = offsets[row : row + size + 1]
        yield IndexBlock(row, own[0], own[:-1] - own[0], vector_ND[own[0] : own[-1]])


@pytest.mark.parametrize("size", [1, 3, 50])
def test_a_document_has_the_score_of_its_best_chunk(size):
    rng = np.random.default_rng(1)
    offsets = np.cumsum([0, *rng.integers(1, 6, 40)])
    vector_ND = rng.normal(size=(offsets[-1], 8)).astype(np.float32)
    query_QD = rng.normal(size=(5, 8)).astype(np.float32)
    found = search(
        blocks_of(vector_ND, offsets, size),
        lambda block: query_QD @ block.T,
        5,
        depth=10,
        num_chunks=7,
    )
    score_QN = query_QD @ vector_ND.T
    best_QM = np.stack([score_QN[:, a:b].max(axis=1) for a, b in pairwise(offsets)], axis=1)
    assert (found.documents.items == np.argsort(-best_QM, axis=1)[:, :10]).all()
    assert np.allclose(found.documents.scores, -np.sort(-best_QM, axis=1)[:, :10], atol=1e-6)
    assert (found.chunks.items == np.argsort(-score_QN, axis=1)[:, :7]).all()


@pytest.mark.parametrize("size", [1, 2, 4])
def test_equal_scores_are_in_the_order_of_documents(size):
    vector_ND = np.array([[1], [2], [2], [1]], np.float32)
    blocks = blocks_of(vector_ND, np.arange(5), size)
    found = search(blocks, lambda block: block.T, 1, depth=3)
    assert found.documents.items.tolist() == [[1, 2, 0]]
    assert found.chunks.items.shape == (1, 0)
