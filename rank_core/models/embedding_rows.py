"""The rows of texts that are encoded alone, and their states: the one place that decides their
positions and global tokens, for the bi-encoder, late interaction, dense retrieval and OpenVINO's
graphs alike."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rank_core.chunking.encoder_input import EncoderInput
from rank_core.encoders.e5 import ORIGINAL_POSITIONS
from rank_core.encoders.embedder import Embedder
from rank_core.encoders.flat_rows import FlatRows, on, rows_of_lengths
from rank_core.encoders.packed import flat_states, packs
from rank_core.models.ranker import own_lengths


class Around(NamedTuple):
    """The tokens of a row before and behind its text, and what the text is tokenised with."""

    start: tuple[int, ...]
    end: tuple[int, ...]
    before: str = ""

    @property
    def num_tokens(self) -> int:
        """The tokens of a row without its text."""
        return len(self.start) + len(self.end)


class RowEnd(NamedTuple):
    """The tokens of a row with prompt and special tokens, and what follows a shorter one."""

    limit: int
    pad_id: int


class TextRows(NamedTuple):
    """Rows of single texts."""

    ids_CW: Tensor
    mask_CW: Tensor
    flat: FlatRows


class DistinctQueries(NamedTuple):
    """The distinct queries of a batch."""

    rows: list[int]  # for each, the first row with it
    of_C: Tensor  # int64: for each row the place of its query


def distinct_queries(inputs: EncoderInput) -> DistinctQueries:
    """The queries of a batch, of which its rows share few; each is encoded once."""
    rows = sorted(set(inputs.query_rows))
    at = {row: place for place, row in enumerate(rows)}
    return DistinctQueries(
        rows, on(inputs.device, torch.tensor([at[row] for row in inputs.query_rows]))
    )


def query_rows(inputs: EncoderInput, rows: Sequence[int], around: Around, end: RowEnd) -> TextRows:
    """The queries of some rows."""
    row_Q = on(inputs.device, torch.tensor(rows))
    lengths = [inputs.sizes[row].num_query for row in rows]
    ids_QL, length_Q = inputs.input_ids_CL[row_Q], inputs.query_length_C[row_Q]
    return _rows(ids_QL, torch.ones_like(row_Q), length_Q, around, end, lengths)


def text_rows(
    inputs: EncoderInput, around: Around, end: RowEnd, rows: Sequence[int] | None = None
) -> TextRows:
    """The texts of some rows, or of all."""
    sizes = inputs.sizes if rows is None else [inputs.sizes[row] for row in rows]
    lengths = [size.num_text for size in sizes]
    ids_CL, query_length_C = inputs.input_ids_CL, inputs.query_length_C
    if rows is not None:
        row_C = on(inputs.device, torch.tensor(rows))
        ids_CL, query_length_C = ids_CL[row_C], query_length_C[row_C]
    length_C = on(inputs.device, torch.tensor(lengths))
    return _rows(ids_CL, query_length_C + 2, length_C, around, end, lengths)


def _rows(
    ids_CL: Tensor,
    first_C: Tensor,
    length_C: Tensor,
    around: Around,
    end: RowEnd,
    lengths: Sequence[int],
) -> TextRows:
    """Rows with the tokens `around` their texts. A row's text is the `length_C` tokens of `ids_CL`
    from `first_C` on, truncated to the limit; `lengths` is `length_C` on the host."""
    before, behind = len(around.start), len(around.end)
    limit = end.limit - around.num_tokens
    least = 0 if around.num_tokens else 1  # a row without a token has no vector
    end_C1 = (before + length_C.clamp(min=least, max=limit))[:, None]
    own = [before + max(least, min(length, limit)) + behind for length in lengths]
    place_W = torch.arange(max(own), device=ids_CL.device)
    # A gather in place of slices: rows begin at different columns, and slices would need the host.
    source_CW = (place_W - before + first_C[:, None]).clamp(0, ids_CL.shape[1] - 1)
    row_CW = ids_CL.gather(1, source_CW)
    row_CW = row_CW.where(place_W < end_C1, end.pad_id)
    for place, token in enumerate(around.end):
        row_CW = row_CW.where(place_W != end_C1 + place, token)
    row_CW[:, :before] = on(ids_CL.device, torch.tensor(around.start, dtype=torch.long))
    flat = on(ids_CL.device, rows_of_lengths(own, max(own)))
    return TextRows(row_CW, (place_W < end_C1 + behind).long(), flat)


def row_states(
    encoder: nn.Module,
    facts: Embedder,
    ids_CL: Tensor,
    mask_CL: Tensor,
    flat: FlatRows,
    products: torch.dtype | None,
) -> Tensor:
    """hidden_CLH of the last layer, with products of a type; each row is independent of the
    others."""
    position_CL = _positions(mask_CL, facts.position_step)
    if packs(encoder, products):
        [hidden_CLH] = flat_states(encoder, ids_CL, flat, position=position_CL)
        return hidden_CLH
    extra: dict[str, Any] = own_lengths(encoder, flat)
    if position_CL is not None:
        extra["position_ids"] = position_CL
    if getattr(encoder.config, "model_type", "") == "longformer":
        # No query tokens to attend globally; sentence-transformers has no global token.
        extra["global_attention_mask"] = torch.zeros_like(mask_CL)
        extra["global_attention_mask"][:, 0] = 0 if facts.is_stated else 1
    output = encoder(input_ids=ids_CL, attention_mask=mask_CL, **extra)
    hidden: Tensor = output.last_hidden_state
    return hidden


def _positions(mask_CL: Tensor, step: int) -> Tensor | None:
    """The positions of rows, of which short ones are spread over the table; None: as they are."""
    if step == 1:
        return None
    # E5-Base-4k uses the batch's length; a row's own makes its vector independent.
    short_C = mask_CL.sum(1) <= ORIGINAL_POSITIONS
    step_C = torch.where(short_C, step, 1)
    place_L = torch.arange(mask_CL.shape[1], device=mask_CL.device)
    return place_L * step_C[:, None] * mask_CL


class SpreadEncoder(nn.Module):
    """An encoder with the positions of an embedding model's rows, for a graph of it."""

    def __init__(self, encoder: nn.Module, step: int) -> None:
        super().__init__()
        self.encoder, self.step, self.config = encoder, step, encoder.config

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        """What the encoder gives."""
        position_CL = _positions(attention_mask, self.step)
        return self.encoder(
            input_ids=input_ids, attention_mask=attention_mask, position_ids=position_CL
        )
