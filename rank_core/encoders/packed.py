"""Encoders over a flat row of tokens: no computation for padding, and as few calls as the token
budget allows.

Encoders of transformers pass the boundaries of rows (`cu_seq_lens_q`) to their attention function
and accept explicit positions; all other operations are token by token. This is used on GPUs with
16-bit products. Elsewhere, and for encoders that cannot, rows are padded.

BERT has its own layers here: 16-bit weights and residuals, one product for queries, keys and
values. Launch overhead dominates small batches, and memory traffic the steps between products. For
12 padded layers, transformers makes some 500 launches per scoring call and 960 per forward and
backward pass, with fp32 residuals; these make 143 and 432 (`python -m tests.benchmarks.launches`).
If torch can compile, the steps after attention are compiled: dropouts, sums, norms and GELU become
three kernels. Otherwise the log says why, once; TORCHDYNAMO_DISABLE=1 disables it.

[CLS] has 16 bits like all tokens: fp32 changed neither ties nor ranks. Heads and scores are fp32.
Results equal those of transformers up to rounding. Gradients go to the encoder's fp32 parameters.
Disabled by `RANKSWEEP_FAST_PATHS=off`.
"""

import inspect
import logging
import threading
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import dropout, gelu, layer_norm, linear
from torch.utils.checkpoint import checkpoint

from rank_core.encoders.any_kind import AsItIs
from rank_core.encoders.attention import FUSED, PLAIN
from rank_core.encoders.backbone_types import TYPES
from rank_core.encoders.cls_only import SAME_LAYERS, gives_cls_alone
from rank_core.encoders.copies import copies_of
from rank_core.encoders.flat_rows import (
    MAX_HEAD,
    Ends,
    FlatRows,
    Reach,
    attention_row_by_row,
    flash_attention,
)
from rank_core.encoders.lora import has_adapters
from rank_core.machine import fast_paths, is_out_of_memory

logger = logging.getLogger(__name__)

# T tokens of C rows, H hidden size, h heads of size d, K outputs of a product.


class Weights(NamedTuple):
    """The parameters of a layer in the type of its products."""

    qkv_weight: Tensor  # (3H, H): of queries, keys and values, stacked
    qkv_bias: Tensor
    out_weight: Tensor
    out_bias: Tensor
    norm_weight: Tensor
    norm_bias: Tensor
    up_weight: Tensor
    up_bias: Tensor
    down_weight: Tensor
    down_bias: Tensor
    last_norm_weight: Tensor
    last_norm_bias: Tensor


class Constants(NamedTuple):
    """The constants shared by all layers of an encoder."""

    head_size: int
    activation: Callable[[Tensor], Tensor]
    epsilon: float  # of layer norms
    attention_dropout: float
    dropout: float  # of layer outputs, before the residual


Finish = Callable[[Tensor, Tensor, Weights, Constants], Tensor]


def is_bert(encoder: nn.Module) -> bool:
    """True for bidirectional encoders with BERT's layers."""
    config: Any = encoder.config
    own_weights = config.model_type in SAME_LAYERS and not config.is_decoder
    return own_weights and not has_adapters(encoder)


def kept_weights(encoder: Any, autocast: torch.dtype | None) -> dict[nn.Module, list[Weights]]:
    """Copies of the current weights of an encoder that `is_bert`, to be kept while they do not
    change. Nothing with gradients enabled, or if this thread keeps them."""
    if torch.is_grad_enabled() or not is_bert(encoder) or copies_of(encoder) is not None:
        return {}
    return {encoder: weights_of(encoder.encoder.layer, autocast or encoder.dtype)}


def bert_states(
    encoder: Any, inputs_1T: dict[str, Tensor], flat: FlatRows, *, layers: bool
) -> tuple[Tensor, ...]:
    """x_TH of the last layer, or of embeddings and all `layers`, of an encoder that `is_bert`;
    cls_CH of the last layer if the encoder gives only [CLS]. Products are in autocast's type."""
    stack, device = encoder.encoder.layer, flat.place_T.device.type
    constants = _constants(stack[0])
    x_1TH = encoder.embeddings(**inputs_1T)
    if hasattr(encoder, "embeddings_project"):
        x_1TH = encoder.embeddings_project(x_1TH)
    mixed = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if mixed else x_1TH.dtype
    states = [x_1TH[0].to(dtype)]
    # The weights have the type of the products already; autocast would look each of them up again,
    # and run norms in fp32.
    with torch.autocast(device, enabled=False):
        all_weights = _kept(encoder, dtype) or weights_of(stack, dtype)
        compiles = getattr(encoder, "compiles", True)
        finish = _finish_of(states[0], all_weights[0], constants, compiles=compiles)
        if device == "cuda":
            encoder.layers_read = "not compiled" if finish is _finish else "compiled"
        for i, weights in enumerate(all_weights):
            # Only [CLS] of the last layer is read: its queries and its feed-forward block need no
            # other token.
            last = i + 1 == len(stack) and gives_cls_alone(encoder)
            compute: Callable[..., Tensor] = _cls_layer if last else _layer
            if stack[0].gradient_checkpointing and torch.is_grad_enabled():
                compute = partial(checkpoint, compute, use_reentrant=False)
            x_TH = compute(states[-1], weights, constants, flat, finish)
            states = [*states, x_TH] if layers else [x_TH]
    return tuple(states)


def _kept(encoder: Any, dtype: torch.dtype) -> list[Weights] | None:
    weights: list[Weights] | None = copies_of(encoder)
    if weights is None or torch.is_grad_enabled() or weights[0].qkv_weight.dtype != dtype:
        return None
    return weights


def _constants(layer: Any) -> Constants:
    own, out = layer.attention.self, layer.output
    # The GELU modules of layers are different objects and would be compiled separately.
    is_gelu = own.config.hidden_act == "gelu"
    activation = gelu if is_gelu else layer.intermediate.intermediate_act_fn
    rates = (own.dropout.p, out.dropout.p) if layer.training else (0.0, 0.0)
    return Constants(own.attention_head_size, activation, out.LayerNorm.eps, *rates)


def _layer(x_TH: Tensor, w: Weights, c: Constants, flat: FlatRows, finish: Finish) -> Tensor:
    qkv_TK, x_TH = _product(x_TH, w.qkv_weight, w.qkv_bias)
    query, key, value = qkv_TK.view(len(x_TH), 3, -1, c.head_size).unbind(1)
    ends = Ends(flat.cu_seqlens, flat.cu_seqlens, flat.max_length, flat.max_length)
    context_Thd = _attend(query, key, value, ends, c.attention_dropout)
    return finish(x_TH, context_Thd.flatten(1), w, c)


def _cls_layer(x_TH: Tensor, w: Weights, c: Constants, flat: FlatRows, finish: Finish) -> Tensor:
    """x_CH of each row's first token after a layer."""
    sizes = [x_TH.shape[1], 2 * x_TH.shape[1]]
    (q_weight, kv_weight), (q_bias, kv_bias) = w.qkv_weight.split(sizes), w.qkv_bias.split(sizes)
    x_CH = x_TH.index_select(0, flat.first_C)
    query_CH, x_CH = _product(x_CH, q_weight, q_bias)
    kv_TK, _ = _product(x_TH, kv_weight, kv_bias)
    key, value = kv_TK.view(len(x_TH), 2, -1, c.head_size).unbind(1)
    one_each = torch.arange(len(x_CH) + 1, dtype=torch.int32, device=x_CH.device)
    ends = Ends(one_each, flat.cu_seqlens, 1, flat.max_length)
    query = query_CH.view(len(x_CH), -1, c.head_size)
    context_Chd = _attend(query, key, value, ends, c.attention_dropout)
    return finish(x_CH, context_Chd.flatten(1), w, c)


def _attend(query: Tensor, key: Tensor, value: Tensor, ends: Ends, rate: float) -> Tensor:
    attend = flash_attention if query.device.type == "cuda" else attention_row_by_row
    return attend(query, key, value, ends, Reach(causal=False), rate, None)


def _finish(x_TH: Tensor, context_TH: Tensor, w: Weights, c: Constants) -> Tensor:
    shape = (x_TH.shape[1],)
    y_TH, _ = _product(context_TH, w.out_weight, w.out_bias)
    y_TH = dropout(y_TH, c.dropout) + x_TH
    x_TH = layer_norm(y_TH, shape, w.norm_weight, w.norm_bias, c.epsilon)
    y_TK, x_TH = _product(x_TH, w.up_weight, w.up_bias)
    y_TH, _ = _product(c.activation(y_TK), w.down_weight, w.down_bias)
    y_TH = dropout(y_TH, c.dropout) + x_TH
    return layer_norm(y_TH, shape, w.last_norm_weight, w.last_norm_bias, c.epsilon)


def _product(x_TH: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """(y_TK, x_TH): x_TH W' + b, and x_TH for the residual connection."""
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return linear(x_TH, weight, bias), x_TH
    y_TK, x_TH = _Product.apply(x_TH, weight, bias)
    return y_TK, x_TH


class _Product(torch.autograd.Function):
    """`_product` with a backward pass of three launches: one product adds the gradient of x_TH to
    the residual's."""

    @staticmethod
    def forward(ctx: Any, x_TH: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x_TH, weight)
        # Otherwise a missing gradient of the residual would come as zeros, and cost an addition.
        ctx.set_materialize_grads(False)
        # A view: autograd treats an input that is returned itself in a way of its own.
        return linear(x_TH, weight, bias), x_TH.view_as(x_TH)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, y_TK: Tensor, residual_TH: Tensor | None) -> tuple[Tensor, ...]:
        x_TH, weight = ctx.saved_tensors
        # In place: other users of the residual's gradient have already been differentiated.
        of_x = y_TK @ weight if residual_TH is None else residual_TH.addmm_(y_TK, weight)
        # d/dW of x W' is y' x, d/db is the sum over tokens.
        return of_x, y_TK.t() @ x_TH, y_TK.sum(0)


LAYERS_AT_ONCE = 3
"""Layers whose parameters are copied by one operation. Their gradients become complete together;
the first ones should be sent to other workers before the backward pass ends."""


def weights_of(layers: Any, dtype: torch.dtype) -> list[Weights]:
    """Copies of the layers' current parameters, with a gradient if enabled."""
    num, weights = len(Weights._fields), []
    for start in range(0, len(layers), LAYERS_AT_ONCE):
        group = layers[start : start + LAYERS_AT_ONCE]
        parts = [part for layer in group for part in _parameters(layer)]
        sizes = [len(part) for part in parts]
        copies = _Copies.apply(dtype, sizes, *(p for part in parts for p in part))
        weights += [Weights(*copies[i : i + num]) for i in range(0, len(copies), num)]
    return weights


def _parameters(layer: Any) -> list[list[Tensor]]:
    """The parameters of each field of `Weights`, in order."""
    own, out = layer.attention.self, layer.attention.output
    inputs = [own.query, own.key, own.value]
    others = [out.dense, out.LayerNorm, layer.intermediate.dense]
    others += [layer.output.dense, layer.output.LayerNorm]
    parts = [[module.weight for module in inputs], [module.bias for module in inputs]]
    return parts + [[parameter] for m in others for parameter in (m.weight, m.bias)]


class _Copies(torch.autograd.Function):
    """Copies of parameters in another type, concatenated along the first axis in groups of the
    given sizes: one operation forward, one backward."""

    @staticmethod
    def forward(
        ctx: Any, dtype: torch.dtype, sizes: Sequence[int], *parameters: Tensor
    ) -> tuple[Tensor, ...]:
        joined, places, rest = [], [], list(parameters)
        for size in sizes:
            group, rest = rest[:size], rest[size:]
            lengths = [len(parameter) for parameter in group]
            joined.append(group[0].new_empty(sum(lengths), *group[0].shape[1:], dtype=dtype))
            places += joined[-1].split(lengths)
        # One launch for all parameters: a copy of each alone would launch hundreds.
        torch._foreach_copy_(places, parameters)
        ctx.dtype, ctx.sizes = parameters[0].dtype, sizes
        ctx.lengths = [len(parameter) for parameter in parameters]
        return tuple(joined)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        parts, rest = [], ctx.lengths
        for size, gradient in zip(ctx.sizes, gradients, strict=True):
            parts += gradient.split(rest[:size])
            rest = rest[size:]
        copies = [torch.empty_like(part, dtype=ctx.dtype) for part in parts]
        torch._foreach_copy_(copies, parts)
        return None, None, *copies


COMPILE_TOKENS = 100_000_000
"""Tokens that are worth compiling: on an H200 a BERT-base compiles for 4 to 9 s, once to score and
once to train, and saves .03 s and .1 s for a million tokens then (`tests.gpu.ladder`)."""
TRIED_TOKENS = 4096
_compiled: dict[tuple[object, ...], Finish] = {}
_compiling = threading.Lock()


def _finish_of(
    x_TH: Tensor, weights: Weights, constants: Constants, *, compiles: bool = True
) -> Finish:
    """`_finish`; on a GPU compiled, if wanted, for these sizes and any number of tokens."""
    if x_TH.device.type != "cuda" or not compiles:
        return _finish
    # torch guards on both modes: a function compiled under one would be compiled again under the
    # other.
    modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    key = (constants, weights.up_weight.shape, x_TH.dtype, x_TH.device, modes)
    with _compiling:  # once, whichever thread comes first
        if key not in _compiled:
            _compiled[key] = _compiled_or_not(x_TH, weights, constants)
        return _compiled[key]


def _compiled_or_not(x_TH: Tensor, weights: Weights, constants: Constants) -> Finish:
    """`_finish`, compiled if a forward and a backward pass succeed; otherwise the log says why.
    Compiling here, for a fixed number of tokens, gives the same function in every process."""
    shape = (TRIED_TOKENS, x_TH.shape[1])
    inputs = [x_TH.new_zeros(shape).requires_grad_(torch.is_grad_enabled()) for _ in range(2)]
    how: dict[str, Any] = {"fullgraph": True}
    if "isolate_recompiles" in inspect.signature(torch.compile).parameters:
        how["isolate_recompiles"] = True
    else:  # torch 2.11 counts all sizes together and allows 8
        torch._dynamo.config.recompile_limit = 64
    # By default each process would start as many compile threads as there are cores.
    how["options"] = {"compile_threads": 1}
    try:
        compiled: Finish = torch.compile(_finish, **how)
        for tensor in inputs:
            torch._dynamo.mark_dynamic(tensor, 0)
        # A resumed step must draw the same random numbers as without this trial.
        with torch.random.fork_rng([x_TH.device] if x_TH.is_cuda else []):
            y_TH = compiled(inputs[0], inputs[1], weights, constants)
            if y_TH.requires_grad:
                torch.autograd.grad(y_TH.sum(), inputs)
    except Exception as error:
        if isinstance(error, RuntimeError) and is_out_of_memory(error):
            raise
        first_line = [*str(error).strip().splitlines(), ""][0]
        reason = f"{type(error).__name__}: {first_line}"
        _warn_once(f"layers are not compiled, which costs speed: {reason}")
        return _finish
    return compiled


OWN_ATTENTION = frozenset(
    "big_bird deberta-v2 jina-bert longformer longt5 mosaic-bert mpnet roformer".split()
)
"""Kinds with an attention of their own, whose rows are always padded."""


def why_not(encoder: nn.Module) -> str | None:
    """The reason why an encoder cannot read flat rows; None if it can."""
    config: Any = encoder.config
    kind = config.model_type
    if kind in OWN_ATTENTION:
        return f"{kind} has an attention of its own"
    if isinstance(encoder, AsItIs):
        return f"{kind} is computed as transformers has it"
    if config._attn_implementation not in (PLAIN, FUSED):
        return f"its attention implementation is {config._attn_implementation!r}"
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if size % 8 or size > MAX_HEAD:
        return f"its head size {size} is not a multiple of 8 up to {MAX_HEAD}"
    return None


def packs(encoder: nn.Module, autocast: torch.dtype | None) -> bool:
    """True if an encoder reads flat rows under products of type `autocast`: on a GPU with 16 bits,
    or as its attribute `reads_flat_rows` says. If not, the log says why, once."""
    if not fast_paths():
        return False
    device = next(encoder.parameters()).device
    forced = getattr(encoder, "reads_flat_rows", None)
    if forced is not None or device.type != "cuda":
        return bool(forced) and why_not(encoder) is None
    reason = _of_gpu(device) or why_not(encoder)
    if not reason and autocast not in (torch.bfloat16, torch.float16):
        reason = "flash attention needs 16-bit products"
    if reason:
        _warn_once(f"rows are padded, which costs speed: {reason}")
    return reason is None


def products(device: torch.device) -> torch.dtype | None:
    """The autocast type of matrix products on a device; None without autocast."""
    return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None


@cache
def _of_gpu(device: torch.device) -> str | None:
    """The reason why a GPU has no flash attention; None if it has."""
    # Volta and Turing have no flash kernel in torch; ROCm's takes other arguments.
    if torch.version.hip or torch.cuda.get_device_capability(device) < (8, 0):
        return "flash attention needs an NVIDIA GPU of compute capability 8.0 or higher"
    return None


@cache
def _warn_once(reason: str) -> None:
    logger.warning("%s", reason)


def flat_states(
    encoder: nn.Module,
    words: Tensor,
    flat: FlatRows,
    *,
    segments: Tensor | None = None,
    position: Tensor | None = None,
    layers: bool = False,
    cls_alone: bool = False,
) -> tuple[Tensor, ...]:
    """hidden_CLH of the last layer, or of embeddings and all `layers`, of an encoder that `packs`,
    with zeros at padding; only [CLS] (L = 1) with `cls_alone` or if the encoder gives no more.
    `words` are ids_CL, ids_T or vectors x_CLH; segments and positions may also be of T tokens."""
    config: Any = encoder.config

    def pick(x: Tensor) -> Tensor:
        return (x if x.dim() == 1 else x.flatten(0, 1).index_select(0, flat.place_T))[None]

    position_1T = flat.position_T[None] if position is None else pick(position)
    if TYPES[config.model_type].positions == "after-padding":
        # RoBERTa numbers tokens from behind the padding id, whose position is that of padding.
        position_1T = position_1T + (config.pad_token_id + 1)
    inputs_1T = {"position_ids": position_1T}
    inputs_1T["input_ids" if words.dim() < 3 else "inputs_embeds"] = pick(words)
    if segments is not None:
        inputs_1T["token_type_ids"] = pick(segments)
    if is_bert(encoder):
        states = bert_states(encoder, inputs_1T, flat, layers=layers)
    else:
        states = _states(encoder, inputs_1T, flat, layers=layers)
    if gives_cls_alone(encoder):
        return (states[-1][:, None],)
    if cls_alone:
        return tuple(x_TH.index_select(0, flat.first_C)[:, None] for x_TH in states)
    num_rows = len(flat.lengths)

    def padded(x_TH: Tensor) -> Tensor:
        x_NH = x_TH.new_zeros(num_rows * flat.width, x_TH.shape[1])
        return x_NH.index_copy(0, flat.place_T, x_TH).view(num_rows, flat.width, -1)

    return tuple(map(padded, states))


def _states(
    encoder: nn.Module, inputs_1T: dict[str, Tensor], flat: FlatRows, *, layers: bool
) -> tuple[Tensor, ...]:
    """x_TH of the last layer, or of embeddings and all `layers`, computed by transformers."""
    output = encoder(
        # With four axes transformers uses it unchanged and does not create a T x T mask.
        attention_mask=torch.ones(1, 1, 1, 1, dtype=torch.bool, device=flat.place_T.device),
        cu_seq_lens_q=flat.cu_seqlens,
        cu_seq_lens_k=flat.cu_seqlens,
        max_length_q=flat.max_length,
        max_length_k=flat.max_length,
        **inputs_1T,
        **({"output_hidden_states": True} if layers else {}),
    )
    states = (*(output.hidden_states[:-1] if layers else ()), output.last_hidden_state)
    return tuple(x_1TH[0] for x_1TH in states)
