"""Which places of a batch are query and which are text, and how similar the tokens there are.

Shapes: B documents, C rows of the encoder, L places of a row, Q query tokens, D tokens of a whole
document, H numbers of a vector.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from rank_core.chunking.batches import NUM_SPECIAL, ChunkBatch


class Terms(NamedTuple):
    """Where the query (in a document's first row) and the document (in all its rows) are.

    A place is a row times L plus a column. Padding has place 0 and a false mask; Q and D are at
    least 1, so that nothing downstream meets an empty axis.
    """

    query_BQ: Tensor
    query_mask_BQ: Tensor
    text_BD: Tensor
    text_mask_BD: Tensor


def terms_of(batch: ChunkBatch) -> Terms:
    """The places of a batch of documents."""
    inputs, device = batch.inputs, batch.inputs.input_ids_CL.device
    width = inputs.input_ids_CL.shape[1]
    counts = torch.tensor(batch.counts, device=device)
    first_B = counts.cumsum(0) - counts
    query_length_B = inputs.query_length_C[first_B]
    text_length_C = inputs.attention_mask_CL.sum(1) - inputs.query_length_C - NUM_SPECIAL

    column_L = torch.arange(width, device=device)
    start_C1 = (inputs.query_length_C + 2)[:, None]
    text_mask_CL = (column_L >= start_C1) & (column_L < start_C1 + text_length_C[:, None])
    owner_C = torch.arange(len(counts), device=device).repeat_interleave(counts)
    text_length_B = torch.zeros_like(counts).index_add_(0, owner_C, text_length_C)

    num_query, num_text = torch.stack([query_length_B.max(), text_length_B.max()]).tolist()
    column_Q = torch.arange(max(1, num_query), device=device)
    query_mask_BQ = column_Q < query_length_B[:, None]
    query_BQ = (first_B[:, None] * width + 1 + column_Q).where(query_mask_BQ, 0)
    text_mask_BD = torch.arange(max(1, num_text), device=device) < text_length_B[:, None]
    # Rows of one document are neighbours, so its places in order are its tokens in order.
    text_BD = torch.zeros_like(text_mask_BD, dtype=torch.long)
    text_BD[text_mask_BD] = text_mask_CL.flatten().nonzero().squeeze(1)
    return Terms(query_BQ, query_mask_BQ, text_BD, text_mask_BD)


def take(x_CL: Tensor, place_BT: Tensor) -> Tensor:
    """x_BT (or x_BTH of an x_CLH): what stands at some places of a batch."""
    return x_CL.flatten(0, 1)[place_BT]


def at_least_fp32(x: Tensor) -> Tensor:
    """`x` in fp32, or in its own type where that is wider."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def cosines(query_BQH: Tensor, text_BDH: Tensor) -> Tensor:
    """cos_BQD, in fp32 whatever surrounds it; a zero vector is like nothing (1e-9 is added to each
    norm, as CEDR does)."""
    with torch.autocast(query_BQH.device.type, enabled=False):
        query, text = (at_least_fp32(x) for x in (query_BQH, text_BDH))
        query = query / (query.norm(dim=-1, keepdim=True) + 1e-9)
        text = text / (text.norm(dim=-1, keepdim=True) + 1e-9)
        return query @ text.transpose(1, 2)


def pair_mask(terms: Terms) -> Tensor:
    """mask_BQD: a real query token beside a real token of the document."""
    return terms.query_mask_BQ[:, :, None] & terms.text_mask_BD[:, None, :]
