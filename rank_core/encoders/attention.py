"""The attention function and mask of transformers encoders, in forms that never synchronise with
the device. Disabled by `RANKSWEEP_FAST_PATHS=off`.

On CPUs torch's fused kernel computes fp32, and matrix products in blocks that fit the caches bf16.
On one AVX512-bf16 core, for 2 rows of 161 tokens and 12 heads of 64, the kernel takes 3.5 ms in
bf16 and 18.4 ms with its backward pass, products 1.9 ms and 5.8 ms; in fp32 the kernel takes 2.6 ms
and 9.8 ms, products 3.3 ms and 11.8 ms.
"""

from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from rank_core.encoders.flat_rows import or_flat
from rank_core.machine import fast_paths

PLAIN, FUSED = "ranksweep_plain", "ranksweep_fused"


def use_own_attention(encoder: nn.Module, *, plain: bool) -> None:
    """Replaces the attention of an encoder with torch's fused kernel: by `PLAIN`, or by the same
    kernel with masks that need no answer from the device."""
    config: Any = encoder.config
    if not fast_paths() or config._attn_implementation != "sdpa":
        return
    # Already imported by the encoder's module; an import at the top would take seconds.
    fused = transformers.integrations.sdpa_attention.sdpa_attention_forward
    for name, function in ((PLAIN, own_attention), (FUSED, fused)):
        transformers.AttentionInterface.register(name, or_flat(function))
        transformers.AttentionMaskInterface.register(name, padding_mask)
    encoder.set_attn_implementation(PLAIN if plain else FUSED)  # type: ignore[operator]


def padding_mask(
    *,
    attention_mask: Tensor | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    **rest: Any,
) -> Tensor | None:
    """The mask (C, 1, L, L) of transformers, without its check on the device for padding, which
    would synchronise. Here the caller decides: no mask means no padding."""
    none_hidden = attention_mask is None
    return transformers.masking_utils.sdpa_mask(
        attention_mask=attention_mask,
        allow_is_causal_skip=allow_is_causal_skip and none_hidden,
        allow_is_bidirectional_skip=allow_is_bidirectional_skip and none_hidden,
        **rest,
    )


def own_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **extra: Any,
) -> tuple[Tensor, None]:
    """(output_CLhd, None) for query, key and value of shape (C, heads, L, d), by matrix products in
    16 bits on a CPU. Tokens are not attended to where the boolean mask (C, 1, L, L) is false.
    torch's fused kernel is used elsewhere, and with causal attention, biases or cross-attention."""
    causal = extra.get("is_causal") or getattr(module, "is_causal", False)
    unusual = query.shape != key.shape or extra.get("position_bias") is not None
    here = query.device.type == "cpu" and query.dtype != torch.float32
    if here and not unusual and not (causal and attention_mask is None):
        return plain_attention(query, key, value, attention_mask, dropout, scaling), None
    # Already imported by the encoder's module; an import here would take seconds.
    fused = transformers.integrations.sdpa_attention.sdpa_attention_forward
    return fused(module, query, key, value, attention_mask, dropout, scaling, **extra)


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
    # Scaling the queries costs L x d products, scaling the scores L x L.
    query = query * (size**-0.5 if scaling is None else scaling)
    row_bytes = num_heads * length * length * query.element_size()
    training = torch.is_grad_enabled() and query.requires_grad
    # In training all weights are kept for the backward pass anyway, and blocks would only add
    # copies.
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
        # `bmm` reads contiguous matrices in one sweep; the copy is small beside the scores.
        query, key, value = qkv_CLphd[rows].permute(2, 0, 3, 1, 4).contiguous().flatten(1, 2)
        score = torch.bmm(query, key.transpose(1, 2))
        if hidden is not None:
            score.view(-1, heads, length, length).add_(hidden[rows])
        weight = torch.softmax(score, dim=-1)
        context_RhLd = torch.bmm(weight, value).view(-1, heads, length, size)
        context[rows] = context_RhLd.transpose(1, 2)
    return context
