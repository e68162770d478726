"""PARADE's closed-form variants, and the sizes that the papers state."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModel, BertConfig

from rank_core.errors import BadInput
from rank_core.models import check_model, model_class
from rank_core.settings.config import Chunking, Model, TrialConfig

HIDDEN = 32


@pytest.fixture
def build(backbone):
    """A model with an encoder that is never called."""

    def build(name, **settings):
        with torch.random.fork_rng():
            torch.manual_seed(1)
            encoder = AutoModel.from_config(
                BertConfig(
                    hidden_size=HIDDEN,
                    num_hidden_layers=1,
                    num_attention_heads=2,
                    intermediate_size=8,
                    vocab_size=150,
                )
            )
            return model_class(name)(encoder, backbone, Model(name, dropout=0.0, **settings)).eval()

    return build


@pytest.fixture(name="x_BPH")
def chunk_vectors():
    return torch.randn(2, 5, HIDDEN, generator=torch.Generator().manual_seed(4))


def masks(*counts):
    return torch.arange(max(counts)) < torch.tensor(counts)[:, None]


def head(model, x_H):
    return model.head.weight[0] @ x_H + model.head.bias[0]


def test_elementwise_attention_weighs_every_dimension_apart(build, x_BPH):
    model = build("parade-attn", quirks=("elementwise-attention",))
    weight, bias = model.attention.weight, model.attention.bias
    x_PH = x_BPH[0, :3]
    vector = torch.stack(
        [
            sum(
                torch.softmax(torch.stack([weight[h] @ x_H + bias[h] for x_H in x_PH]), 0)[p]
                * x_PH[p, h]
                for p in range(3)
            )
            for h in range(HIDDEN)
        ]
    )
    score_B = model.aggregate(x_BPH, masks(3, 5))
    assert_close(score_B[0], head(model, vector), atol=1e-5, rtol=1e-5)


def test_attention_is_elementwise_only_where_it_is_asked_for(build, x_BPH):
    plain = build("parade-attn")
    weight_P = torch.softmax(x_BPH[0] @ plain.attention, 0)
    assert_close(
        plain.aggregate(x_BPH, masks(5, 5))[0], head(plain, weight_P @ x_BPH[0]), atol=1e-5, rtol=0
    )
    sizes = [
        sum(p.numel() for p in build("parade-attn", quirks=quirks).parameters())
        for quirks in ((), ("elementwise-attention",))
    ]
    assert sizes[1] - sizes[0] == HIDDEN * HIDDEN + HIDDEN - HIDDEN


def test_elementwise_attention_is_a_quirk_of_one_model(backbone):
    for name, quirk in (("parade-avg", "elementwise-attention"), ("parade-attn", "batch")):
        config = TrialConfig(
            model=Model(name, backbone=str(backbone.folder), quirks=(quirk,)),
            chunking=Chunking(20, 10),
        )
        with pytest.raises(BadInput, match=f"unknown quirk of model {name} '{quirk}'"):
            check_model(config, backbone)


def merge(model, left, right):
    return torch.relu(model.pair.weight @ torch.cat([left, right]) + model.pair.bias)


def test_the_cnn_merges_pairs_and_passes_up_an_odd_one(build, x_BPH):
    model = build("parade-cnn")
    a, b, c, d, e = x_BPH[0]

    def m(left, right):
        return merge(model, left, right)

    # 5 -> (ab)(cd)e -> (ab cd)e -> one; 3 -> (ab)c -> one; 1 stays
    trees = {5: m(m(m(a, b), m(c, d)), e), 4: m(m(a, b), m(c, d)), 3: m(m(a, b), c)}
    trees |= {2: m(a, b), 1: a}
    for count, expected in trees.items():
        score_B = model.aggregate(x_BPH[[0, 0]], masks(count, 5))
        assert_close(score_B[0], head(model, expected), atol=1e-5, rtol=0)


def test_the_cnn_does_not_read_padding(build, x_BPH):
    model, mask_BP = build("parade-cnn"), masks(3, 5)
    changed = x_BPH.masked_fill(~mask_BP[:, :, None], 7.0)
    assert torch.equal(model.aggregate(x_BPH, mask_BP), model.aggregate(changed, mask_BP))


def test_the_cnn_reads_the_order_of_the_chunks(build, x_BPH):
    model = build("parade-cnn")
    score_B = model.aggregate(torch.stack([x_BPH[0], x_BPH[0].flip(0)]), masks(5, 5))
    assert (score_B[0] - score_B[1]).abs() > 1e-3


# BERT-base as published: with its pooler, which ranking does not use and we do not build. A second
# BERT has a pooler too, and a word table, which chunk vectors pass by: we build neither.
BERT_BASE, HEAD = 109_482_240, 769
POOLER = 768 * 768 + 768
WORDS = 30_522 * 768
# MiniLM: 384 wide, a feed-forward block of 1536 (cross-encoder/ms-marco-MiniLM-L-n-v2).
SMALL_POOLER = 384 * 384 + 384
SMALL_WORDS = 30_522 * 384


def published(name):
    """Parameters in the papers' code: 110M to 148M."""
    return {
        "firstp": 109_483_009,
        "avg-cls": 109_483_009,
        "parade-avg": 109_483_009,
        "parade-attn": 109_483_009 + 768,
        "parade-attn elementwise-attention": 110_073_601,
        "parade-transformer": 148_088_065,
        "parade-transformer-pretrained 6": 132_491_905,
        "parade-transformer-pretrained 4": 128_942_977,
        "parade-transformer-query 6": 132_491_905,
        "parade-late-interaction 6 2": 148_108_033,
    }[name]


DEAD = {  # beside BERT-base's own pooler
    "parade-transformer": POOLER + WORDS,
    "parade-transformer-pretrained 6": SMALL_POOLER + SMALL_WORDS,
    "parade-transformer-pretrained 4": SMALL_POOLER + SMALL_WORDS,
    "parade-transformer-query 6": SMALL_POOLER + SMALL_WORDS,
    "parade-late-interaction 6 2": 2 * (SMALL_POOLER + SMALL_WORDS),
}


def mini_lm(layers):
    from rank_core.models.vector_encoders import without_words

    config = BertConfig(
        hidden_size=384, num_hidden_layers=layers, num_attention_heads=12, intermediate_size=1536
    )
    return without_words(AutoModel.from_config(config, add_pooling_layer=False))


def over_mini_lm(kind, layers):
    """`kind` with encoders of the published sizes, whose weights are never there."""

    class OverMiniLM(kind):
        def body(self, setting, settings):
            return mini_lm(layers[setting])

    return OverMiniLM


@pytest.mark.parametrize(
    "name",
    [
        "firstp",
        "avg-cls",
        "parade-avg",
        "parade-attn",
        "parade-attn elementwise-attention",
        "parade-transformer",
        "parade-transformer-pretrained 6",
        "parade-transformer-pretrained 4",
        "parade-transformer-query 6",
        "parade-late-interaction 6 2",
    ],
)
def test_a_model_has_the_published_parameters_except_unused_ones(name, backbone):
    model_name, *rest = name.split()
    kind, quirks = model_class(model_name), tuple(word for word in rest if not word.isdigit())
    layers = [int(word) for word in rest if word.isdigit()]
    if layers:
        settings = ("aggregator", "interaction")
        kind = over_mini_lm(kind, dict(zip(settings, layers, strict=False)))
    with torch.device("meta"):
        encoder = AutoModel.from_config(BertConfig(), add_pooling_layer=False)
        model = kind(encoder, backbone, Model(model_name, quirks=quirks))
    size = sum(parameter.numel() for parameter in model.parameters())
    assert size + POOLER + DEAD.get(name, 0) == published(name)


def test_three_random_layers_are_one_more_than_two(backbone):
    sizes = []
    for name in ("parade-transformer", "parade-transformer-l3"):
        with torch.device("meta"):
            encoder = AutoModel.from_config(BertConfig(), add_pooling_layer=False)
            model = model_class(name)(encoder, backbone, Model(name))
        sizes.append(sum(parameter.numel() for parameter in model.parameters()))
    # A layer: 4 square maps, 768 x 3072 there and back, and two normalisations. The 120,513,281 and
    # 126,027,265 parameters of the 2022 code are another encoder: blocks of 2048 in place of 3072
    # (5,513,984 a layer), one normalisation after them (1536), C alone (768) and no positions.
    assert sizes[1] - sizes[0] == 4 * (768 * 768 + 768) + 2 * 768 * 3072 + 3072 + 768 + 4 * 768
    assert BERT_BASE + HEAD + 2 * 5_513_984 + 1536 + 768 == 120_513_281
    assert np.isclose(BERT_BASE + HEAD + 3 * 5_513_984 + 1536 + 768, 126.0e6, atol=0.1e6)
