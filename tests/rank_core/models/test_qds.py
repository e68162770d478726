"""QDS-Transformer: marked sentences, attention patterns and their reach."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from transformers import DistilBertConfig, DistilBertModel, LongformerConfig

from rank_core.chunking.batches import Chunk
from rank_core.encoders.longformer import QueryGlobalLongformer
from rank_core.errors import BadInput
from rank_core.models import check_model
from rank_core.models.build import build_model
from rank_core.models.qds import PATTERNS, REACH, QdsTransformer, SentenceReader, sentence_starts
from rank_core.settings.config import Chunking, Model, TrialConfig
from rank_core.testing.laws import assert_each_document_is_scored_alone, batch_of, without_gradient
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


def test_a_sentence_begins_after_the_marks_that_end_one():
    text = [5, PERIOD, PERIOD, 6, COMMA, 7, PERIOD, 8]
    assert sentence_starts(np.array(text, dtype=np.int32), COSTS).tolist() == [0, 3, 7]
    assert sentence_starts(np.array(text[:3], dtype=np.int32), COSTS).tolist() == [0]
    assert sentence_starts(np.zeros(0, dtype=np.int32), COSTS).tolist() == [0]


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
def test_a_token_sees_its_surroundings_and_the_global_ones_and_no_padding(pattern, system):
    model, pairs = system(pattern)
    rows = [pairs.chunks(QUERY, doc_id)[0] for doc_id in ("d90", "d30")]
    inputs = pairs.layout(rows)
    seen, is_global = model.visible(inputs), model.global_tokens(inputs)
    place = torch.arange(len(rows[0]))
    gap = (place[:, None] - place).abs()
    for seen_LL, global_L, chunk in zip(seen, is_global, rows, strict=True):
        near = (gap <= REACH) | global_L[:, None] | global_L
        assert torch.equal(seen_LL, (gap == 0) | ((place < len(chunk)) & near))
    assert len(rows[0]) > REACH + 10


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


@every_pattern
def test_distant_tokens_matter_only_through_global_ones(pattern, system):
    model, pairs = system(pattern)
    # 131 tokens without a period: two layers of 64 tokens carry place 128 to [CLS], not 129.
    text = np.concatenate([[2], tokens(3, 121)]).astype(np.int32)
    far, near = text.copy(), text.copy()
    far[121], near[120] = 5 + (text[121] == 5), 5 + (text[120] == 5)
    with torch.no_grad():
        before, after_far, after_near = model(
            pairs.collate([[Chunk(QUERY, t)] for t in (text, far, near)])
        )
    assert (after_near - before).abs() > 1e-5
    if pattern == "sparse":
        assert_close(after_far, before, atol=1e-7, rtol=0)
    else:
        assert (after_far - before).abs() > 1e-4


def test_patterns_differ_on_documents_beyond_their_reach(system):
    values = [scores(*system(pattern), ["d90"]).item() for pattern in sorted(PATTERNS)]
    assert len({round(value, 5) for value in values}) == len(PATTERNS)


@every_pattern
def test_a_score_depends_on_its_own_document_alone(pattern, system):
    model, pairs = system(pattern)
    assert_each_document_is_scored_alone(model, pairs, list(DOCUMENTS), QUERY)


@every_pattern
@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_a_gradient_reaches_every_parameter(pattern, autocast, system):
    model, pairs = system(pattern)
    with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
        score_B = model.train()(batch_of(pairs, ("d30", "d90"), QUERY))
    assert without_gradient(model, score_B) == set()
    assert all(p.grad.isfinite().all() for _, p in model.trainable() if p.grad is not None)


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


def test_other_encoders_and_unknown_patterns_are_refused(backbone):
    config = DistilBertConfig(vocab_size=99, dim=32, n_heads=2, hidden_dim=64, n_layers=1)
    with pytest.raises(BadInput, match="longformer, got distilbert"):
        QdsTransformer(DistilBertModel(config), backbone, Model("qds"))
    model = Model("qds", backbone=str(backbone.folder), selector="qsd")
    with pytest.raises(BadInput, match="did you mean qds"):
        check_model(TrialConfig(model=model, chunking=CHUNKING), backbone)
    good = TrialConfig(model=replace(model, selector="query-only"), chunking=CHUNKING)
    check_model(good, backbone)
