"""Blocks as encoder input, and passages put together from chosen blocks without leaving the device.

Shapes: C blocks of all documents, L tokens.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rank_core.chunking.batches import ChunkBatch, EncoderInput
from rank_core.models.key_blocks.selectors import Passages


class BlockRow(NamedTuple):
    """What the host knows of one row [CLS] query [SEP] block [SEP]."""

    num_query_tokens: int
    num_tokens: int  # of the block

    def __len__(self) -> int:
        return self.num_query_tokens + self.num_tokens + 3


class BlockBatch(ChunkBatch):
    """A batch whose rows are blocks that a model has yet to choose from."""

    rows: tuple[BlockRow, ...]
    passages: tuple[Passages, ...]  # of each document

    def __new__(
        cls, batch: ChunkBatch, rows: tuple[BlockRow, ...], passages: tuple[Passages, ...]
    ) -> "BlockBatch":
        """A batch with what the choice needs."""
        self = super().__new__(cls, *batch)
        self.rows, self.passages = rows, passages
        return self

    def to(self, device: torch.device) -> "BlockBatch":
        """The same on a device."""
        return BlockBatch(super().to(device), self.rows, self.passages)


def some_rows(inputs: EncoderInput, rows: Tensor, width: int) -> EncoderInput:
    """Some rows of an input, of which the longest has `width` tokens."""
    return EncoderInput(
        inputs.input_ids_CL[rows, :width],
        inputs.attention_mask_CL[rows, :width],
        None if inputs.token_type_ids_CL is None else inputs.token_type_ids_CL[rows, :width],
        inputs.query_length_C[rows],
    )


def with_segments(inputs: EncoderInput, wanted: bool) -> EncoderInput:
    """The same for an encoder that tells query and text apart by segment, or for one that does
    not."""
    if wanted == (inputs.token_type_ids_CL is not None):
        return inputs
    place_L = torch.arange(inputs.input_ids_CL.shape[1], device=inputs.input_ids_CL.device)
    of_text_CL = (place_L >= inputs.query_length_C[:, None] + 2) & (inputs.attention_mask_CL == 1)
    return inputs._replace(token_type_ids_CL=of_text_CL.long() if wanted else None)


def passages_of(
    batch: BlockBatch, chosen: Sequence[Sequence[tuple[int, int]]], pad_id: int
) -> ChunkBatch:
    """Each document's passages, made of its `chosen` blocks: (block of the document, tokens)."""
    width = batch.inputs.input_ids_CL.shape[1]
    places: list[NDArray[np.int64]] = []
    counts, sources, first = [], [], 0
    for count, passages, blocks in zip(batch.counts, batch.passages, chosen, strict=True):
        num_query_tokens, num_tokens = batch.rows[first]
        start = num_query_tokens + 2
        text = [np.arange(size) + (first + block) * width + start for block, size in blocks]
        text_T = np.concatenate([np.zeros(0, dtype=np.int64), *text])
        before = np.arange(start) + first * width
        after = np.array([first * width + start + num_tokens])
        spans = passages.spans(len(text_T))
        places += [np.concatenate([before, text_T[s:e], after]) for s, e in spans]
        counts.append(len(spans))
        sources += [first] * len(spans)
        first += count
    return ChunkBatch(_gather(batch.inputs, places, sources, pad_id), tuple(counts))


def _gather(
    inputs: EncoderInput, places: Sequence[NDArray[np.int64]], sources: list[int], pad_id: int
) -> EncoderInput:
    """Rows of tokens at `places` of the flat input; other facts are those of the `sources` rows."""
    place_CL = np.zeros((len(places), max(map(len, places))), dtype=np.int64)
    real_CL = np.zeros(place_CL.shape, dtype=bool)
    for row, place in enumerate(places):
        place_CL[row, : len(place)] = place
        real_CL[row, : len(place)] = True
    device = inputs.input_ids_CL.device
    at, real = torch.from_numpy(place_CL).to(device), torch.from_numpy(real_CL).to(device)
    segments = inputs.token_type_ids_CL
    return EncoderInput(
        inputs.input_ids_CL.flatten()[at].masked_fill(~real, pad_id),
        real.long(),
        None if segments is None else segments.flatten()[at].masked_fill(~real, 0),
        inputs.query_length_C[torch.tensor(sources, device=device)],
    )
