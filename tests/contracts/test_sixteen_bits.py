"""What `doctor --gpu` checks in 16 bits finds faults of flat rows: here on a CPU, with faults that
are planted."""

from unittest.mock import patch

import pytest
import torch

from rank_core.encoders import flat_bert
from tests.gpu import sixteen_bits
from tests.gpu.work import parts, random_bert

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


BACKWARD = flat_bert._Product.backward


@pytest.mark.parametrize("fault", [None, lost_residual, larger_weights])
@pytest.mark.parametrize("name", ["firstp", "mores"])
def test_a_wrong_gradient_of_flat_rows_is_found(name, fault, standard):
    some = parts(name, standard, CPU)
    expected = sixteen_bits.gradients(some, None)
    some.model.zero_grad(set_to_none=True)
    assert sixteen_bits.reads(some, flat=True)
    with (
        sixteen_bits.sums_of_a_gpu(CPU),
        patch.object(flat_bert._Product, "backward", staticmethod(fault or BACKWARD)),
    ):
        found = sixteen_bits.gradients(some, BF16)
    wrong = sixteen_bits.wrong_gradients(found, expected)
    assert bool(wrong) == bool(fault), wrong


def test_a_gradient_that_is_missing_is_found():
    full = {"a": torch.ones(2), "b": torch.ones(2)}
    assert list(sixteen_bits.wrong_gradients({"a": torch.ones(2)}, full)) == ["b"]
    assert list(sixteen_bits.wrong_gradients(full | {"b": torch.full((2,), torch.nan)}, full))
