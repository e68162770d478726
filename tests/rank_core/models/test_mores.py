"""MORES+: what the query attends to, and the initial weights of its blocks."""

from itertools import permutations

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from transformers import BertConfig, BertModel

from rank_core.models import model_class
from rank_core.models.mores import Attention, InteractionBlock
from rank_core.settings.config import Chunking
from rank_core.testing.laws import QUERY, tokens

MODEL = "mores"
CHUNKING = Chunking(window=20, stride=20, max_document_tokens=80, max_query_tokens=8)


@pytest.fixture
def score(config, backbone, model):
    """score_B of documents given as lists of chunks."""

    def scores(*documents):
        pairs = model_class("mores").reader(config, backbone, {})
        with torch.inference_mode():
            return model(pairs.collate([pairs.rows(QUERY, texts) for texts in documents]))

    return scores


def test_attention_by_hand():
    attention = Attention(hidden=2, num_heads=1, dropout=0.0, eps=0.0).eval()
    eye = torch.eye(2)
    with torch.no_grad():
        for name in ("query", "key", "value", "output"):
            getattr(attention, name).weight.copy_(eye)
            getattr(attention, name).bias.zero_()
        attention.key.weight.zero_()  # all places look alike: a mean over those that are seen
        x = torch.tensor([[[4.0, 0.0]]])
        other = torch.tensor([[[2.0, 4.0], [4.0, 6.0], [900.0, -900.0]]])
        found = attention(x, other, torch.tensor([[True, True, False]]))
    # The mean of (2, 4) and (4, 6) is (3, 5); (4, 0) + (3, 5) = (7, 5), normalised (1, -1).
    assert_close(found, torch.tensor([[[1.0, -1.0]]]))


def test_a_block_starts_as_a_layer_of_bert():
    config = BertConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        hidden_act="relu",
    )
    layer = BertModel(config, add_pooling_layer=False).eval().encoder.layer[1]
    block = InteractionBlock(config, 0.0).eval()
    block.copy(layer)
    x, mask = torch.randn(3, 5, 16), torch.ones(3, 5, dtype=torch.bool)
    with torch.no_grad():
        assert_close(block.to_document(x, x, mask), layer.attention(x)[0], atol=1e-5, rtol=0)
        # Without attention to the document: normalising twice is normalising once.
        block.to_document.output.weight.zero_()
        block.to_document.output.bias.zero_()
        output = layer(x)
        output = output[0] if isinstance(output, tuple) else output
        assert_close(block(x, mask, x, mask), output, atol=1e-4, rtol=0)


def test_every_token_of_every_chunk_is_seen_and_the_order_of_chunks_is_not(score):
    texts = [tokens(i, 20) for i in range(1, 5)]
    score_B = score(*(list(order) for order in permutations(texts)))
    assert_close(score_B, score_B[:1].expand_as(score_B), atol=1e-5, rtol=0)
    for number in range(4):
        for place in (0, 19):
            changed = [text.copy() for text in texts]
            changed[number][place] = 101
            assert (score(changed) - score_B[0]).abs() > 1e-6


def test_a_chunk_does_not_know_the_query(model, config, backbone):
    pairs = model_class("mores").reader(config, backbone, {"d": tokens(3, 50)})
    rows = [pairs.chunks(query, "d") for query in (QUERY, tokens(9, 4))]
    assert [len(chunks) for chunks in rows] == [4, 4]
    for first, second in zip(*(chunks[1:] for chunks in rows), strict=True):
        assert np.array_equal(first.text, second.text) and len(first.query) == 0
