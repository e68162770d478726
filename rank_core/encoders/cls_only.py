"""The layers of BERT for models that read nothing but [CLS]: the last layer computes [CLS] alone.

Keys and values of the last layer still cover every token; queries, the output projection and the
feed-forward block run for one token. For a 6-layer encoder that is about a seventh of all
arithmetic, in scoring and in training. In scoring with 16-bit products all layers compute [CLS] in
fp32: the rounding of the other tokens reaches it through averages over all of them only.

`python -m tests.benchmarks.fast_paths` measures it: on two AVX512-bf16 cores, 25 rows of 161
tokens and 6 layers x 384 are scored 1.21 x as fast in fp32 and 1.12 x in bf16, and learnt from
1.07 x and 1.22 x.

The numbers are those of transformers up to rounding; off with `RANKSWEEP_FAST_PATHS=off`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from rank_core.encoders.attention import FUSED, PLAIN, own_attention
from rank_core.machine import fast_paths

SAME_LAYERS = ("bert", "electra", "roberta", "xlm-roberta", "camembert")
"""Model types whose layers are BERT's: attention.self, attention.output, feed_forward_chunk."""


def only_cls(encoder: nn.Module) -> None:
    """Swaps the layers of an encoder of `SAME_LAYERS`: the last one computes its first token only.

    `last_hidden_state` then has one token. Parameters and their names stay as they are.
    """
    config: Any = encoder.config
    if not fast_paths() or config.model_type not in SAME_LAYERS or config.is_decoder:
        return
    if config._attn_implementation not in ("sdpa", "eager", PLAIN, FUSED):
        return
    layers: Any = encoder.encoder.layer  # type: ignore[union-attr]
    for layer in layers:
        own = _LastLayer if layer is layers[-1] else _Layer
        _become(own, layer)
    _become(Layers, encoder.encoder)


def gives_cls_alone(encoder: nn.Module) -> bool:
    """True after `only_cls` has swapped the encoder's layers."""
    return isinstance(getattr(encoder, "encoder", None), Layers)


def _become(own: type, module: Any) -> None:
    # Another class for the same object: its parameters, their names and copies of it stay right.
    module.__class__ = type(own.__name__.strip("_"), (own, type(module)), {})


class Layers:
    """All layers of an encoder one after the other, packed or as they are."""

    packed: Callable[[Tensor, Tensor | None], Tensor] | None = None
    """cls_C1H from hidden_CLH and its mask, while the weights of all layers are packed."""

    layer: nn.ModuleList

    def forward(self, hidden_CLH: Tensor, attention_mask: Tensor | None = None, **rest: Any) -> Any:
        """The last layer's output; [CLS] alone in `last_hidden_state` where weights are packed."""
        if self.packed is None or torch.is_grad_enabled() or not _hides_tokens(attention_mask):
            return super().forward(hidden_CLH, attention_mask=attention_mask, **rest)  # type: ignore[misc]
        cls_C1H = self.packed(hidden_CLH, attention_mask)
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=cls_C1H)


def _hides_tokens(mask: Tensor | None) -> bool:
    """True where a mask (C, 1, L, L) hides tokens from all others alike, as padding is hidden."""
    if mask is None:
        return True
    return mask.dtype == torch.bool and bool((mask == mask[:, :, :1]).all())


class _BertLayer:
    """The parts of a BERT layer that `_LastLayer` and `_Layer` share."""

    attention: Any
    feed_forward_chunk: Any
    training: bool

    def heads(self, x_CLH: Tensor) -> Tensor:
        """x of shape (C, heads, L, d)."""
        own = self.attention.self
        shape = (*x_CLH.shape[:2], own.num_attention_heads, own.attention_head_size)
        return x_CLH.view(shape).transpose(1, 2)

    def cls(self, cls_C1H: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """cls_C1H after the layer, from the keys and values of all tokens."""
        own = self.attention.self
        query = self.heads(own.query(cls_C1H))
        context = scaled_dot_product_attention(
            query,
            key.to(query.dtype),
            value.to(query.dtype),
            attn_mask=None if mask is None else mask[:, :, :1],
            dropout_p=own.dropout.p if self.training else 0.0,
            scale=own.scaling,
        )
        output_C1H = self.attention.output(context.transpose(1, 2).flatten(2), cls_C1H)
        result: Tensor = self.feed_forward_chunk(output_C1H)
        return result

    def precise_cls(
        self, cls_C1H: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
    ) -> Tensor:
        """cls_C1H as by `cls`, computed in fp32."""
        with torch.autocast(cls_C1H.device.type, enabled=False):
            wide = torch.promote_types(cls_C1H.dtype, torch.float32)
            return self.cls(cls_C1H.to(wide), key, value, mask)


class _LastLayer(_BertLayer):
    """The forward pass of a BERT layer for its first token."""

    def forward(self, hidden_CLH: Tensor, mask: Tensor | None = None, *_: Any, **__: Any) -> Tensor:
        """cls_C1H of the layer's output."""
        own = self.attention.self
        key, value = self.heads(own.key(hidden_CLH)), self.heads(own.value(hidden_CLH))
        cls = self.cls if torch.is_grad_enabled() else self.precise_cls
        return cls(hidden_CLH[:, :1], key, value, mask)


class _Layer(_BertLayer):
    """The forward pass of a BERT layer, in 16-bit scoring with an fp32 [CLS]."""

    def forward(
        self, hidden_CLH: Tensor, mask: Tensor | None = None, *rest: Any, **extra: Any
    ) -> Tensor:
        """hidden_CLH of the layer's output."""
        device = hidden_CLH.device.type
        if torch.is_grad_enabled() or not torch.is_autocast_enabled(device):
            whole: Tensor = super().forward(hidden_CLH, mask, *rest, **extra)  # type: ignore[misc]
            return whole
        own = self.attention.self
        query, key, value = (self.heads(f(hidden_CLH)) for f in (own.query, own.key, own.value))
        context, _ = own_attention(own, query, key, value, mask, scaling=own.scaling)
        output_CLH: Tensor = self.feed_forward_chunk(
            self.attention.output(context.flatten(2), hidden_CLH)
        )
        output_CLH[:, :1] = self.precise_cls(hidden_CLH[:, :1], key, value, mask)
        return output_CLH
