"""MORES+: a query that looks at every token of every chunk (Gao & Callan 2022, of the modules of
MORES, Gao et al. 2020).

Chunks are encoded without the query, so before any query is known; no vector per chunk stands
between the query and what it looks for.
"""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from rank_core.chunking.batches import ChunkBatch, PairEncoder
from rank_core.chunking.token_store import TokenStore
from rank_core.encoders.backbone_types import Backbone
from rank_core.models.apart_pairs import ApartPairs
from rank_core.models.interaction_block import interaction_blocks
from rank_core.models.layer_states import layer_states
from rank_core.models.ranker import Ranker
from rank_core.settings.config import Model, TrialConfig

NUM_BLOCKS = 2


class Mores(Ranker):
    """score = head([CLS] of the query after the last interaction block).

    The encoder's lower layers read the query, all of them the chunks, and the blocks take the place
    of its `NUM_BLOCKS` upper ones for the query, of one where it has fewer than four layers. A
    block sees the tokens of all chunks as one set: their order is not read.
    """

    label = "MORES+"
    paper = "Gao & Callan 2022"
    family = "long context"
    by_chunks = False
    reads_tokens = True
    one_chunk_is_firstp = False

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        num_layers = int(encoder.config.num_hidden_layers)  # type: ignore[union-attr,arg-type]
        number = max(1, min(NUM_BLOCKS, num_layers // 2))
        self.aggregator = interaction_blocks(encoder, backbone.kind, number, settings.dropout)

    @classmethod
    def reader(cls, config: TrialConfig, backbone: Backbone, tokens: TokenStore) -> PairEncoder:
        """Query and chunks as rows of their own."""
        return ApartPairs(tokens, config.chunking, cls.first_chunk_only, backbone)

    def forward(self, batch: ChunkBatch) -> Tensor:
        """score_B of a batch of documents, each a query row and chunk rows."""
        states = layer_states(self.encoder, batch.inputs)
        lower_CLH, last_CLH = states[-1 - len(self.aggregator)], states[-1]
        mask_CL, counts = batch.inputs.attention_mask_CL.bool(), list(batch.counts)
        mask_BQ, x_BQH = (
            torch.stack([rows[0] for rows in of_C.split(counts)]) for of_C in (mask_CL, lower_CLH)
        )
        longest = int(mask_BQ.sum(1).max())
        mask_BQ, x_BQH = mask_BQ[:, :longest], x_BQH[:, :longest]
        text_BTH, text_mask_BT = of_chunks(last_CLH, counts), of_chunks(mask_CL, counts)
        # What is not seen is no number in some encoders.
        text_BTH = text_BTH.masked_fill(~text_mask_BT[:, :, None], 0.0)
        for block in self.aggregator:
            x_BQH = block(x_BQH, mask_BQ, text_BTH, text_mask_BT)
        with torch.autocast(x_BQH.device.type, enabled=False):
            return self.score(x_BQH[:, 0].to(torch.promote_types(x_BQH.dtype, torch.float32)))


def of_chunks(x_CL: Tensor, counts: list[int]) -> Tensor:
    """x_BT: what a document's chunk rows have at their places, one row behind the other, with zeros
    where there is no chunk; its first row is the query's."""
    x_BPL = pad_sequence(x_CL.split(counts), batch_first=True)
    return x_BPL[:, 1:].flatten(1, 2)
