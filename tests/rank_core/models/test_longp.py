"""LongP and its encoders: whole documents, BigBird row by row, Longformer's global tokens."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from transformers import (
    AutoConfig,
    AutoModel,
    BigBirdConfig,
    BigBirdModel,
    LongformerConfig,
    LongformerModel,
)

from rank_core.chunking.batches import Chunk
from rank_core.encoders.backbones import load_encoder, load_tokenizer, resolve_backbone
from rank_core.encoders.big_bird import RowwiseBigBird
from rank_core.encoders.longformer import QueryGlobalLongformer
from rank_core.errors import BadInput
from rank_core.models import check_model
from rank_core.models.build import build_model
from rank_core.models.longp import ZERO_BLOCKS, LongP
from rank_core.settings.config import Chunking, Model, TrialConfig

SIZES = {
    "vocab_size": 150,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "sep_token_id": 3,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
BIRD = SIZES | {"block_size": 4, "num_random_blocks": 1}  # sparse beyond (5 + 2) x 4 = 28 tokens
LONG = Chunking(window=80, stride=80, max_document_tokens=80, max_query_tokens=8)
QUERY = np.arange(10, 16, dtype=np.int32)


def folder_of(config, kind, backbone, folder):
    """A checkpoint with random weights and the tokenizer of `backbone`."""
    torch.manual_seed(0)
    kind(config, add_pooling_layer=False).save_pretrained(folder)
    load_tokenizer(backbone.folder).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def bird_folder(backbone, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bird")
    return folder_of(BigBirdConfig(**BIRD), BigBirdModel, backbone, folder)


@pytest.fixture
def bird(bird_folder):
    return load_encoder(resolve_backbone(str(bird_folder)), 0.0).eval()


def rows(*lengths):
    """ids_CL and mask_CL of rows of random tokens, padded to the longest."""
    generator = torch.Generator().manual_seed(sum(lengths))
    ids = torch.randint(5, 150, (len(lengths), max(lengths)), generator=generator)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return {"input_ids": ids * mask, "attention_mask": mask}


def output(encoder, batch):
    with torch.inference_mode():
        return encoder(**batch).last_hidden_state


def test_big_bird_stays_block_sparse_after_a_short_batch(bird):
    long = rows(60)
    before = output(bird, long)
    output(bird, rows(9, 5))
    layers = [layer.attention.attention_type for layer in bird.encoder.layer]
    assert {bird.attention_type, bird.encoder.attention_type, *layers} == {"block_sparse"}
    assert torch.equal(output(bird, long), before)


def test_big_bird_is_block_sparse_again_after_full_attention(bird):
    long = rows(60)
    before = output(bird, long)
    bird.set_attention_type("original_full")
    assert torch.equal(output(bird, long), before)
    assert bird.attention_type == "block_sparse"


def test_short_rows_of_big_bird_have_the_full_attention_of_transformers(bird, bird_folder):
    full = BigBirdModel.from_pretrained(
        bird_folder, add_pooling_layer=False, attention_type="original_full"
    ).eval()
    batch = rows(28, 3, 11)
    real = batch["attention_mask"].bool()
    assert_close(output(bird, batch)[real], output(full, batch)[real], atol=1e-5, rtol=0)


@pytest.mark.parametrize("length", [29, 44, 47, 100])
def test_long_rows_of_big_bird_have_the_sparse_attention_of_transformers(length, bird, bird_folder):
    sparse = BigBirdModel.from_pretrained(bird_folder, add_pooling_layer=False)
    batch = rows(length)
    sparse.train()  # without dropout: only the random blocks tell it from evaluation
    assert_close(output(bird, batch), output(sparse, batch), atol=1e-5, rtol=0)
    sparse.eval()
    bird.random_blocks_in_evaluation(False)
    assert_close(output(bird, batch), output(sparse, batch), atol=1e-5, rtol=0)


def test_big_bird_evaluates_with_the_random_blocks_it_was_trained_with(bird):
    batch = rows(90, 50)
    evaluated = output(bird.eval(), batch)
    assert torch.equal(output(bird.train(), batch), evaluated)
    bird.eval().random_blocks_in_evaluation(False)
    assert (output(bird, batch) - evaluated).abs().max() > 1e-3


def test_a_row_of_big_bird_does_not_depend_on_the_batchs_padding(bird, bird_folder):
    alone, beside = rows(60), rows(60, 117)
    beside["input_ids"][0, :60] = alone["input_ids"][0]
    expected = output(bird, alone)[0]
    assert_close(output(bird, beside)[0, :60], expected, atol=1e-5, rtol=0)
    # The model of transformers does: its last block, seen by all, is the batch's.
    theirs = BigBirdModel.from_pretrained(bird_folder, add_pooling_layer=False).eval()
    far = output(theirs, beside)[0, :60] - output(theirs, alone)[0]
    assert far.abs().max() > 1e-3


def test_big_bird_leaves_numpys_random_stream_alone(bird):
    np.random.seed(3)
    expected = np.random.random(3)
    np.random.seed(3)
    output(bird.train(), rows(60))
    assert np.array_equal(np.random.random(3), expected)


def test_big_bird_returns_all_layers_if_asked(bird):
    batch = rows(60, 7)
    with torch.inference_mode():
        states = bird(**batch, output_hidden_states=True).hidden_states
    assert [state.shape for state in states] == [(2, 60, 16)] * 3
    assert torch.equal(states[-1], output(bird, batch))


def test_longformer_has_global_attention_on_cls_query_and_first_sep(backbone, tmp_path):
    config = LongformerConfig(**SIZES | {"attention_window": [4, 4], "type_vocab_size": 1})
    folder = folder_of(config, LongformerModel, backbone, tmp_path)
    encoder = load_encoder(resolve_backbone(str(folder)), 0.0).eval()
    batch = rows(40, 23)
    for row, place in enumerate((7, 4)):  # the first [SEP], then the one at the end
        batch["input_ids"][row, [place, (39, 22)[row]]] = 3
    wanted = torch.zeros_like(batch["input_ids"])
    wanted[0, :8] = wanted[1, :5] = 1
    theirs = LongformerModel.from_pretrained(folder, add_pooling_layer=False).eval()
    real = batch["attention_mask"].bool()
    expected = output(theirs, batch | {"global_attention_mask": wanted})[real]
    assert_close(output(encoder, batch)[real], expected, atol=1e-5, rtol=0)
    assert (output(theirs, batch)[real] - expected).abs().max() > 1e-3


def config_of(folder, **model):
    return TrialConfig(model=Model("longp", backbone=str(folder), **model), chunking=LONG)


def test_longp_reads_one_chunk_of_as_many_tokens_as_allowed(backbone):
    documents = {"short": np.arange(5, 8, dtype=np.int32), "long": np.full(300, 9, np.int32)}
    pairs = LongP.reader(config_of(backbone.folder), backbone, documents)
    assert [len(chunk.text) for chunk in pairs.chunks(QUERY, "short")] == [3]
    assert [len(chunk.text) for chunk in pairs.chunks(QUERY, "long")] == [80]


def test_longp_refuses_a_window_that_is_not_the_whole_document(backbone):
    config = config_of(backbone.folder)
    check_model(config, backbone)
    with pytest.raises(BadInput, match=r"chunking.window = chunking.max_document_tokens must hold"):
        check_model(config.override({"chunking.max_document_tokens": 1431}), backbone)
    whole = {"chunking.window": 1431, "chunking.stride": 1431, "chunking.max_document_tokens": 1431}
    with pytest.raises(BadInput, match=r"chunking.window <= 120 must hold .*131 positions"):
        check_model(config.override(whole), backbone)


def test_longp_is_not_trained_on_parts_of_a_document(backbone):
    config = config_of(backbone.folder).override({"training.unit": "passage"})
    with pytest.raises(BadInput, match=r"training.unit=passage has no effect with model longp"):
        check_model(config, backbone)


def test_a_quirk_of_big_bird_needs_a_big_bird(backbone, bird_folder):
    bird, config = resolve_backbone(str(bird_folder)), config_of(bird_folder, quirks=(ZERO_BLOCKS,))
    check_model(config, bird)
    model = build_model(config, bird, init_seed=1)
    assert all(layer.attention.self.zero_blocks for layer in model.encoder.encoder.layer)
    with pytest.raises(BadInput, match=r"needs a backbone of kind big_bird, got .* of kind bert"):
        check_model(config_of(backbone.folder, quirks=(ZERO_BLOCKS,)), backbone)
    with pytest.raises(BadInput, match=r"unknown quirk of model longp 'zero'; .*bigbird-zero"):
        check_model(config_of(bird_folder, quirks=("zero",)), bird)


def test_padded_rows_of_a_longformer_are_those_of_the_reference(backbone, tmp_path):
    config = LongformerConfig(**SIZES | {"attention_window": [4, 4], "type_vocab_size": 1})
    folder = folder_of(config, LongformerModel, backbone, tmp_path)
    longformer, trial = resolve_backbone(str(folder)), config_of(folder, quirks=("padded-rows",))
    check_model(trial, longformer)
    with pytest.raises(BadInput, match="padded-rows needs a backbone of kind longformer, got"):
        check_model(config_of(backbone.folder, quirks=("padded-rows",)), backbone)
    text = np.arange(20, 50, dtype=np.int32)
    pairs = LongP.reader(trial, longformer, {"d": text})
    # Query and text are padded to 8 and 80 tokens; [CLS] query [SEP] are global, padding is not.
    ids, seen = torch.zeros(2, 1, 3 + 8 + 80, dtype=torch.long)
    ids[0, [0, 9, 90]] = torch.tensor([longformer.cls_id, longformer.sep_id, longformer.sep_id])
    ids[0, 1:7], ids[0, 10:40] = torch.tensor(QUERY), torch.tensor(text)
    seen[0, [*range(7), 9, *range(10, 40), 90]] = 1
    everywhere = seen * (torch.arange(91) < 10)
    theirs = LongformerModel.from_pretrained(folder, add_pooling_layer=False).eval()
    model = build_model(trial, longformer, init_seed=1).eval()
    with torch.inference_mode():
        score_B = model(pairs.collate([pairs.chunks(QUERY, "d")]))
        batch = {"input_ids": ids, "attention_mask": seen, "global_attention_mask": everywhere}
        expected_B = model.head(output(theirs, batch)[:, 0])[:, 0]
    assert_close(score_B, expected_B, atol=1e-5, rtol=0)
    plain = LongP.reader(config_of(folder), longformer, {"d": text})
    with torch.inference_mode():
        gap_B = model(plain.collate([plain.chunks(QUERY, "d")])) - score_B
    assert gap_B.abs() > 1e-3


def test_a_row_is_pooled_as_asked(backbone):
    models = {
        pool: build_model(config_of(backbone.folder, pool=pool), backbone, init_seed=1).eval()
        for pool in ("", "cls", "mean", "last")
    }
    pairs = LongP.reader(config_of(backbone.folder), backbone, {})
    texts = (np.arange(20, 45, dtype=np.int32), np.arange(30, 33, dtype=np.int32))
    inputs = pairs.layout([Chunk(QUERY, text) for text in texts])
    with torch.inference_mode():
        x = {pool: model.encode(inputs) for pool, model in models.items()}
        hidden_CLH = models["mean"].hidden(inputs)
    # Row 1 has 6 + 3 tokens and 3 special ones, so its last one is at place 11.
    assert_close(x["cls"], hidden_CLH[:, 0], atol=1e-5, rtol=1e-5)
    assert torch.equal(x[""], x["cls"])
    assert_close(x["mean"][1], hidden_CLH[1, :12].sum(0) / 12)
    assert_close(x["last"], torch.stack([hidden_CLH[0, 33], hidden_CLH[1, 11]]))


def test_an_unknown_pooling_is_refused(backbone):
    with pytest.raises(BadInput, match=r"unknown model.pool 'max'.*known: cls, last, mean"):
        check_model(config_of(backbone.folder, pool="max"), backbone)


# Published parameter counts include the pooler, which ranking does not use and we do not build.
POOLER = 768 * 768 + 768
DEBERTA_V3 = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "vocab_size": 128_100,
    "type_vocab_size": 0,
    "relative_attention": True,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
}
TINY_LLAMA = {
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
}
LONGFORMER = {"vocab_size": 50_265, "max_position_embeddings": 4098, "type_vocab_size": 1}


@pytest.mark.parametrize(
    ("kind", "sizes", "build", "expected"),
    [
        (
            "longformer",
            LONGFORMER | {"attention_window": 512},
            QueryGlobalLongformer,
            148_660_225 - POOLER,
        ),
        ("big_bird", {}, RowwiseBigBird, 127_469_569 - POOLER),
        ("llama", TINY_LLAMA, AutoModel.from_config, 1_034_514_433),
        ("deberta-v2", DEBERTA_V3, AutoModel.from_config, 183_832_321),
    ],
)
def test_longp_has_the_published_number_of_parameters(kind, sizes, build, expected, backbone):
    with torch.device("meta"):
        encoder = build(AutoConfig.for_model(kind, **sizes))
        model = LongP(encoder, backbone, Model("longp"))
    assert sum(parameter.numel() for parameter in model.parameters()) == expected
