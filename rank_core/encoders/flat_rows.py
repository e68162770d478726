"""The rows of a batch as one flat row of tokens, concatenated without padding."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class FlatRows(NamedTuple):
    """Positions of the T tokens of a padded batch (C, L), row by row. Lengths are kept on the host:
    reading them back from a GPU would block."""

    place_T: Tensor  # int64: position in the batch, row * L + column
    position_T: Tensor  # int64: position in the row, from 0
    cu_seqlens: Tensor  # int32 (C + 1): the first token of each row, and T
    first_C: Tensor  # int64: the first token of each row, its [CLS]
    lengths: tuple[int, ...]  # tokens of each row
    max_length: int

    def to(self, device: torch.device) -> "FlatRows":
        """The rows on a device, copied without blocking."""
        moved = (x.to(device, non_blocking=True) if isinstance(x, Tensor) else x for x in self)
        return FlatRows(*moved)  # type: ignore[arg-type]

    def pinned(self) -> "FlatRows":
        """The rows in page-locked memory, for asynchronous copies to a GPU."""
        pinned = (x.pin_memory() if isinstance(x, Tensor) else x for x in self)
        return FlatRows(*pinned)  # type: ignore[arg-type]


def flat_rows(mask_CL: NDArray[np.int64], *, count_padding: bool = False) -> FlatRows:
    """The rows of a batch whose mask is 1 at tokens; every row has at least one. `count_padding`
    says whether padding within a row takes a position."""
    place_T = np.flatnonzero(mask_CL)
    lengths = mask_CL.sum(1)
    ends = lengths.cumsum()
    starts = ends - lengths
    if count_padding:
        position_T = place_T % mask_CL.shape[1]
    else:
        position_T = np.arange(len(place_T)) - starts.repeat(lengths)
    return FlatRows(
        torch.from_numpy(place_T),
        torch.from_numpy(position_T),
        torch.from_numpy(np.concatenate([starts[:1], ends]).astype(np.int32)),
        torch.from_numpy(starts),
        tuple(lengths.tolist()),
        int(lengths.max()),
    )


def rows_of_lengths(lengths: Sequence[int], width: int) -> FlatRows:
    """Rows of the given lengths, padded at the end to `width`."""
    real_CL = np.arange(width) < np.asarray(lengths)[:, None]
    return flat_rows(real_CL.astype(np.int64))
