"""Laws that hold for every kind of backbone.

They are the encoder's. LongP stands for the rankers that read its last layer, because its rows
differ most in length. What reads chunks, or all layers (MORES+), sees two kinds, one that looks
ahead and one that does not.
"""

import copy
from functools import cache

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
)

from rank_core.chunking.batches import Chunk
from rank_core.encoders.backbone_types import TYPES
from rank_core.encoders.backbones import load_encoder, resolve_backbone
from rank_core.errors import BadInput
from rank_core.models import model_class
from rank_core.models.build import build_model
from rank_core.models.checks import check_model
from rank_core.settings.config import Chunking, Model, TrialConfig
from rank_core.testing import laws
from rank_core.testing.laws import assert_each_document_is_scored_alone, batch_of, without_gradient
from tests.contracts.small_backbones import (
    CONFIGS,
    WORDS,
    make_backbone,
    random_weights,
    write_tokenizer,
)

CHUNKING = Chunking(window=20, stride=10, max_document_tokens=60, max_query_tokens=8)
QUERY = np.arange(5, 11, dtype=np.int32)
DOCUMENTS = {
    f"d{size}": np.random.default_rng(size).integers(4, len(WORDS), size).astype(np.int32)
    for size in (0, 1, 13, 34, 60, 90)
}
every_kind = pytest.mark.parametrize("kind", sorted(TYPES))
every_pair = pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, "longp") for kind in sorted(TYPES)]
    + [(kind, name) for kind in ("bert", "llama") for name in ("firstp", "maxp", "mores")],
)


@pytest.fixture(scope="module")
def backbones(tmp_path_factory):
    """kind -> a backbone of that kind with random weights, made on first use."""

    @cache
    def build(kind):
        return make_backbone(kind, tmp_path_factory.mktemp(kind))

    return build


def config_of(name, backbone):
    chunking = CHUNKING
    if name == "firstp":
        chunking = Chunking(20, 20, 0, 60, 8)
    if name == "longp":
        chunking = Chunking(60, 60, 0, 60, 8)
    config = TrialConfig(
        model=Model(name, backbone=str(backbone.folder), dropout=0.0), chunking=chunking
    )
    check_model(config, backbone)
    return config


def built(config, backbone, seed):
    model = build_model(config, backbone, init_seed=seed).eval()
    # As large as after training: with the initial 0.02 new layers hardly attend to other tokens.
    random_weights(getattr(model, "aggregator", torch.nn.Module()))
    return model


@pytest.fixture(scope="module")
def ranker(backbones):
    """(kind, name) -> (model in evaluation mode, its pair encoder)."""

    @cache
    def build(kind, name):
        backbone = backbones(kind)
        config = config_of(name, backbone)
        model = built(config, backbone, 1)
        return model, model_class(name).reader(config, backbone, DOCUMENTS)

    return build


def scores(model, pairs, documents, query=QUERY):
    return laws.scores(model, pairs, documents, query)


def test_every_kind_of_backbone_has_a_small_one_here():
    assert set(CONFIGS) == set(TYPES)


@every_pair
def test_a_score_depends_on_neither_neighbours_nor_padding(kind, name, ranker):
    model, pairs = ranker(kind, name)
    doc_ids = list(DOCUMENTS)
    alone = assert_each_document_is_scored_alone(model, pairs, doc_ids, QUERY, spread=0.01)
    # A neighbour of other tokens, longer than all: the others are padded further.
    longer = [Chunk(QUERY, np.full(70, 7, dtype=np.int32))]
    beside = scores(model, pairs, [longer, *doc_ids])[1:]
    assert_close(beside, alone, atol=1e-5, rtol=0)
    for query in (QUERY[:0], QUERY[:1], np.arange(8, dtype=np.int32) + 20):
        assert scores(model, pairs, ["d0", "d1", "d90"], query).isfinite().all()


@every_pair
def test_a_gradient_reaches_every_parameter(kind, name, ranker):
    model, pairs = ranker(kind, name)
    model = copy.deepcopy(model).train()
    score_B = model(batch_of(pairs, ("d34", "d60", "d13"), QUERY))
    # Softmax is invariant to a constant added to all keys.
    still = ("key.bias", "key_proj.bias", "k_lin.bias", "attn.k.bias", "key_global.bias")
    without = without_gradient(model, score_B, (1.0, -0.7, 0.4), still)
    # Longformer's [CLS] is global in its last layer too, and local projections are not its own.
    local = tuple(f"encoder.encoder.layer.1.attention.self.{p}." for p in ("query", "key", "value"))
    still_local = {n for n in without if kind == "longformer" and n.startswith(local)}
    assert without - still_local == set()


@every_kind
def test_longp_reads_every_part_of_a_document(kind, ranker):
    model, pairs = ranker(kind, "longp")
    text = DOCUMENTS["d60"]
    before = scores(model, pairs, ["d60"])
    for place in (0, 29, 59):
        changed = text.copy()
        changed[place] = 4 + (text[place] + 11) % 40
        assert (scores(model, pairs, [[Chunk(QUERY, changed)]]) - before).abs() > 1e-5


@every_kind
def test_a_row_of_the_greatest_length_is_read_and_one_token_more_is_refused(kind, backbones):
    backbone = backbones(kind)
    encoder = load_encoder(backbone, 0.0).eval()
    length = min(backbone.max_input_tokens, 200)
    ids = torch.full((1, length), 7)
    ids[0, 5] = backbone.sep_id
    with torch.inference_mode():
        output = encoder(input_ids=ids, attention_mask=torch.ones_like(ids))
    assert output.last_hidden_state.shape == (1, length, 16)
    assert output.last_hidden_state.isfinite().all()
    longest = backbone.max_window(8)
    fits = TrialConfig(
        model=Model("longp", backbone=backbone.name),
        chunking=Chunking(longest, longest, 0, longest, 8),
    )
    check_model(fits, backbone)
    more = {"window": longest + 1, "stride": longest + 1, "max_document_tokens": longest + 1}
    with pytest.raises(BadInput, match=rf"chunking.window <= {longest} must hold"):
        check_model(fits.override({f"chunking.{k}": v for k, v in more.items()}), backbone)


WITH_HEADS = sorted(kind for kind in TYPES if TYPES[kind].loader != "AlibiEncoder")


@pytest.mark.parametrize("kind", WITH_HEADS)
def test_the_encoder_of_a_whole_language_model_is_read(kind, tmp_path):
    config = AutoConfig.for_model(kind, **CONFIGS[kind])
    if TYPES[kind].causal:
        whole = AutoModelForCausalLM.from_config(config)
    elif kind == "longt5":
        whole = AutoModelForSeq2SeqLM.from_config(config)
    else:
        whole = AutoModelForMaskedLM.from_config(config)
    random_weights(whole)
    whole.save_pretrained(tmp_path)
    write_tokenizer(tmp_path, kind)
    encoder = load_encoder(resolve_backbone(str(tmp_path)), 0.0)
    table = whole.get_input_embeddings().weight
    assert torch.equal(encoder.get_input_embeddings().weight, table)


@every_kind
def test_the_table_knows_which_encoders_are_causal(kind, backbones):
    encoder = load_encoder(backbones(kind), 0.0).eval()
    ids = torch.tensor([[0, 7, 2, 9, 10, 2], [0, 7, 2, 9, 30, 2]])
    with torch.inference_mode():
        output = encoder(input_ids=ids, attention_mask=torch.ones_like(ids))
    first, second = output.last_hidden_state[:, 0]
    assert torch.equal(first, second) == TYPES[kind].causal


@every_kind
def test_dropout_is_the_same_everywhere(kind, backbones):
    for dropout in (0.3, 0.0):
        encoder = load_encoder(backbones(kind), dropout)
        rates = {m.p for m in encoder.modules() if isinstance(m, torch.nn.Dropout)}
        rates |= {m.attention_dropout for m in encoder.modules() if hasattr(m, "attention_dropout")}
        rates = {rate for rate in rates if isinstance(rate, float)}
        assert rates == {dropout}


@every_kind
def test_bf16_scores_stay_close_to_fp32(kind, ranker):
    model, pairs = ranker(kind, "longp")
    exact = scores(model, pairs, list(DOCUMENTS))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = scores(model, pairs, list(DOCUMENTS)).float()
    assert not torch.equal(rounded, exact)
    assert_close(rounded, exact, atol=6e-2, rtol=2e-2)
