"""The attention function of an encoder of transformers, and its mask: one that never waits for the
device. Off with `RANKSWEEP_FAST_PATHS=off`."""

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
    """Swaps the attention of an encoder that would use torch's fused kernel: for `PLAIN`, or for
    the same kernel with masks that ask the device for nothing."""
    config: Any = encoder.config
    if not fast_paths() or config._attn_implementation != "sdpa":
        return
    # Imported by now, as the module of every encoder needs it; at the top it would take seconds.
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
    """The mask (C, 1, L, L) of transformers, which would ask the device whether any token is
    padding at all, and wait for its answer. Here the caller says so: without a mask none is."""
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
    """(output_CLhd, None) for query, key and value of shape (C, heads, L, d), in the form that is
    the faster one on this CPU; where the boolean mask (C, 1, L, L) is false a token is not attended
    to. On other devices, and for what products know nothing of, torch's fused kernel."""
    causal = extra.get("is_causal") or getattr(module, "is_causal", False)
    unusual = query.shape != key.shape or extra.get("position_bias") is not None
    if query.device.type == "cpu" and not unusual and not (causal and attention_mask is None):
        training = torch.is_grad_enabled() and query.requires_grad
        name = f"{'training' if training else 'scoring'} attention {number_of(query.dtype)}"
        if form(name) == "products":
            return plain_attention(query, key, value, attention_mask, dropout, scaling), None
    # Imported by now, as the module of every encoder needs it; here it would take seconds.
    fused = transformers.integrations.sdpa_attention.sdpa_attention_forward
    result: tuple[Tensor, None] = fused(
        module, query, key, value, attention_mask, dropout, scaling, **extra
    )
    return result
