"""The attention function and mask of transformers encoders, in forms that never synchronise with
the device. Disabled by `RANKSWEEP_FAST_PATHS=off`."""

from typing import Any

import torch
import transformers
from torch import Tensor, nn

from rank_core.encoders.cpu.attention import plain_attention
from rank_core.encoders.cpu.forms import form, number_of
from rank_core.encoders.flat_attention import or_flat
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
    """(output_CLhd, None) for query, key and value of shape (C, heads, L, d), in the faster form on
    this CPU. Tokens are not attended to where the boolean mask (C, 1, L, L) is false. torch's fused
    kernel is used on other devices, and with causal attention, biases or cross-attention."""
    causal = extra.get("is_causal") or getattr(module, "is_causal", False)
    unusual = query.shape != key.shape or extra.get("position_bias") is not None
    if query.device.type == "cpu" and not unusual and not (causal and attention_mask is None):
        training = torch.is_grad_enabled() and query.requires_grad
        name = f"{'training' if training else 'scoring'} attention {number_of(query.dtype)}"
        if form(name) == "products":
            return plain_attention(query, key, value, attention_mask, dropout, scaling), None
    # Already imported by the encoder's module; an import here would take seconds.
    fused = transformers.integrations.sdpa_attention.sdpa_attention_forward
    return fused(module, query, key, value, attention_mask, dropout, scaling, **extra)
