"""What rankers read of an encoder is [CLS], so [CLS] is computed with care and the rest with speed.

The last layer runs for [CLS] alone: keys and values still cover every token, so the vector is what
the whole layer would give; queries, the output projection and the feed-forward block run for one
token instead of all. For a 6-layer encoder that is about a seventh of all arithmetic, in scoring
and in training.

In scoring with 16-bit products, [CLS] itself is computed in fp32 in every layer: one token of
hundreds. What rounding does to the other tokens reaches it through averages over all of them only.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from rank_core.attention import PLAIN, plain_attention

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
        # Another class for the same object: its parameters, their names and copies of it stay
        # right.
        own = _LastLayer if layer is layers[-1] else _Layer
        layer.__class__ = type(own.__name__.strip("_"), (own, type(layer)), {})


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
