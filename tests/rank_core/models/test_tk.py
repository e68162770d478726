"""TK: the closed form over word vectors set by hand, positions and attention heads."""

from math import cos, exp, log, sin

import pytest
import torch
from torch.testing import assert_close

from rank_core.models.word_vectors import MU, layer_output, sinusoids
from rank_core.settings.config import Chunking

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


def test_a_layer_equals_torchs(model):
    layer = model.context.layers[0]
    whole = torch.nn.TransformerEncoderLayer(32, 8, 300, dropout=0.0, batch_first=True)
    whole.load_state_dict(layer.state_dict())
    x = torch.randn(3, 17, 32, generator=torch.Generator().manual_seed(4))
    seen = torch.arange(17) < torch.tensor([17, 9, 3])[:, None]
    expected = whole(x, src_key_padding_mask=~seen)
    assert_close(layer_output(layer, x, seen), expected, atol=1e-6, rtol=0)
