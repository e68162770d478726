"""The attention function of an encoder of transformers, and its mask: one that never waits for the
device. Off with `RANKSWEEP_FAST_PATHS=off`."""

from typing import Any

import transformers
from torch import Tensor, nn

from rank_core.encoders.cpu.attention import plain_attention
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
    for name, function in ((PLAIN, plain_attention), (FUSED, fused)):
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
