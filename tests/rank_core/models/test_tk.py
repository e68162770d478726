"""TK: the closed form over word vectors set by hand, positions and attention heads."""

from math import cos, exp, log, sin

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModel, BertConfig

from rank_core.errors import BadInput
from rank_core.models import check_model, model_class
from rank_core.models.build import build_model
from rank_core.models.interaction.tk import MU, TEXT_START, Contextualiser, layer_output, sinusoids
from rank_core.settings.config import Chunking, Model

MODEL = "tk"
CHUNKING = Chunking(window=200, stride=200, max_document_tokens=200)


def test_the_score_is_the_weighted_sum_of_logarithms_of_soft_counts(model, score):
    with torch.inference_mode():
        model.context.mixing.fill_(1.0)  # word vectors as they are
        model.encoder.weight[10:13] = 0.0
        model.encoder.weight[10, 0] = 2.0
        model.encoder.weight[11, 1] = 3.0
        model.encoder.weight[12, :2] = torch.tensor([3.0, 4.0])
        model.head.weight.zero_()
        model.head.weight[0, MU.index(0.7)] = 0.5
        model.head.weight[0, MU.index(1.0)] = 0.25
    # Query 10, text 10 11 12: similarities 1, 0 and 3 / 5. Distances from 0.7: 0.3, 0.7, 0.1.
    near_seven = exp(-0.09 / 0.02) + exp(-0.49 / 0.02) + exp(-0.01 / 0.02)
    near_one = 1 + exp(-1 / 0.02) + exp(-0.16 / 0.02)
    one = 0.5 * log(near_seven) + 0.25 * log(near_one)
    # Two query tokens 10 and text 10 alone: the kernel at 0.7 sees exp(-4.5) each.
    two = 2 * (0.5 * -4.5 + 0.25 * 0.0)
    assert score([10], [10, 11, 12]).tolist() == pytest.approx([one], rel=1e-5)
    assert score([10, 10], [10]).tolist() == pytest.approx([two], rel=1e-5)


def test_empty_counts_are_clamped_as_in_the_paper(model, score):
    # An empty document: log(1e-10) for each kernel and each of the 3 query tokens.
    expected = 3 * log(1e-10) * model.head.weight.sum().item()
    assert score([10, 11, 12], []).tolist() == pytest.approx([expected], rel=1e-5)
    assert score([], [10, 11]).tolist() == [0.0]


def test_positions_are_sinusoids_and_an_odd_last_number_is_zero():
    positions = sinusoids(500, 2, 5, torch.device("cpu"))
    # Two waves, of frequencies 1 and 10,000^-1.
    expected = [[sin(t), sin(t / 1e4), cos(t), cos(t / 1e4), 0.0] for t in (500, 501)]
    assert_close(positions, torch.tensor(expected), atol=1e-4, rtol=0)


def test_order_matters_inside_the_transformer_only(model, score):
    before, after = score([10, 11], [20, 21, 22], [22, 21, 20])
    assert before != after
    with torch.inference_mode():
        model.context.mixing.fill_(1.0)
    before, after = score([10, 11], [20, 21, 22], [22, 21, 20])
    assert_close(before, after)


def test_query_and_text_do_not_share_positions(model):
    x = torch.randn(1, 4, 32, generator=torch.Generator().manual_seed(2))
    mask = torch.ones(1, 4, dtype=torch.bool)
    as_query, as_text = model.context(x, mask, 0), model.context(x, mask, TEXT_START)
    assert (as_query - as_text).abs().max() > 1e-3


def test_word_vectors_are_as_large_as_positions(model):
    # A wave's mean square is 1 / 2.
    x = model.in_size(torch.arange(len(model.encoder.weight)))
    assert x.square().mean().item() == pytest.approx(0.5, rel=1e-5)
    assert sinusoids(0, 400, 32, x.device).square().mean().item() == pytest.approx(0.5, rel=1e-5)


@pytest.mark.parametrize(("size", "heads"), [(300, 10), (768, 8), (1024, 8), (32, 8), (7, 7)])
def test_heads_divide_the_word_vectors(size, heads):
    assert Contextualiser(size, 0.0).num_heads == heads


def test_a_layer_equals_torchs(model):
    layer = model.context.layers[0]
    whole = torch.nn.TransformerEncoderLayer(32, 8, 300, dropout=0.0, batch_first=True)
    whole.load_state_dict(layer.state_dict())
    x = torch.randn(3, 17, 32, generator=torch.Generator().manual_seed(4))
    seen = torch.arange(17) < torch.tensor([17, 9, 3])[:, None]
    expected = whole(x, src_key_padding_mask=~seen)
    assert_close(layer_output(layer, x, seen), expected, atol=1e-6, rtol=0)


def test_without_dropout_training_repeats_itself_and_with_it_does_not(backbone, config):
    for dropout in (0.0, 0.3):
        trained = build_model(config.override({"model.dropout": dropout}), backbone, init_seed=1)
        pairs = model_class("tk").reader(config, backbone, {"d": np.arange(10, 40, dtype=np.int32)})
        batch = pairs.collate([pairs.chunks(np.asarray([10, 50], np.int32), "d")])
        first, second = trained.train()(batch), trained(batch)
        assert (first == second).item() == (dropout == 0.0)


def test_a_document_is_one_row_of_any_length_whatever_positions_the_backbone_has(backbone, config):
    check_model(config, backbone)
    assert backbone.max_input_tokens == 131
    pairs = model_class("tk").reader(config, backbone, {"d": np.arange(300, dtype=np.int32)})
    [chunk] = pairs.chunks(np.asarray([10], np.int32), "d")
    assert len(chunk.text) == 200
    with pytest.raises(BadInput, match=r"chunking\.window"):
        check_model(config.override({"chunking.window": 100, "chunking.stride": 100}), backbone)
    with pytest.raises(BadInput, match=r"chunking\.stride"):
        check_model(config.override({"chunking.stride": 100}), backbone)


def test_the_pretrained_layers_are_not_part_of_the_model(backbone):
    with torch.device("meta"):
        encoder = AutoModel.from_config(BertConfig(), add_pooling_layer=False)
        model = model_class("tk")(encoder, backbone, Model("tk"))
    # The word table; two layers of attention (3 * 768 and 768 numbers from 768), 768 -> 300 -> 768
    # and two norms; the mixing weight; one weight of each kernel.
    attention = 4 * (768 * 768 + 768)
    feed_forward = 768 * 300 + 300 + 300 * 768 + 768
    layer = attention + feed_forward + 2 * 2 * 768
    expected = 30_522 * 768 + 2 * layer + 1 + 11
    assert sum(parameter.numel() for parameter in model.parameters()) == expected
    groups = model.learning_rate_groups()
    assert [parameter.shape for parameter in groups["backbone"]] == [(30_522, 768)]


def test_the_word_table_starts_as_the_backbones_and_is_trained(backbone, model):
    table = AutoModel.from_pretrained(backbone.folder).get_input_embeddings().weight
    assert torch.equal(model.encoder.weight, table)
    assert model.encoder.weight.requires_grad
