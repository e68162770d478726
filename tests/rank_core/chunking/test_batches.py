"""Layout of encoder inputs, and batches under a token budget."""

import numpy as np
import pytest

from rank_core.chunking.batches import (
    PairEncoder,
    token_budget_batches,
    tokenize_queries,
    unpadded_batches,
)
from rank_core.encoders.backbones import load_tokenizer
from rank_core.settings.config import Chunking


def ids(*numbers):
    return np.asarray(numbers, dtype=np.int32)


@pytest.fixture
def pairs(backbone):
    documents = {"long": ids(*range(20, 27)), "short": ids(30), "empty": ids()}
    chunking = Chunking(window=4, stride=3, max_document_tokens=7)
    return PairEncoder(documents, chunking, False, backbone)


def test_a_chunk_is_laid_out_as_cls_query_sep_text_sep(pairs):
    query = ids(10, 11)
    batch = pairs.collate([pairs.chunks(query, "long"), pairs.chunks(query, "short")])
    assert batch.inputs.input_ids_CL.tolist() == [
        [2, 10, 11, 3, 20, 21, 22, 23, 3],
        [2, 10, 11, 3, 23, 24, 25, 26, 3],
        [2, 10, 11, 3, 30, 3, 0, 0, 0],
    ]
    assert batch.inputs.attention_mask_CL.tolist() == [[1] * 9, [1] * 9, [1] * 6 + [0] * 3]
    assert batch.inputs.token_type_ids_CL.tolist() == [
        [0, 0, 0, 0, 1, 1, 1, 1, 1],
        [0, 0, 0, 0, 1, 1, 1, 1, 1],
        [0, 0, 0, 0, 1, 1, 0, 0, 0],
    ]
    assert batch.counts == (2, 1)
    assert batch.inputs.query_length_C.tolist() == [2, 2, 2]


def test_a_query_is_cut_to_its_limit_and_not_padded(backbone_folder):
    tokenizer = load_tokenizer(backbone_folder)
    long, short = tokenize_queries(tokenizer, ["amber " * 50, "amber"], 32)
    assert len(long) == 32 and set(long) == set(short) and len(short) == 1
    assert short.dtype == np.int32
    assert tokenize_queries(tokenizer, [], 32) == []


@pytest.mark.parametrize("budget", [1, 50, 64, 500, 10**6])
def test_batches_cover_every_item_once_within_the_budget(budget):
    lengths = np.random.default_rng(1).integers(1, 60, 200).tolist()
    batches = list(token_budget_batches(lengths, budget))
    assert sorted(i for batch in batches for i in batch) == list(range(200))
    for batch in batches:
        padded = len(batch) * max(lengths[i] for i in batch)
        assert padded <= budget or len(batch) == 1
    longest = [max(lengths[i] for i in batch) for batch in batches]
    assert longest == sorted(longest, reverse=True)


def test_a_tail_joins_its_batch_if_padding_costs_less_than_a_call():
    lengths = [50, 10, 49, 45, 44, 9]
    # 6 + 40 + 41 tokens of padding beside the three long items; 81 for the two short ones alone.
    assert list(token_budget_batches(lengths, 1000, call_tokens=87)) == [[0, 2, 3, 4, 1, 5]]
    assert list(token_budget_batches(lengths, 1000, call_tokens=86)) == [[0, 2, 3], [4, 1, 5]]
    assert list(token_budget_batches(lengths, 200, call_tokens=200)) == [[0, 2, 3, 4], [1, 5]]


def test_batches_without_padding_are_as_few_as_the_budget_allows():
    assert list(unpadded_batches([50, 10, 49, 45, 44, 9], 100)) == [[0, 2], [3, 4, 1], [5]]
    assert list(unpadded_batches([70, 3, 120], 100)) == [[2], [0, 1]]
    assert list(unpadded_batches([], 10)) == []
