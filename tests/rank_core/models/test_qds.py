"""QDS-Transformer: marked sentences, attention patterns and their reach."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from transformers import LongformerConfig

from rank_core.chunking.batches import Chunk
from rank_core.encoders.sparse import QueryGlobalLongformer
from rank_core.models.build import build_model
from rank_core.models.qds import PATTERNS, QdsTransformer, SentenceReader
from rank_core.settings.config import Chunking, Model, TrialConfig
from rank_core.testing.laws import scores as scores_of
from rank_core.testing.laws import tokens as made_tokens

CHUNKING = Chunking(window=96, stride=96, max_document_tokens=96)
every_pattern = pytest.mark.parametrize("pattern", sorted(PATTERNS))
PERIOD, COMMA = 90, 91
COSTS = np.full(150, -1, dtype=np.int8)
COSTS[[PERIOD, COMMA]] = [1, 2]


def tokens(seed, size):
    return made_tokens(seed, size, largest=PERIOD)


QUERY = tokens(0, 6)
DOCUMENTS = {f"d{size}": tokens(size, size) for size in (0, 1, 30, 90, 140)}
for text in DOCUMENTS.values():
    text[9::10] = PERIOD


@pytest.fixture
def system(backbone):
    """A model in evaluation mode, and a reader that knows PERIOD."""

    def build(pattern="", **settings):
        model = Model("qds", backbone=str(backbone.folder), selector=pattern, **settings)
        config = TrialConfig(model=model, chunking=CHUNKING)
        pairs = SentenceReader(DOCUMENTS, CHUNKING, True, backbone, COSTS)
        return build_model(config, backbone, init_seed=1).eval(), pairs

    return build


def scores(model, pairs, doc_ids):
    return scores_of(model, pairs, doc_ids, QUERY)


def test_every_sentence_has_a_token_before_it(system, backbone):
    _, pairs = system()
    [chunk] = pairs.chunks(QUERY, "d30")
    mark, text = backbone.cls_id, DOCUMENTS["d30"].tolist()
    assert chunk.text.tolist() == [mark, *text[:10], mark, *text[10:20], mark, *text[20:]]
    assert [len(c) for c in pairs.chunks(QUERY, "d140")] == [6 + 3 + 96 + 10]
    # Ten tokens and their mark, twelve times, do not fit 131 - 3 - 6 places.
    longer = replace(pairs, chunking=replace(CHUNKING, max_document_tokens=140))
    assert len(longer.chunks(QUERY, "d140")[0]) == 131


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        # [CLS] q q [SEP] | s a b | s c [SEP]
        ("sparse", [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        ("longformer-qa", [1, 0, 0, 0, 1, 0, 0, 0, 0, 0]),
        ("qds", [1, 1, 1, 1, 1, 0, 0, 1, 0, 0]),
        ("query-only", [1, 1, 1, 1, 1, 0, 0, 0, 0, 0]),
        ("sentence-only", [1, 0, 0, 0, 1, 0, 0, 1, 0, 0]),
    ],
)
def test_the_tokens_that_see_all_are_those_of_the_pattern(pattern, expected, system, backbone):
    model, pairs = system(pattern)
    mark = backbone.cls_id
    short = Chunk(QUERY[:2], np.array([mark, 7, 8, mark, 9], dtype=np.int32))
    inputs = pairs.layout([short, Chunk(QUERY, tokens(1, 20))])
    assert model.global_tokens(inputs)[0].long().tolist() == expected + [0] * 19


@every_pattern
def test_the_score_is_two_tanh_layers_and_the_head_over_cls_under_the_mask(pattern, system):
    model, pairs = system(pattern)
    inputs = pairs.layout(pairs.chunks(QUERY, "d30"))  # 42 tokens: all see all
    with torch.no_grad():
        cls_1H = model.encoder(
            input_ids=inputs.input_ids_CL,
            attention_mask=inputs.attention_mask_CL,
            token_type_ids=inputs.token_type_ids_CL,
        ).last_hidden_state[:, 0]
        expected = model.head(model.mlp(model.pooler(cls_1H).tanh()).tanh()).squeeze(1)
    assert_close(scores(model, pairs, ["d30"]), expected, atol=1e-5, rtol=0)


@pytest.fixture
def longformer(system):
    """A Longformer with the weights of the BERT, for global tokens as well."""
    bert = system()[0].encoder
    config = LongformerConfig(
        vocab_size=bert.config.vocab_size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=132,
        type_vocab_size=2,
        pad_token_id=0,
        sep_token_id=3,
        attention_window=16,
        layer_norm_eps=bert.config.layer_norm_eps,
        hidden_act=bert.config.hidden_act,
    )
    model = QueryGlobalLongformer(config)
    weights = dict(bert.state_dict())
    positions = weights["embeddings.position_embeddings.weight"]
    # It numbers positions from the padding token's id + 1.
    weights["embeddings.position_embeddings.weight"] = torch.cat([positions[:1], positions])
    for name, weight in list(weights.items()):
        for part in ("query", "key", "value"):
            if f"self.{part}." in name:
                weights[name.replace(f"self.{part}.", f"self.{part}_global.")] = weight
    missing = model.load_state_dict(weights, strict=False).missing_keys
    assert {name for name in missing if "position_ids" not in name} == set()
    return model.eval()


@every_pattern
def test_a_longformer_of_the_same_weights_gives_the_same_scores(
    pattern, system, longformer, backbone
):
    model, pairs = system(pattern)
    other = QdsTransformer(longformer, backbone, Model("qds", selector=pattern)).eval()
    for part in ("pooler", "mlp", "head"):
        getattr(other, part).load_state_dict(getattr(model, part).state_dict())
    doc_ids = ["d1", "d30", "d90", "d140"]
    expected = scores(model, pairs, doc_ids)
    assert_close(scores(other, pairs, doc_ids), expected, atol=1e-4, rtol=0)
