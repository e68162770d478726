"""Attention by matrix products against torch's kernel: outputs, gradients, which one is used."""

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from torch.testing import assert_close
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from rank_core.encoders import attention
from rank_core.encoders.attention import (
    fused_context,
    own_attention,
    plain_attention,
    product_context,
)

NEAR = {torch.float32: 1e-5, torch.bfloat16: 3e-2}
MASK = torch.arange(12) < torch.tensor([12, 7, 1])[:, None]


def drawn(dtype, shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(dtype)


@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("grad", [False, True], ids=["scoring", "training"])
def test_products_give_the_kernels_outputs_and_gradients(dtype, grad, monkeypatch):
    monkeypatch.setattr(attention, "BLOCK_BYTES", 1)
    outputs = []
    mask = MASK[:, None, None].expand(-1, 1, 12, -1)
    for by_products in (True, False):
        parts = [part.requires_grad_(grad) for part in drawn(dtype, (3, 3, 4, 12, 8))]
        if by_products:
            output = plain_attention(*parts, mask)
        else:
            output = scaled_dot_product_attention(*parts, mask).transpose(1, 2)
        outputs.append([output.detach()])
        if grad:
            output.float().square().sum().backward()
            outputs[-1] += [part.grad for part in parts]
    for one, other in zip(*outputs, strict=True):
        assert_close(one, other, atol=4 * NEAR[dtype], rtol=NEAR[dtype])


@pytest.mark.parametrize("dtype", NEAR)
def test_a_bias_by_position_counts(dtype):
    query, key, value = drawn(dtype, (3, 3, 4, 12, 8))
    bias = 3 * drawn(dtype, (1, 4, 12, 12))
    module = nn.Module()
    module.is_causal = False
    found, _ = own_attention(module, query, key, value, None, position_bias=bias)
    expected, _ = sdpa_attention_forward(module, query, key, value, None, position_bias=bias)
    assert_close(found, expected, atol=NEAR[dtype], rtol=0)


@pytest.mark.parametrize("dtype", NEAR)
def test_contexts_of_packed_layers_agree(dtype, monkeypatch):
    monkeypatch.setattr(attention, "SCORE_BYTES", 1)
    qkv = drawn(dtype, (3, 12, 3, 4, 8))
    hidden = torch.zeros(3, 1, 1, 12, dtype=dtype).masked_fill_(~MASK[:, None, None], -1e30)
    for mask in (None, hidden):
        found = product_context(qkv, mask), fused_context(qkv, mask)
        assert_close(*found, atol=NEAR[dtype], rtol=0)
