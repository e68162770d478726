"""The states of an embedding model's rows: the one place that decides their positions and global
tokens, for the bi-encoder, dense retrieval and OpenVINO's graphs alike."""

from typing import Any

import torch
from torch import Tensor, nn

from rank_core.encoders.e5 import ORIGINAL_POSITIONS
from rank_core.encoders.embedder import Embedder
from rank_core.encoders.flat_rows import FlatRows
from rank_core.encoders.packed import flat_states, packs
from rank_core.models.ranker import own_lengths


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
