"""Attention by plain matrix products, in blocks that stay in the caches.

torch's fused kernel is slower on CPUs for inputs as short as chunks: on two AVX512-bf16 cores, 38
rows of 185 tokens and 12 heads of 32, it takes 25 ms forward and 119 ms with its backward pass in
bf16, where plain products take 15 ms and 31 ms; in fp32 it takes 27 ms against 18 ms forward, and
only its fp32 backward pass is the faster one (`python -m tests.benchmarks.attention` measures
both).
"""

from typing import Any

import torch
import transformers
from torch import Tensor, nn

BLOCK_BYTES = 4 << 20  # attention weights at once in scoring: a core's share of the cache


def plain_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **extra: Any,
) -> tuple[Tensor, None]:
    """(output_CLhd, None) for query, key and value of shape (C, heads, L, d); where the boolean
    mask (C, 1, L, L) is false a token is not attended to."""
    training = torch.is_grad_enabled() and query.requires_grad
    causal = extra.get("is_causal") or getattr(module, "is_causal", False)
    unusual = query.shape != key.shape or extra.get("position_bias") is not None
    if (
        query.device.type != "cpu"
        or unusual
        or (causal and attention_mask is None)
        or (training and query.dtype == torch.float32)
    ):
        # Imported by now, as the module of every encoder needs it; here it would take seconds.
        return transformers.integrations.sdpa_attention.sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, **extra
        )
    num_rows, num_heads, length, size = query.shape
    query = query * (size**-0.5 if scaling is None else scaling)
    row_bytes = num_heads * length * length * query.element_size()
    rows = num_rows if training else max(1, BLOCK_BYTES // row_bytes)
    outputs = []
    for start in range(0, num_rows, rows):
        block = slice(start, start + rows)
        mask = None if attention_mask is None else attention_mask[block]
        outputs.append(_attend(query[block], key[block], value[block], mask, dropout))
    output = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    return output.transpose(1, 2), None


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, p: float) -> Tensor:
    score = query @ key.transpose(-1, -2)
    if mask is not None:
        # Some encoders pass a bias to add to the scores instead of a boolean mask.
        hidden = mask.logical_not() if mask.dtype == torch.bool else None
        # The least number, not minus infinity: a row without any token must not become NaN.
        least = torch.finfo(score.dtype).min
        score = score + mask if hidden is None else score.masked_fill(hidden, least)
    weight = torch.softmax(score, dim=-1)
    if p:
        weight = nn.functional.dropout(weight, p)
    return weight @ value
