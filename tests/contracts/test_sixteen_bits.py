"""In 16 bits flat rows have the gradients of padded rows, and their dropout: here on a CPU, as
`doctor --gpu` checks on a GPU, for models that choose no chunk. Both find faults that are planted.
"""

from unittest.mock import patch

import pytest
import torch

from rank_core.encoders import flat_rows, packed
from tests.gpu import sixteen_bits
from tests.gpu.sixteen_bits import RATE
from tests.gpu.work import parts, random_bert, tokens

CPU, BF16 = torch.device("cpu"), torch.bfloat16


@pytest.fixture(scope="module")
def standard(tmp_path_factory):
    return random_bert(tmp_path_factory.mktemp("bert"), 2, 64, 4, 256)


def lost_residual(ctx, y_TK, residual_TH):
    x_TH, weight = ctx.saved_tensors
    return y_TK @ weight, y_TK.t() @ x_TH, y_TK.sum(0)


def larger_weights(ctx, y_TK, residual_TH):
    of_x, of_weight, of_bias = BACKWARD(ctx, y_TK, residual_TH)
    return of_x, 1.03 * of_weight, of_bias


BACKWARD = packed._Product.backward


def gradients(name, standard, number, *, flat):
    """{parameter: gradient} of the same new model."""
    sizes = (1, 13, 20, 34, 60)
    texts = {f"d{size}-{i}": tokens(97 * size + i, size) for size in sizes for i in (1, 2)}
    some = parts(name, standard, CPU, texts=texts)
    assert sixteen_bits.reads(some, flat=flat) == flat
    with sixteen_bits.sums_of_a_gpu(CPU):
        return sixteen_bits.gradients(some, number)


@pytest.mark.parametrize("name", sixteen_bits.SMOOTH)
def test_gradients_of_flat_rows_are_those_of_padded_rows_and_of_fp32(name, standard):
    found = gradients(name, standard, BF16, flat=True)
    for number in (None, BF16):
        expected = gradients(name, standard, number, flat=False)
        assert not sixteen_bits.wrong_gradients(found, expected), number


@pytest.mark.parametrize("fault", [lost_residual, larger_weights])
@pytest.mark.parametrize("name", ["firstp", "mores"])
def test_a_wrong_gradient_of_flat_rows_is_found(name, fault, standard):
    expected = gradients(name, standard, None, flat=False)
    with patch.object(packed._Product, "backward", staticmethod(fault)):
        found = gradients(name, standard, BF16, flat=True)
    assert sixteen_bits.wrong_gradients(found, expected)


NUM_SEEDS = 48


def scores_by_seed(name, standard, place, *, flat):
    """The mean score of two documents for each of many seeds, with dropout in the layers'
    attention or in their outputs, and nowhere else."""
    some = parts(name, standard, CPU, texts={f"d{size}": tokens(size, size) for size in (13, 45)})
    sixteen_bits.reads(some, flat=flat)
    for layer in some.model.train().encoder.encoder.layer:
        own = [layer.attention.self.dropout], [layer.attention.output.dropout, layer.output.dropout]
        for module in own[place == "outputs"]:
            module.p = 0.3
    means = []
    with torch.no_grad(), sixteen_bits.sums_of_a_gpu(CPU):
        for seed in range(NUM_SEEDS):
            torch.manual_seed(2 * seed + flat)
            means.append(some.scores(BF16).mean().double())
    return torch.stack(means)


def differs(flat_S, padded_S):
    """True where means, or deviations, differ by more than three standard errors."""
    error = ((flat_S.var() + padded_S.var()) / NUM_SEEDS).sqrt()
    ratio = (flat_S.std() / padded_S.std()).log().abs()
    return bool((flat_S.mean() - padded_S.mean()).abs() > 3 * error or ratio > 3 * NUM_SEEDS**-0.5)


@pytest.mark.parametrize("place", ["attention", "outputs"])
def test_dropout_of_flat_rows_moves_scores_as_that_of_padded_rows(place, standard):
    padded_S = scores_by_seed("firstp", standard, place, flat=False)
    assert not differs(scores_by_seed("firstp", standard, place, flat=True), padded_S)
    faults = {"attention": (none_dropped, unscaled), "outputs": (lambda x, rate: x, halved)}
    name = {"attention": "attention_row_by_row", "outputs": "dropout"}[place]
    for fault in faults[place]:
        with patch.object(packed, name, fault):
            assert differs(scores_by_seed("firstp", standard, place, flat=True), padded_S), fault


def test_a_gradient_that_is_missing_is_found():
    full = {"a": torch.ones(2), "b": torch.ones(2)}
    assert list(sixteen_bits.wrong_gradients({"a": torch.ones(2)}, full)) == ["b"]
    assert list(sixteen_bits.wrong_gradients(full | {"b": torch.full((2,), torch.nan)}, full))


ATTEND = flat_rows.attention_row_by_row


def unscaled(*given):
    return ATTEND(*given) * (1 - RATE)


def halved(x, rate):
    return DROPOUT(x, rate) / 2


def none_dropped(query, key, value, ends, reach, rate, scale):
    return ATTEND(query, key, value, ends, reach, 0.0, scale)


class OtherMask(torch.autograd.Function):
    """Attention whose backward pass draws again."""

    @staticmethod
    def forward(ctx, query, key, value, *rest):
        ctx.save_for_backward(query, key, value)
        ctx.rest = rest
        return ATTEND(query, key, value, *rest)

    @staticmethod
    def backward(ctx, gradient):
        inputs = [x.detach().requires_grad_() for x in ctx.saved_tensors]
        with torch.enable_grad():
            output = ATTEND(*inputs, *ctx.rest)
        return *torch.autograd.grad(output, inputs, gradient), None, None, None, None


@pytest.mark.parametrize(
    ("attend", "parts_found"),
    [
        (ATTEND, set()),
        (unscaled, {"scale", "query", "key", "value"}),
        (none_dropped, {"share", "scale", "query", "key", "value"}),
        (OtherMask.apply, {"query", "key", "value"}),
    ],
)
def test_a_wrong_dropout_of_attention_is_found(attend, parts_found):
    with patch.object(flat_rows, "attention_row_by_row", attend):
        found = sixteen_bits.attention(CPU, BF16)
    assert set(sixteen_bits.wrong_dropout(found)) == parts_found


DROPOUT = packed.dropout


@pytest.mark.parametrize(
    ("dropout", "parts_found"),
    [
        (DROPOUT, set()),
        (lambda x, rate: DROPOUT(x, rate) * (1 - rate), {"scale"}),
        (lambda x, rate: DROPOUT(x, 2 * rate), {"share", "scale"}),
        (lambda x, rate: x + (DROPOUT(x, rate) - x).detach(), {"gradient"}),
    ],
)
def test_a_wrong_dropout_of_a_layers_outputs_is_found(dropout, parts_found):
    with patch.object(packed, "dropout", dropout):
        wrong = sixteen_bits.wrong_hidden_dropout(CPU, BF16)
    assert {part.split()[1] for part in wrong} == parts_found
