"""BERT layers for models that read only [CLS]: the last layer computes nothing else.

Keys and values of the last layer cover every token; queries, the output projection and the
feed-forward block are computed for one. For a 6-layer encoder this saves about a seventh of the
arithmetic, in scoring and in training. In 16-bit scoring all layers compute [CLS] in fp32; rounding
in other tokens reaches it only through averages over all of them.

For scoring on CPUs the weights are packed: in oneDNN's own layout, through private operators of
torch (`torch.ops.mkldnn`). Queries, keys and values are one product; activation and residual are
fused into products. A layer processes a few rows at a time, so that intermediate values fit the
caches. With 16-bit products the hidden state has 16 bits, except [CLS].

On two AVX512-bf16 cores, 25 rows of 161 tokens with 6 layers x 384 are scored 1.21 x as fast in
fp32 and 1.12 x in bf16, and trained 1.07 x and 1.22 x; packed, scoring takes 1/1.09 of that time in
fp32 and 1/1.17 in bf16 (`python -m tests.benchmarks.scoring`).

This is the part of the house that leans on what torch does not promise. It stays because it pays:
whoever changes it runs the benchmark, and `tests/rank_core/encoders/test_cpu_layers.py`.

Results equal those of transformers up to rounding. Disabled by `RANKSWEEP_FAST_PATHS=off`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear, scaled_dot_product_attention
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from rank_core.encoders.attention import FUSED, PLAIN, fused_context, own_attention, product_context
from rank_core.encoders.copies import copies_of
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


Attention = Callable[[Tensor, Tensor | None], Tensor]
"""context_CLhd of the queries, keys and values of a block."""


@dataclass(frozen=True)
class CpuKernels:
    """How a processor scores fastest in a type of products."""

    block_tokens: int  # per call, for which the layout of weights is optimised
    attend: Attention


FP32 = CpuKernels(1024, fused_context)
BF16 = CpuKernels(1024, product_context)
BF16_TILES = CpuKernels(4096, fused_context)


def cpu_kernels(dtype: torch.dtype) -> CpuKernels:
    """The kernels for `dtype`. With tiles (AMX) 16-bit products are so fast that larger blocks and
    torch's fused attention win; elsewhere its 16-bit attention is slower than products."""
    if dtype == torch.float32:
        return FP32
    return BF16_TILES if torch.cpu._is_amx_tile_supported() else BF16


def has_kernels(dtype: torch.dtype) -> bool:
    """True if this torch and this processor support packed layers in `dtype`."""
    ops = torch.ops.mkldnn
    if not torch.backends.mkldnn.is_available() or not hasattr(ops, "_linear_pointwise"):
        return False
    return dtype == torch.float32 or (
        dtype == torch.bfloat16 and bool(ops._is_mkldnn_bf16_supported())
    )


class PackedLinear:
    """A linear layer of weight (I, H) and bias (I), copied in `dtype`."""

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> None:
        pack = torch.ops.mkldnn._reorder_linear_weight
        self.weight = pack(weight.detach().to(dtype), cpu_kernels(dtype).block_tokens)
        self.bias = bias.detach().to(dtype)

    def __call__(self, x_TH: Tensor, activation: str = "none") -> Tensor:
        """y_TI after `activation`: "none", "gelu", ..."""
        return torch.ops.mkldnn._linear_pointwise(
            x_TH, self.weight, self.bias, activation, [], "none"
        )

    def plus(self, x_TH: Tensor, residual_TI: Tensor) -> Tensor:
        """y_TI + residual_TI."""
        return torch.ops.mkldnn._linear_pointwise.binary(
            x_TH, residual_TI, self.weight, self.bias, "add"
        )


def packed_layers(
    model: nn.Module, autocast: torch.dtype | None
) -> "dict[nn.Module, PackedLayers]":
    """The layers that `only_cls` made within a model, packed from their current weights, if
    gradients are disabled and the CPU has the kernels; without those that this thread keeps."""
    dtype = autocast or torch.float32
    stacks = [m for m in model.modules() if isinstance(m, Layers) and copies_of(m) is None]
    return {m: PackedLayers(m.layer, dtype) for m in stacks if can_pack(m, dtype)}


def can_pack(layers: nn.Module, dtype: torch.dtype) -> bool:
    """True if this CPU has kernels for these layers, in their current state, in `dtype`."""
    if torch.is_grad_enabled() or not has_kernels(dtype):
        return False
    drops = layers.training and any(m.p for m in layers.modules() if isinstance(m, nn.Dropout))
    plain = all(p.dtype == torch.float32 and p.device.type == "cpu" for p in layers.parameters())
    return plain and not drops


class PackedLayers:
    """The layers of a BERT encoder with their current weights and products in `dtype`."""

    def __init__(self, layers: nn.ModuleList, dtype: torch.dtype) -> None:
        *others, last = layers
        self.dtype = dtype
        # In fp32 [CLS] is computed with the other tokens up to the last layer.
        precise = dtype == torch.float32
        self.layers = [
            (_PackedLayer(layer, dtype), None if precise else _PackedClsLayer(layer))
            for layer in others
        ]
        self.last = _PackedClsLayer(last)

    def __call__(self, hidden_CLH: Tensor, mask: Tensor | None) -> Tensor:
        """cls_C1H (fp32) after the last layer. Tokens are not attended to where the boolean mask
        (C, 1, L, L), equal for all queries, is false."""
        with torch.autocast("cpu", enabled=False):
            blocks = _blocks(hidden_CLH, mask, self.dtype)
            # [CLS] goes its own way in fp32; the 16-bit copy in x_CLH is what other tokens attend
            # to.
            cls_CH = hidden_CLH[:, 0].float()
            x_CLH = hidden_CLH.to(self.dtype, copy=True)
            for layer, cls_layer in self.layers:
                after = None if cls_layer is None else cls_layer(cls_CH, x_CLH, blocks)
                for block in blocks:
                    rows_RLH = x_CLH[block.rows, : block.length]
                    rows_RLH.copy_(layer(rows_RLH, block.hidden))
                cls_CH = x_CLH[:, 0] if after is None else after
                x_CLH[:, 0] = cls_CH
            return self.last(cls_CH, x_CLH, blocks)[:, None]


@dataclass(frozen=True)
class _Block:
    """Consecutive rows, cut to the longest of them."""

    rows: slice
    length: int
    # (C, 1, 1, L) to add to attention scores, very negative for hidden tokens; None: none hidden
    hidden: Tensor | None


def _blocks(x_CLH: Tensor, mask: Tensor | None, dtype: torch.dtype) -> list[_Block]:
    num_rows, length, _ = x_CLH.shape
    at_once = max(1, cpu_kernels(dtype).block_tokens // length)
    blocks = []
    for start in range(0, num_rows, at_once):
        rows = slice(start, start + at_once)
        if mask is None:
            blocks.append(_Block(rows, length, None))
            continue
        seen = mask[rows, :, :1]
        # Rows are sorted by length: a block can often be cut far below the width of the batch.
        longest = int(seen.flatten(0, 2).any(0).nonzero().max()) + 1
        seen = seen[..., :longest]
        # Half of the smallest number stays finite when added to a score.
        least = torch.finfo(dtype).min / 2
        hidden = torch.zeros(seen.shape, dtype=dtype).masked_fill_(seen.logical_not(), least)
        blocks.append(_Block(rows, longest, None if seen.all() else hidden))
    return blocks


def _norm(norm: nn.LayerNorm, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """A layer norm with a copy of its weights in `dtype`."""
    weight, bias = norm.weight.detach().to(dtype), norm.bias.detach().to(dtype)
    return lambda x_TH: layer_norm(x_TH, norm.normalized_shape, weight, bias, norm.eps)


class _PackedLayer:
    """A layer for all tokens of a block."""

    def __init__(self, layer: Any, dtype: torch.dtype) -> None:
        own, out = layer.attention.self, layer.attention.output
        self.heads, self.size = own.num_attention_heads, own.attention_head_size
        self.qkv = PackedLinear(
            # 1 / sqrt(d) is folded into the query's weights: nothing remains to be scaled.
            torch.cat([own.query.weight * own.scaling, own.key.weight, own.value.weight]),
            torch.cat([own.query.bias * own.scaling, own.key.bias, own.value.bias]),
            dtype,
        )
        dense = out.dense, layer.intermediate.dense, layer.output.dense
        self.out, self.up, self.down = (PackedLinear(d.weight, d.bias, dtype) for d in dense)
        self.norms = _norm(out.LayerNorm, dtype), _norm(layer.output.LayerNorm, dtype)
        self.activation = layer.intermediate.intermediate_act_fn
        self.gelu_inside = own.config.hidden_act == "gelu"
        self.attend = cpu_kernels(dtype).attend

    def __call__(self, x_CLH: Tensor, hidden: Tensor | None) -> Tensor:
        x_TH = x_CLH.reshape(-1, x_CLH.shape[2])
        qkv_CLphd = self.qkv(x_TH).view(*x_CLH.shape[:2], 3, self.heads, self.size)
        context_TH = self.attend(qkv_CLphd, hidden).reshape(x_TH.shape[0], -1)
        x_TH = self.norms[0](self.out.plus(context_TH, x_TH))
        y_TI = self.up(x_TH, "gelu") if self.gelu_inside else self.activation(self.up(x_TH))
        return self.norms[1](self.down.plus(y_TI, x_TH)).view(x_CLH.shape)


class _PackedClsLayer:
    """A layer for [CLS], in fp32."""

    def __init__(self, layer: Any) -> None:
        own = layer.attention.self
        shape = (own.num_attention_heads, own.attention_head_size, -1)
        self.layer = layer
        self.query = own.query.weight.detach() * own.scaling, own.query.bias * own.scaling
        self.key_hdH = own.key.weight.detach().view(shape)
        self.value_hHd = own.value.weight.detach().view(shape).transpose(1, 2)
        self.value_bias = own.value.bias.detach()

    def __call__(self, cls_CH: Tensor, x_CLH: Tensor, blocks: list[_Block]) -> Tensor:
        """cls_CH after the layer. A single query needs no keys and values: q (K x) = (q K) x, the
        mean of V x is V times the mean of x, and a bias of all keys has no effect."""
        num_rows, num_heads = len(cls_CH), len(self.key_hdH)
        query_hCd = linear(cls_CH, *self.query).view(num_rows, num_heads, -1).transpose(0, 1)
        query_ChH = (query_hCd @ self.key_hdH).transpose(0, 1)
        means = []
        for block in blocks:
            rows_RLH = x_CLH[block.rows, : block.length].to(cls_CH.dtype)
            if x_CLH.dtype != cls_CH.dtype:
                # [CLS] attends to itself in fp32 too.
                rows_RLH[:, 0] = cls_CH[block.rows]
            score_ChL = query_ChH[block.rows] @ rows_RLH.transpose(1, 2)
            if block.hidden is not None:
                score_ChL += block.hidden[:, 0]
            means.append(torch.softmax(score_ChL, dim=-1) @ rows_RLH)
        context_hCd = torch.cat(means).transpose(0, 1) @ self.value_hHd
        context_CH = context_hCd.transpose(0, 1).reshape(num_rows, -1) + self.value_bias
        return self.layer.feed_forward_chunk(self.layer.attention.output(context_CH, cls_CH))
