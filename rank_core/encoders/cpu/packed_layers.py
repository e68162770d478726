"""Fast paths of encoders: all that is computed otherwise than in transformers stands here.

- `use_own_attention` swaps the attention function: matrix products on CPUs, where the fused
  kernel is slower; in training with 16-bit products only. Masks never wait for the device.
- `only_cls` swaps the classes of BERT's layers, for models that read nothing but [CLS]: the last
  layer computes [CLS] alone; in scoring with 16-bit products all layers compute [CLS] in fp32.
- `packed` swaps, while scoring on a CPU, the layers of such an encoder for packed weights and
  private operators of torch (`torch.ops.mkldnn`).

Each gives the numbers of transformers up to rounding. `RANKSWEEP_FAST_PATHS=off` in the environment
switches all of them off; a trial's result then names it under `versions`.

Attention by plain matrix products works in blocks that stay in the caches. torch's fused kernel is
slower on CPUs for inputs as short as chunks: on two AVX512-bf16 cores, 38 rows of 185 tokens and 12
heads of 32, it takes 25 ms forward and 119 ms with its backward pass in bf16, where plain products
take 15 ms and 31 ms; in fp32 it takes 27 ms against 18 ms forward, and only its fp32 backward pass
is the faster one (`python -m tests.benchmarks.attention` measures both).

[CLS] alone: keys and values of the last layer still cover every token; queries, the output
projection and the feed-forward block run for one token. For a 6-layer encoder that is about a
seventh of all arithmetic, in scoring and in training. With 16-bit products the rounding of the
other tokens reaches an fp32 [CLS] through averages over all of them only.

Packed layers, for scoring on CPUs: weights in oneDNN's own layout; queries, keys and values as one
product; the activation and the residual inside the products. Rows go through a layer some at a
time, so that their intermediate values stay in the caches: asking the system for fresh memory cost
a tenth of the time. With 16-bit products the hidden state is 16 bits wide throughout, but for
[CLS].
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear, scaled_dot_product_attention
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from rank_core.machine import fast_paths

PLAIN, FUSED = "ranksweep_plain", "ranksweep_fused"
BLOCK_BYTES = 4 << 20  # attention weights at once in scoring: a core's share of the cache


def use_own_attention(encoder: nn.Module, *, plain: bool) -> None:
    """Swaps the attention of an encoder that would use torch's fused kernel: for `PLAIN`, or for
    the same kernel with masks that ask the device for nothing."""
    config: Any = encoder.config
    if not fast_paths() or config._attn_implementation != "sdpa":
        return
    # Imported by now, as the module of every encoder needs it; at the top it would take seconds.
    fused = transformers.integrations.sdpa_attention.sdpa_attention_forward
    for name, function in ((PLAIN, plain_attention), (FUSED, fused)):
        transformers.AttentionInterface.register(name, function)
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


def plain_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **extra: Any,
) -> tuple[Tensor, None]:
    """(output_CLhd, None) for query, key and value of shape (C, heads, L, d); where the boolean
    mask (C, 1, L, L) is false a token is not attended to."""
    training = torch.is_grad_enabled() and query.requires_grad
    causal = extra.get("is_causal") or getattr(module, "is_causal", False)
    unusual = query.shape != key.shape or extra.get("position_bias") is not None
    if (
        query.device.type != "cpu"
        or unusual
        or (causal and attention_mask is None)
        or (training and query.dtype == torch.float32)
    ):
        # Imported by now, as the module of every encoder needs it; here it would take seconds.
        return transformers.integrations.sdpa_attention.sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, **extra
        )
    num_rows, num_heads, length, size = query.shape
    query = query * (size**-0.5 if scaling is None else scaling)
    row_bytes = num_heads * length * length * query.element_size()
    rows = num_rows if training else max(1, BLOCK_BYTES // row_bytes)
    outputs = []
    for start in range(0, num_rows, rows):
        block = slice(start, start + rows)
        mask = None if attention_mask is None else attention_mask[block]
        outputs.append(_attend(query[block], key[block], value[block], mask, dropout))
    output = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    return output.transpose(1, 2), None


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, p: float) -> Tensor:
    score = query @ key.transpose(-1, -2)
    if mask is not None:
        # Some encoders pass a bias to add to the scores instead of a boolean mask.
        hidden = mask.logical_not() if mask.dtype == torch.bool else None
        # The least number, not minus infinity: a row without any token must not become NaN.
        least = torch.finfo(score.dtype).min
        score = score + mask if hidden is None else score.masked_fill(hidden, least)
    weight = torch.softmax(score, dim=-1)
    if p:
        weight = nn.functional.dropout(weight, p)
    return weight @ value


BLOCK_TOKENS = 1024  # through a layer at once
SCORE_BYTES = 3 << 19  # attention scores at once: they are written and read three times


def can_pack(layers: nn.Module, dtype: torch.dtype) -> bool:
    """True where this machine has the kernels for these layers, as they are now, in `dtype`."""
    ops = torch.ops.mkldnn
    if torch.is_grad_enabled() or dtype not in (torch.float32, torch.bfloat16):
        return False
    if not torch.backends.mkldnn.is_available() or not hasattr(ops, "_linear_pointwise"):
        return False
    if dtype == torch.bfloat16 and not ops._is_mkldnn_bf16_supported():
        return False
    drops = layers.training and any(m.p for m in layers.modules() if isinstance(m, nn.Dropout))
    plain = all(p.dtype == torch.float32 and p.device.type == "cpu" for p in layers.parameters())
    return plain and not drops


class PackedLayers:
    """The layers of a BERT encoder as they are now, with products in `dtype`."""

    def __init__(self, layers: nn.ModuleList, dtype: torch.dtype) -> None:
        *others, last = layers
        self.dtype = dtype
        # In fp32 [CLS] goes with the other tokens up to the last layer.
        precise = dtype == torch.float32
        self.layers = [
            (_PackedLayer(layer, dtype), None if precise else _PackedClsLayer(layer))
            for layer in others
        ]
        self.last = _PackedClsLayer(last)

    def __call__(self, hidden_CLH: Tensor, mask: Tensor | None) -> Tensor:
        """cls_C1H (fp32) after the last layer. Where the boolean mask (C, 1, L, L), whose rows are
        alike, is false a token is not attended to."""
        with torch.autocast("cpu", enabled=False):
            blocks = _blocks(hidden_CLH, mask, self.dtype)
            cls_CH = hidden_CLH[:, 0]
            x_CLH = hidden_CLH.to(self.dtype, copy=True)
            for layer, cls_layer in self.layers:
                after = None if cls_layer is None else cls_layer(cls_CH, x_CLH, blocks)
                for block in blocks:
                    some_CLH = x_CLH[block.rows, : block.length]
                    some_CLH.copy_(layer(some_CLH, block.hidden))
                cls_CH = x_CLH[:, 0] if after is None else after
                x_CLH[:, 0] = cls_CH
            return self.last(cls_CH, x_CLH, blocks)[:, None]


@dataclass(frozen=True)
class _Block:
    """Some rows, cut to the longest of them."""

    rows: slice
    length: int
    # (C, 1, 1, L), added to attention scores: hidden tokens get no weight; None: none is hidden
    hidden: Tensor | None


def _blocks(x_CLH: Tensor, mask: Tensor | None, dtype: torch.dtype) -> list[_Block]:
    num_rows, length, _ = x_CLH.shape
    at_once = max(1, BLOCK_TOKENS // length)
    blocks = []
    for start in range(0, num_rows, at_once):
        rows = slice(start, start + at_once)
        if mask is None:
            blocks.append(_Block(rows, length, None))
            continue
        seen = mask[rows, :, :1]
        longest = int(seen.flatten(0, 2).any(0).nonzero().max()) + 1
        seen = seen[..., :longest]
        # Half of the least number: added to a score it stays finite.
        least = torch.finfo(dtype).min / 2
        hidden = torch.zeros(seen.shape, dtype=dtype).masked_fill_(seen.logical_not(), least)
        blocks.append(_Block(rows, longest, None if seen.all() else hidden))
    return blocks


class _PackedLinear:
    """A linear layer in oneDNN's layout."""

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> None:
        pack = torch.ops.mkldnn._reorder_linear_weight
        self.weight = pack(weight.detach().to(dtype), BLOCK_TOKENS)
        self.bias = bias.detach().to(dtype)

    def __call__(self, x_TH: Tensor, activation: str = "none") -> Tensor:
        y_TH: Tensor = torch.ops.mkldnn._linear_pointwise(
            x_TH, self.weight, self.bias, activation, [], "none"
        )
        return y_TH

    def plus(self, x_TH: Tensor, residual_TH: Tensor) -> Tensor:
        y_TH: Tensor = torch.ops.mkldnn._linear_pointwise.binary(
            x_TH, residual_TH, self.weight, self.bias, "add"
        )
        return y_TH


class _PackedNorm:
    def __init__(self, norm: nn.LayerNorm, dtype: torch.dtype) -> None:
        self.shape, self.eps = norm.normalized_shape, norm.eps
        self.weight, self.bias = norm.weight.detach().to(dtype), norm.bias.detach().to(dtype)

    def __call__(self, x_TH: Tensor) -> Tensor:
        return layer_norm(x_TH, self.shape, self.weight, self.bias, self.eps)


class _PackedLayer:
    """A whole layer for all tokens of some rows."""

    def __init__(self, layer: Any, dtype: torch.dtype) -> None:
        own, out = layer.attention.self, layer.attention.output
        self.heads, self.size = own.num_attention_heads, own.attention_head_size
        self.qkv = _PackedLinear(
            torch.cat([own.query.weight * own.scaling, own.key.weight, own.value.weight]),
            torch.cat([own.query.bias * own.scaling, own.key.bias, own.value.bias]),
            dtype,
        )
        self.out = _PackedLinear(out.dense.weight, out.dense.bias, dtype)
        self.up = _PackedLinear(
            layer.intermediate.dense.weight, layer.intermediate.dense.bias, dtype
        )
        self.down = _PackedLinear(layer.output.dense.weight, layer.output.dense.bias, dtype)
        self.norms = _PackedNorm(out.LayerNorm, dtype), _PackedNorm(layer.output.LayerNorm, dtype)
        self.activation = layer.intermediate.intermediate_act_fn
        self.is_gelu = own.config.hidden_act == "gelu"

    def __call__(self, x_CLH: Tensor, hidden: Tensor | None) -> Tensor:
        x_TH = x_CLH.reshape(-1, x_CLH.shape[2])
        qkv_CLphd = self.qkv(x_TH).view(*x_CLH.shape[:2], 3, self.heads, self.size)
        attend = _fused_context if x_TH.dtype == torch.float32 else _product_context
        context_TH = attend(qkv_CLphd, hidden).reshape(x_TH.shape[0], -1)
        x_TH = self.norms[0](self.out.plus(context_TH, x_TH))
        y_TI = self.up(x_TH, "gelu") if self.is_gelu else self.activation(self.up(x_TH))
        return self.norms[1](self.down.plus(y_TI, x_TH)).view(x_CLH.shape)


def _fused_context(qkv_CLphd: Tensor, hidden: Tensor | None) -> Tensor:
    """context_CLhd by torch's kernel, which needs no copies of its inputs."""
    query, key, value = qkv_CLphd.permute(2, 0, 3, 1, 4)
    context = scaled_dot_product_attention(query, key, value, attn_mask=hidden, scale=1.0)
    return context.transpose(1, 2)


def _product_context(qkv_CLphd: Tensor, hidden: Tensor | None) -> Tensor:
    """context_CLhd by matrix products: in 16 bits faster than torch's kernel."""
    num_rows, length, _, heads, size = qkv_CLphd.shape
    context = qkv_CLphd.new_empty(num_rows, length, heads, size)
    at_once = max(1, SCORE_BYTES // (heads * length * length * context.element_size()))
    for start in range(0, num_rows, at_once):
        rows = slice(start, start + at_once)
        query, key, value = qkv_CLphd[rows].permute(2, 0, 3, 1, 4).contiguous().flatten(1, 2)
        score = torch.bmm(query, key.transpose(1, 2))
        if hidden is not None:
            score.view(-1, heads, length, length).add_(hidden[rows])
        weight = torch.softmax(score, dim=-1)
        some = torch.bmm(weight, value).view(-1, heads, length, size)
        context[rows] = some.transpose(1, 2)
    return context


class _PackedClsLayer:
    """A layer for [CLS] alone, in fp32."""

    def __init__(self, layer: Any) -> None:
        own = layer.attention.self
        shape = (own.num_attention_heads, own.attention_head_size, -1)
        self.layer = layer
        self.query = own.query.weight.detach() * own.scaling, own.query.bias * own.scaling
        self.key_hdH = own.key.weight.detach().view(shape)
        self.value_hHd = own.value.weight.detach().view(shape).transpose(1, 2)
        self.value_bias = own.value.bias.detach()

    def __call__(self, cls_CH: Tensor, x_CLH: Tensor, blocks: list[_Block]) -> Tensor:
        """[CLS] after the layer. One query needs no keys and values: q (K x) is (q K) x, the mean
        of V x is V of the mean of x, and a bias of all keys moves no weight."""
        num_rows, num_heads = len(cls_CH), len(self.key_hdH)
        query_hCd = linear(cls_CH, *self.query).view(num_rows, num_heads, -1).transpose(0, 1)
        query_ChH = (query_hCd @ self.key_hdH).transpose(0, 1)
        means = []
        for block in blocks:
            some_CLH = x_CLH[block.rows, : block.length].to(cls_CH.dtype)
            if x_CLH.dtype != cls_CH.dtype:
                some_CLH[:, 0] = cls_CH[block.rows]
            score_ChL = query_ChH[block.rows] @ some_CLH.transpose(1, 2)
            if block.hidden is not None:
                score_ChL += block.hidden[:, 0]
            means.append(torch.softmax(score_ChL, dim=-1) @ some_CLH)
        context_hCd = torch.cat(means).transpose(0, 1) @ self.value_hHd
        context_CH = context_hCd.transpose(0, 1).reshape(num_rows, -1) + self.value_bias
        output_CH: Tensor = self.layer.feed_forward_chunk(
            self.layer.attention.output(context_CH, cls_CH)
        )
        return output_CH


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
    _become(_Layers, encoder.encoder)


def _become(own: type, module: Any) -> None:
    # Another class for the same object: its parameters, their names and copies of it stay right.
    module.__class__ = type(own.__name__.strip("_"), (own, type(module)), {})


@contextlib.contextmanager
def packed(model: nn.Module, autocast: torch.dtype | None) -> Iterator[None]:
    """Packs, for its duration, the encoders of `only_cls` within the model, with their weights as
    they are now, where no gradient is recorded and the CPU has the kernels.

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
        context, _ = plain_attention(own, query, key, value, mask, scaling=own.scaling)
        output_CLH: Tensor = self.feed_forward_chunk(
            self.attention.output(context.flatten(2), hidden_CLH)
        )
        output_CLH[:, :1] = self.precise_cls(hidden_CLH[:, :1], key, value, mask)
        return output_CLH
