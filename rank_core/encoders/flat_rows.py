"""The rows of a batch as one flat row of tokens, concatenated without padding, and attention within
its rows: tokens attend only to their own row.

On a GPU torch's flash kernel for rows of unequal length is used directly, because
`torch.nn.attention.varlen` has no dropout. On a CPU it is computed row by row, slowly, for tests of
layout, positions and gradients.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention


class FlatRows(NamedTuple):
    """Positions of the T tokens of a batch of C rows and L columns, row by row. Lengths are kept on
    the host: reading them back from a GPU would block."""

    place_T: Tensor  # int64: position in the batch, row * L + column
    position_T: Tensor  # int64: position in the row, from 0
    cu_seqlens: Tensor  # int32 (C + 1): the first token of each row, and T
    first_C: Tensor  # int64: the first token of each row, its [CLS]
    lengths: tuple[int, ...]  # tokens of each row
    max_length: int
    width: int  # L


Tensors = TypeVar("Tensors")


def on(device: torch.device, parts: Tensors) -> Tensors:
    """A tensor of the host, or a named tuple with its tensors, also those of tuples in it, on a
    device; copied to a GPU without blocking."""
    if device.type == "cpu":
        return parts
    on_gpu = device.type == "cuda"
    # A copy of memory that is not page-locked may wait.
    parts = _each_tensor(Tensor.pin_memory, parts) if on_gpu else parts
    return _each_tensor(lambda x: x.to(device, non_blocking=on_gpu), parts)


def host_block(size: int, device: torch.device) -> tuple[Tensor, NDArray[np.int64]]:
    """Numbers of int64, not yet written, in memory from which a copy to `device` does not wait; and
    the same memory as an array."""
    if device.type == "cuda":
        block = torch.empty(size, dtype=torch.int64, pin_memory=True)
        return block, block.numpy()
    numbers = np.empty(size, np.int64)
    return torch.from_numpy(numbers), numbers


def _each_tensor(function: Callable[[Tensor], Tensor], parts: Any) -> Any:
    if hasattr(parts, "_fields"):
        return type(parts)(*(_each_tensor(function, part) for part in parts))
    return function(parts) if isinstance(parts, Tensor) else parts


def flat_rows(mask_CL: NDArray[np.int64]) -> FlatRows:
    """The rows of a batch whose mask is 1 at tokens; every row has at least one."""
    place_T = np.flatnonzero(mask_CL)
    lengths = mask_CL.sum(1)
    ends = lengths.cumsum()
    starts = ends - lengths
    position_T = np.arange(len(place_T)) - starts.repeat(lengths)
    return FlatRows(
        torch.from_numpy(place_T),
        torch.from_numpy(position_T),
        torch.from_numpy(np.concatenate([starts[:1], ends]).astype(np.int32)),
        torch.from_numpy(starts),
        tuple(lengths.tolist()),
        int(lengths.max()),
        mask_CL.shape[1],
    )


def rows_of_lengths(lengths: Sequence[int], width: int) -> FlatRows:
    """Rows of the given lengths, padded at the end to `width`."""
    real_CL = np.arange(width) < np.asarray(lengths)[:, None]
    return flat_rows(real_CL.astype(np.int64))


MAX_HEAD = 192  # wider heads have no backward pass with dropout on some GPUs


class Ends(NamedTuple):
    """The boundaries of the queries and keys of C rows; a row may have fewer queries."""

    query: Tensor  # int32 (C + 1)
    key: Tensor
    max_query: int
    max_key: int


class Reach(NamedTuple):
    """The keys that a query attends to, by distance; -1: no limit."""

    causal: bool
    left: int = -1
    right: int = -1


def flat_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    *,
    cu_seq_lens_q: Tensor,
    cu_seq_lens_k: Tensor,
    max_length_q: int,
    max_length_k: int,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """(output_1Thd, None) for query, key and value of shape (1, heads, T, d), with the signature of
    transformers' attention functions. The boundaries of rows replace the mask, which is unused."""
    # transformers' rule: a module says what it is, and one that says nothing is a decoder.
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    left = (sliding_window or 0) - 1  # the window includes the token itself
    reach = Reach(causal, left, 0 if causal else left)
    ends = Ends(cu_seq_lens_q, cu_seq_lens_k, max_length_q, max_length_k)
    device = query.device.type
    if torch.is_autocast_enabled(device):  # autocast does not cover this kernel
        dtype = torch.get_autocast_dtype(device)
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    attend = flash_attention if device == "cuda" else attention_row_by_row
    # The kernel wants tokens first; there is one flat row, so that the first axis goes.
    query_Thd, key_Thd, value_Thd = (x[0].transpose(0, 1) for x in (query, key, value))
    output_Thd = attend(query_Thd, key_Thd, value_Thd, ends, reach, dropout, scaling)
    return output_Thd[None], None


def flash_attention(
    query_Thd: Tensor,
    key_Thd: Tensor,
    value_Thd: Tensor,
    ends: Ends,
    reach: Reach,
    dropout: float,
    scale: float | None,
) -> Tensor:
    """output_Thd in 16 bits on a GPU, with a gradient."""
    return torch.ops.aten._flash_attention_forward(
        query_Thd,
        key_Thd,
        value_Thd,
        ends.query,
        ends.key,
        ends.max_query,
        ends.max_key,
        dropout,
        reach.causal,
        False,  # return_debug_mask
        scale=scale,
        window_size_left=reach.left,
        window_size_right=reach.right,
    )[0]


def attention_row_by_row(
    query_Thd: Tensor,
    key_Thd: Tensor,
    value_Thd: Tensor,
    ends: Ends,
    reach: Reach,
    dropout: float,
    scale: float | None,
) -> Tensor:
    """As `flash_attention`, on any device and in any precision; reads row lengths on the host."""
    num_queries, num_keys = ends.query.diff().tolist(), ends.key.diff().tolist()
    outputs = []
    for query, key, value in zip(
        query_Thd.transpose(0, 1).split(num_queries, dim=1),
        key_Thd.transpose(0, 1).split(num_keys, dim=1),
        value_Thd.transpose(0, 1).split(num_keys, dim=1),
        strict=True,
    ):
        seen_QK = _seen(query.shape[1], key.shape[1], reach).to(query.device)
        output = scaled_dot_product_attention(
            query[None], key[None], value[None], seen_QK, dropout, scale=scale, enable_gqa=True
        )
        outputs.append(output[0].transpose(0, 1))
    return torch.cat(outputs)


def _seen(num_queries: int, num_keys: int, reach: Reach) -> Tensor:
    """mask_QK of one row; its last query is at the position of its last key."""
    # As the flash kernel aligns them: bottom right.
    place_Q = torch.arange(num_keys - num_queries, num_keys)
    distance_QK = torch.arange(num_keys) - place_Q[:, None]
    seen_QK = torch.ones_like(distance_QK, dtype=torch.bool)
    if reach.left >= 0:
        seen_QK &= distance_QK >= -reach.left
    if reach.causal or reach.right >= 0:
        seen_QK &= distance_QK <= max(0, reach.right)
    return seen_QK


AttentionFunction = Callable[..., tuple[Tensor, None]]


def or_flat(padded: AttentionFunction) -> AttentionFunction:
    """The attention function that uses `flat_attention` for flat rows and `padded` for others. A
    single function makes recomputation under checkpointing use the same path.
    """

    def attention(module: nn.Module, *args: Any, **extra: Any) -> tuple[Tensor, None]:
        function = flat_attention if "cu_seq_lens_q" in extra else padded
        return function(module, *args, **extra)

    return attention
