"""Attention in two forms: torch's fused kernel, and matrix products in blocks that fit the caches.

Which is faster depends on number format and processor. On one AVX512-bf16 core, for 2 rows of 161
tokens and 12 heads of 64, the fused kernel takes 3.5 ms in bf16 and 18.4 ms with its backward pass,
products 1.9 ms and 5.8 ms; in fp32 the fused kernel takes 2.6 ms and 9.8 ms, products 3.3 ms and
11.8 ms (`python -m rank_core.encoders.cpu.forms`; more shapes: `python -m
tests.benchmarks.attention`). `forms.py` chooses.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

BLOCK_BYTES = 4 << 20  # attention weights per block in scoring: a core's share of the cache
SCORE_BYTES = 3 << 19  # attention scores per block, which are written and read three times


def plain_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
) -> Tensor:
    """output_CLhd for query, key and value of shape (C, heads, L, d). Tokens are not attended to
    where the boolean mask (C, 1, L, L) is false."""
    num_rows, num_heads, length, size = query.shape
    query = query * (size**-0.5 if scaling is None else scaling)
    row_bytes = num_heads * length * length * query.element_size()
    training = torch.is_grad_enabled() and query.requires_grad
    rows = num_rows if training else max(1, BLOCK_BYTES // row_bytes)
    outputs = []
    for start in range(0, num_rows, rows):
        block = slice(start, start + rows)
        mask = None if attention_mask is None else attention_mask[block]
        outputs.append(_attend(query[block], key[block], value[block], mask, dropout))
    output = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    return output.transpose(1, 2)


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, p: float) -> Tensor:
    score = query @ key.transpose(-1, -2)
    if mask is not None:
        # Some encoders pass an additive bias instead of a boolean mask.
        hidden = mask.logical_not() if mask.dtype == torch.bool else None
        # The smallest number instead of minus infinity: a row without tokens must not become NaN.
        least = torch.finfo(score.dtype).min
        score = score + mask if hidden is None else score.masked_fill(hidden, least)
    weight = torch.softmax(score, dim=-1)
    if p:
        weight = nn.functional.dropout(weight, p)
    return weight @ value


def fused_context(qkv_CLphd: Tensor, hidden: Tensor | None) -> Tensor:
    """context_CLhd by torch's kernel, without copies of its inputs."""
    query, key, value = qkv_CLphd.permute(2, 0, 3, 1, 4)
    context = scaled_dot_product_attention(query, key, value, attn_mask=hidden, scale=1.0)
    return context.transpose(1, 2)


def product_context(qkv_CLphd: Tensor, hidden: Tensor | None) -> Tensor:
    """context_CLhd by matrix products."""
    num_rows, length, _, heads, size = qkv_CLphd.shape
    context = qkv_CLphd.new_empty(num_rows, length, heads, size)
    at_once = max(1, SCORE_BYTES // (heads * length * length * context.element_size()))
    for start in range(0, num_rows, at_once):
        rows = slice(start, start + at_once)
        query, key, value = qkv_CLphd[rows].permute(2, 0, 3, 1, 4).contiguous().flatten(1, 2)
        score = torch.bmm(query, key.transpose(1, 2))
        if hidden is not None:
            score.view(-1, heads, length, length).add_(hidden[rows])
        weight = torch.softmax(score, dim=-1)
        context_RhLd = torch.bmm(weight, value).view(-1, heads, length, size)
        context[rows] = context_RhLd.transpose(1, 2)
    return context
