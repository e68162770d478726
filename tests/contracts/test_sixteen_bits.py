"""What `doctor --gpu` checks in 16 bits finds faults of flat rows: here on a CPU, with faults that
are planted."""

import contextlib
from unittest.mock import patch

import pytest
import torch

from rank_core.encoders import flat_rows, packed
from rank_core.models import cedr
from tests.gpu import sixteen_bits
from tests.gpu.sixteen_bits import RATE
from tests.gpu.test_same_numbers import FP16_OR_BF16
from tests.gpu.work import difference, parts, random_bert

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


@pytest.mark.parametrize("fault", [None, lost_residual, larger_weights])
@pytest.mark.parametrize("name", ["firstp", "mores"])
def test_a_wrong_gradient_of_flat_rows_is_found(name, fault, standard):
    some = parts(name, standard, CPU)
    expected = sixteen_bits.gradients(some, None)
    some.model.zero_grad(set_to_none=True)
    assert sixteen_bits.reads(some, flat=True)
    with (
        sixteen_bits.sums_of_a_gpu(CPU),
        patch.object(packed._Product, "backward", staticmethod(fault or BACKWARD)),
    ):
        found = sixteen_bits.gradients(some, BF16)
    wrong = sixteen_bits.wrong_gradients(found, expected)
    assert bool(wrong) == bool(fault), wrong


def test_a_gradient_that_is_missing_is_found():
    full = {"a": torch.ones(2), "b": torch.ones(2)}
    assert list(sixteen_bits.wrong_gradients({"a": torch.ones(2)}, full)) == ["b"]
    assert list(sixteen_bits.wrong_gradients(full | {"b": torch.full((2,), torch.nan)}, full))


@torch.inference_mode()
@pytest.mark.parametrize("smooth", [False, True])
def test_rounding_of_similarities_shows_where_they_are_counted_in_bins(smooth, standard):
    some, combine = parts("cedr-drmm", standard, CPU), cedr.CedrDrmm.combine

    def rounded(self, cls_BH, similarity, terms):
        torch.manual_seed(1)
        moved = (x + 4e-3 * (torch.rand(x.shape) - 0.5) for x in similarity)
        return combine(self, cls_BH, moved, terms)

    with sixteen_bits.without_steps() if smooth else contextlib.nullcontext():
        expected = some.scores()
        with patch.object(cedr.CedrDrmm, "combine", rounded):
            moved = difference(some.scores(), expected)
    assert 0 < moved and (moved < FP16_OR_BF16) == smooth


ATTEND = flat_rows.attention_row_by_row


def unscaled(*given):
    return ATTEND(*given) * (1 - RATE)


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
