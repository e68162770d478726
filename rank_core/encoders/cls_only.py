"""BERT layers for models that read only [CLS]: the last layer computes nothing else.

Keys and values of the last layer cover every token; queries, the output projection and the
feed-forward block are computed for one. For a 6-layer encoder this saves about a seventh of the
arithmetic, in scoring and in training. In 16-bit scoring all layers compute [CLS] in fp32; rounding
in other tokens reaches it only through averages over all of them.

For scoring on CPUs the weights are packed (`cpu_layers`).

On two AVX512-bf16 cores, 25 rows of 161 tokens with 6 layers x 384 are scored 1.21 x as fast in
fp32 and 1.12 x in bf16, and trained 1.07 x and 1.22 x; packed, scoring takes 1/1.09 of that time in
fp32 and 1/1.17 in bf16 (`python -m tests.benchmarks.scoring`).

Results equal those of transformers up to rounding. Disabled by `RANKSWEEP_FAST_PATHS=off`.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from rank_core.encoders.attention import FUSED, PLAIN, own_attention
from rank_core.encoders.copies import copies_of
from rank_core.encoders.cpu_layers import PackedLayers, cpu_kernels, has_kernels
from rank_core.machine import fast_paths

SAME_LAYERS = ("bert", "electra", "roberta", "xlm-roberta", "camembert")
"""Model types with BERT's layers: attention.self, attention.output, feed_forward_chunk."""


def only_cls(encoder: nn.Module) -> None:
    """Replaces the layers of an encoder of `SAME_LAYERS`, so that the last computes only [CLS].
    `last_hidden_state` then has one token. Parameters and their names do not change."""
    config: Any = encoder.config
    if not fast_paths() or config.model_type not in SAME_LAYERS or config.is_decoder:
        return
    if config._attn_implementation not in ("sdpa", "eager", PLAIN, FUSED):
        return
    layers: Any = encoder.encoder.layer  # type: ignore[union-attr]
    for place, layer in enumerate(layers):
        layers[place] = _with(_Layer if place < len(layers) - 1 else _LastLayer, layer)
    encoder.encoder = _with(Layers, encoder.encoder)


def gives_cls_alone(encoder: nn.Module) -> bool:
    """True if `only_cls` has replaced the encoder's layers."""
    return isinstance(getattr(encoder, "encoder", None), Layers)


def _with(own: type, module: Any) -> Any:
    """A module with the parameters and parts of `module`, and the methods of `own`."""
    # A subclass made here works for every model type, whose layers have one interface and different
    # classes.
    kind: Any = type(own.__name__.strip("_"), (own, type(module)), {})
    made = kind.__new__(kind)
    made.__dict__.update(module.__dict__)
    return made


class Layers:
    """The layers of an encoder, applied packed or unchanged."""

    layer: nn.ModuleList

    def forward(self, hidden_CLH: Tensor, attention_mask: Tensor | None = None, **rest: Any) -> Any:
        """The last layer's output; only [CLS] in `last_hidden_state` if weights are packed."""
        packed: PackedLayers | None = copies_of(self)  # type: ignore[arg-type]
        if packed is None or torch.is_grad_enabled() or not _hides_tokens(attention_mask):
            return super().forward(hidden_CLH, attention_mask=attention_mask, **rest)  # type: ignore[misc]
        cls_C1H = packed(hidden_CLH, attention_mask)
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=cls_C1H)


def _hides_tokens(mask: Tensor | None) -> bool:
    """True if a mask (C, 1, L, L) is the same for all queries, as a padding mask is."""
    if mask is None:
        return True
    return mask.dtype == torch.bool and bool((mask == mask[:, :, :1]).all())


class _BertLayer:
    """The shared parts of `_LastLayer` and `_Layer`."""

    attention: Any
    feed_forward_chunk: Any
    training: bool

    def heads(self, x_CLH: Tensor) -> Tensor:
        """x_ChLd, split into heads."""
        own = self.attention.self
        shape = (*x_CLH.shape[:2], own.num_attention_heads, own.attention_head_size)
        return x_CLH.view(shape).transpose(1, 2)

    def cls(self, cls_C1H: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """cls_C1H after the layer, given the keys and values of all tokens."""
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
        return self.feed_forward_chunk(output_C1H)

    def precise_cls(
        self, cls_C1H: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
    ) -> Tensor:
        """As `cls`, computed in fp32."""
        with torch.autocast(cls_C1H.device.type, enabled=False):
            wide = torch.promote_types(cls_C1H.dtype, torch.float32)
            return self.cls(cls_C1H.to(wide), key, value, mask)


class _LastLayer(_BertLayer):
    """A BERT layer computed for its first token."""

    def forward(self, hidden_CLH: Tensor, mask: Tensor | None = None, *_: Any, **__: Any) -> Tensor:
        """cls_C1H of the layer's output."""
        own = self.attention.self
        key, value = self.heads(own.key(hidden_CLH)), self.heads(own.value(hidden_CLH))
        cls = self.cls if torch.is_grad_enabled() else self.precise_cls
        return cls(hidden_CLH[:, :1], key, value, mask)


class _Layer(_BertLayer):
    """A BERT layer with [CLS] in fp32 in 16-bit scoring."""

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


def packed_layers(model: nn.Module, autocast: torch.dtype | None) -> dict[nn.Module, PackedLayers]:
    """The layers that `only_cls` made within a model, packed from their current weights, if
    gradients are disabled and the CPU has the kernels; without those that this thread keeps."""
    dtype = autocast or torch.float32
    stacks = [m for m in model.modules() if isinstance(m, Layers) and copies_of(m) is None]
    able = [m for m in stacks if can_pack(m, dtype)]
    return {m: PackedLayers(m.layer, dtype, cpu_kernels(dtype)) for m in able}


def can_pack(layers: nn.Module, dtype: torch.dtype) -> bool:
    """True if this CPU has kernels for these layers, in their current state, in `dtype`."""
    if torch.is_grad_enabled() or not has_kernels(dtype):
        return False
    drops = layers.training and any(m.p for m in layers.modules() if isinstance(m, nn.Dropout))
    plain = all(p.dtype == torch.float32 and p.device.type == "cpu" for p in layers.parameters())
    return plain and not drops
