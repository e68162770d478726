"""What rankers read of an encoder is [CLS], so [CLS] is computed with care and the rest with speed.

The last layer runs for [CLS] alone: keys and values still cover every token, so the vector is what
the whole layer would give; queries, the output projection and the feed-forward block run for one
token instead of all. For a 6-layer encoder that is about a seventh of all arithmetic, in scoring
and in training.

In scoring with 16-bit products, [CLS] itself is computed in fp32 in every layer: one token of
hundreds. What rounding does to the other tokens reaches it through averages over all of them only.

In scoring on CPUs the layers are packed (`packed_layers`); what is here is the path of
training, of other devices, and what the packed layers must equal.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from rank_core.encoders.cpu.attention import PLAIN, plain_attention
from rank_core.encoders.cpu.packed_layers import PackedLayers, can_pack

SAME_LAYERS = ("bert", "electra", "roberta", "xlm-roberta", "camembert")
"""Model types whose layers are BERT's: attention.self, attention.output, feed_forward_chunk."""


def only_cls(encoder: nn.Module) -> None:
    """Makes the encoder's last layer compute its first token only, where its type is known to us.

    `last_hidden_state` then has one token. Parameters and their names stay as they are.
    """
    config: Any = encoder.config
    if config.model_type not in SAME_LAYERS or config.is_decoder:
        return
    if config._attn_implementation not in ("sdpa", "eager", PLAIN):
        return
    layers: Any = encoder.encoder.layer  # type: ignore[union-attr]
    for layer in layers:
        own = _LastLayer if layer is layers[-1] else _Layer
        _become(own, layer)
    _become(_Layers, encoder.encoder)


def _become(own: type, module: Any) -> None:
    # Another class for the same object: its parameters, their names and copies of it stay right.
    module.__class__ = type(own.__name__.strip("_"), (own, type(module)), {})


@contextlib.contextmanager
def packed(model: nn.Module, autocast: torch.dtype | None) -> Iterator[None]:
    """While it lasts, and where nothing records a gradient on a CPU that has the kernels, encoders
    of `only_cls` within the model compute with weights as they are now, laid out for the kernels.

    Weights are packed anew each time, so that none is ever stale and none is kept.
    """
    dtype = autocast or torch.float32
    stacks = [part for part in model.modules() if isinstance(part, _Layers)]
    stacks = [part for part in stacks if can_pack(part, dtype)]
    for part in stacks:
        part.packed = PackedLayers(part.layer, dtype)
    try:
        yield
    finally:
        for part in stacks:
            part.packed = None


class _Layers:
    """All layers of an encoder one after the other, packed or as they are."""

    packed: PackedLayers | None = None
    layer: nn.ModuleList

    def forward(self, hidden_CLH: Tensor, attention_mask: Tensor | None = None, **rest: Any) -> Any:
        """The last layer's output; [CLS] alone in `last_hidden_state` where weights are packed."""
        if self.packed is None or torch.is_grad_enabled() or not _hides_tokens(attention_mask):
            return super().forward(hidden_CLH, attention_mask=attention_mask, **rest)  # type: ignore[misc]
        cls_C1H = self.packed(hidden_CLH, attention_mask)
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=cls_C1H)


def _hides_tokens(mask: Tensor | None) -> bool:
    """Whether a mask (C, 1, L, L) hides tokens from all others alike, as padding is hidden."""
    if mask is None:
        return True
    return mask.dtype == torch.bool and bool((mask == mask[:, :, :1]).all())


class _BertLayer:
    """The parts of a BERT layer that both of ours use."""

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
        """The same in fp32."""
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
        context, _ = plain_attention(own, query, key, value, mask, scaling=own.scaling)
        output_CLH: Tensor = self.feed_forward_chunk(
            self.attention.output(context.flatten(2), hidden_CLH)
        )
        output_CLH[:, :1] = self.precise_cls(hidden_CLH[:, :1], key, value, mask)
        return output_CLH
