"""Encoders over a flat row of tokens: no computation for padding, and as few calls as the token
budget allows.

Encoders of transformers pass the boundaries of rows (`cu_seq_lens_q`) to their attention function
and accept explicit positions; all other operations are token by token. This is used on GPUs with
16-bit products. Elsewhere, and for encoders that cannot, rows are padded.
"""

import logging
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from rank_core.encoders.attention import FUSED, PLAIN
from rank_core.encoders.backbone_types import TYPES
from rank_core.encoders.cls_only import gives_cls_alone
from rank_core.encoders.flat_attention import MAX_HEAD
from rank_core.encoders.flat_bert import bert_states, is_bert
from rank_core.encoders.flat_rows import FlatRows
from rank_core.machine import fast_paths

OWN_ATTENTION = {
    "big_bird": "attends in blocks of padded rows",
    "deberta-v2": "adds learned weights of distances to its attention",
    "jina-bert": "adds distances to its attention",
    "longformer": "attends in windows over padded rows",
    "longt5": "attends in blocks of padded rows",
    "mosaic-bert": "adds distances to its attention",
    "mpnet": "adds learned weights of distances to its attention",
    "roformer": "has an attention that cannot be swapped",
}
"""{kind whose rows are always padded: why}."""

logger = logging.getLogger(__name__)


def why_not(encoder: nn.Module) -> str | None:
    """The reason why an encoder cannot read flat rows; None if it can."""
    config: Any = encoder.config
    kind = config.model_type
    if kind in OWN_ATTENTION:
        return f"{kind} {OWN_ATTENTION[kind]}"
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
    if autocast not in (torch.bfloat16, torch.float16):
        reason = "flash attention needs 16-bit products"
    if reason:
        _warn_once(reason)
    return reason is None


def products(device: torch.device) -> torch.dtype | None:
    """The autocast type of matrix products on a device; None without autocast."""
    return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None


@cache
def _of_gpu(device: torch.device) -> str | None:
    """The reason why a GPU has no flash attention; None if it has."""
    if torch.version.hip:
        return "flash attention over rows of unequal length is untested on AMD GPUs"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "flash attention needs a GPU of compute capability 8.0 or higher"
    return None


@cache
def _warn_once(reason: str) -> None:
    logger.warning("rows are padded, which costs speed: %s", reason)


def flat_states(
    encoder: nn.Module,
    words: Tensor,
    flat: FlatRows,
    *,
    segments_CL: Tensor | None = None,
    position_CL: Tensor | None = None,
    layers: bool = False,
    cls_alone: bool = False,
) -> tuple[Tensor, ...]:
    """hidden_CLH of the last layer, or of embeddings and all `layers`, of an encoder that `packs`,
    with zeros at padding; only [CLS] (L = 1) with `cls_alone` or if the encoder gives no more.

    `words` are ids_CL or vectors x_CLH.
    """
    config: Any = encoder.config

    def pick(x_CL: Tensor) -> Tensor:
        return x_CL.flatten(0, 1).index_select(0, flat.place_T)[None]

    position_1T = flat.position_T[None] if position_CL is None else pick(position_CL)
    if TYPES[config.model_type].positions == "after-padding":
        position_1T = position_1T + (config.pad_token_id + 1)
    inputs_1T = {"position_ids": position_1T}
    inputs_1T["input_ids" if words.dim() == 2 else "inputs_embeds"] = pick(words)
    if segments_CL is not None:
        inputs_1T["token_type_ids"] = pick(segments_CL)
    if is_bert(encoder):
        states = bert_states(encoder, inputs_1T, flat, layers=layers)
    else:
        states = _states(encoder, inputs_1T, flat, layers=layers)
    if gives_cls_alone(encoder):
        return (states[-1][:, None],)
    if cls_alone:
        return tuple(x_TH.index_select(0, flat.first_C)[:, None] for x_TH in states)
    return tuple(padded_again(x_TH, flat, words.shape) for x_TH in states)


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


def padded_again(x_TH: Tensor, flat: FlatRows, shape: torch.Size) -> Tensor:
    """x_CLH of the tokens, with zeros at padding."""
    num_rows, length = shape[:2]
    x_NH = x_TH.new_zeros(num_rows * length, x_TH.shape[1])
    return x_NH.index_copy(0, flat.place_T, x_TH).view(num_rows, length, -1)
