"""The layers of BERT for scoring on CPUs, with packed weights: in oneDNN's own layout, through
private operators of torch (`torch.ops.mkldnn`).

Queries, keys and values are one product; activation and residual are fused into products. A layer
processes a few rows at a time, so that intermediate values fit the caches. With 16-bit products the
hidden state has 16 bits, except [CLS].

This is the part of the house that leans on what torch does not promise. It stays because it pays:
whoever changes it runs `python -m tests.benchmarks.scoring`, and
`tests/rank_core/encoders/test_cpu_layers.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear

from rank_core.encoders.attention import fused_context, product_context

Attention = Callable[[Tensor, Tensor | None], Tensor]
"""context_CLhd of the queries, keys and values of a block."""


@dataclass(frozen=True)
class CpuKernels:
    """How a processor computes the layers in scoring."""

    block_tokens: int  # per call, for which the layout of weights is optimised
    attend: Attention


FP32 = CpuKernels(1024, fused_context)
"""Those of fp32 on every processor, whose results are thereby the same to the last bits."""


def cpu_kernels(dtype: torch.dtype) -> CpuKernels:
    """The kernels for products in `dtype`. In 16 bits, whose results differ between processors
    anyway, those that suit the CPU: with tiles (AMX), larger blocks and torch's fused attention are
    the fastest; elsewhere its 16-bit attention is slower than products."""
    if dtype == torch.float32:
        return FP32
    if torch.cpu._is_amx_tile_supported():
        return CpuKernels(4096, fused_context)
    return CpuKernels(1024, product_context)


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

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype, block_tokens: int) -> None:
        pack = torch.ops.mkldnn._reorder_linear_weight
        self.weight = pack(weight.detach().to(dtype), block_tokens)
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


class PackedLayers:
    """The layers of a BERT encoder with their current weights and products in `dtype`."""

    def __init__(self, layers: nn.ModuleList, dtype: torch.dtype, kernels: CpuKernels) -> None:
        *others, last = layers
        self.dtype, self.kernels = dtype, kernels
        # In fp32 [CLS] is computed with the other tokens up to the last layer.
        precise = dtype == torch.float32
        self.layers = [
            (_PackedLayer(layer, dtype, kernels), None if precise else _PackedClsLayer(layer))
            for layer in others
        ]
        self.last = _PackedClsLayer(last)

    def __call__(self, hidden_CLH: Tensor, mask: Tensor | None) -> Tensor:
        """cls_C1H (fp32) after the last layer. Tokens are not attended to where the boolean mask
        (C, 1, L, L), equal for all queries, is false."""
        with torch.autocast("cpu", enabled=False):
            blocks = _blocks(hidden_CLH, mask, self.dtype, self.kernels.block_tokens)
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


def _blocks(
    x_CLH: Tensor, mask: Tensor | None, dtype: torch.dtype, block_tokens: int
) -> list[_Block]:
    num_rows, length, _ = x_CLH.shape
    at_once = max(1, block_tokens // length)
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

    def __init__(self, layer: Any, dtype: torch.dtype, kernels: CpuKernels) -> None:
        own, out = layer.attention.self, layer.attention.output
        self.heads, self.size = own.num_attention_heads, own.attention_head_size
        self.qkv = PackedLinear(
            # 1 / sqrt(d) is folded into the query's weights: nothing remains to be scaled.
            torch.cat([own.query.weight * own.scaling, own.key.weight, own.value.weight]),
            torch.cat([own.query.bias * own.scaling, own.key.bias, own.value.bias]),
            dtype,
            kernels.block_tokens,
        )
        dense = out.dense, layer.intermediate.dense, layer.output.dense
        self.out, self.up, self.down = (
            PackedLinear(d.weight, d.bias, dtype, kernels.block_tokens) for d in dense
        )
        self.norms = _norm(out.LayerNorm, dtype), _norm(layer.output.LayerNorm, dtype)
        self.activation = layer.intermediate.intermediate_act_fn
        self.gelu_inside = own.config.hidden_act == "gelu"
        self.attend = kernels.attend

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
