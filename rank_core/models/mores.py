"""MORES+: a query that looks at every token of every chunk (Gao & Callan 2022, of the modules of
MORES, Gao et al. 2020).

Chunks are encoded without the query, so before any query is known; no vector per chunk stands
between the query and what it looks for.
"""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from rank_core.backbones import Backbone
from rank_core.batches import ChunkBatch, EncoderInput, PairEncoder
from rank_core.config import Model, TrialConfig
from rank_core.models.apart_pairs import ApartPairs
from rank_core.models.interaction_block import interaction_blocks
from rank_core.models.ranker import Ranker
from rank_core.token_store import TokenStore

NUM_BLOCKS = 2


class Mores(Ranker):
    """score = head([CLS] of the query after the last interaction block).

    The encoder's lower layers read the query, all of them the chunks, and the blocks take the place
    of its `NUM_BLOCKS` upper ones for the query (of half the layers where there are fewer than
    four). A block sees the tokens of all chunks as one set: their order is not read.
    """

    label = "MORES+"
    paper = "Gao & Callan 2022"
    family = "long context"
    by_chunks = False
    reads_tokens = True
    one_chunk_is_firstp = False

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        self.num_layers = int(encoder.config.num_hidden_layers)  # type: ignore[union-attr,arg-type]
        number = max(1, min(NUM_BLOCKS, self.num_layers // 2))
        self.aggregator = interaction_blocks(encoder, backbone.kind, number, settings.dropout)

    @classmethod
    def reader(cls, config: TrialConfig, backbone: Backbone, tokens: TokenStore) -> PairEncoder:
        """Query and chunks as rows of their own."""
        return ApartPairs(tokens, config.chunking, cls.first_chunk_only, backbone)

    def forward(self, batch: ChunkBatch) -> Tensor:
        """score_B of a batch of documents, each a query row and chunk rows."""
        lower_CLH, last_CLH = self.states(batch.inputs)
        mask_CL = batch.inputs.attention_mask_CL.bool()
        starts = [0, *accumulate(batch.counts[:-1])]
        x_BQH, mask_BQ = lower_CLH[starts], mask_CL[starts]
        longest = int(mask_BQ.sum(1).max())
        x_BQH, mask_BQ = x_BQH[:, :longest], mask_BQ[:, :longest]
        text_BTH, text_mask_BT = self.texts(last_CLH, mask_CL, batch.counts)
        for block in self.aggregator:
            x_BQH = block(x_BQH, mask_BQ, text_BTH, text_mask_BT)
        with torch.autocast(x_BQH.device.type, enabled=False):
            return self.score(x_BQH[:, 0].to(torch.promote_types(x_BQH.dtype, torch.float32)))

    def states(self, inputs: EncoderInput) -> tuple[Tensor, Tensor]:
        """(lower_CLH, last_CLH): what the blocks take up of a query, and all layers' output."""
        segments = inputs.token_type_ids_CL
        output = self.encoder(
            input_ids=inputs.input_ids_CL,
            attention_mask=inputs.attention_mask_CL,
            output_hidden_states=True,
            **({} if segments is None else {"token_type_ids": segments}),
        )
        length = inputs.input_ids_CL.shape[1]  # some encoders pad rows to whole blocks
        lower_CLH = output.hidden_states[self.num_layers - len(self.aggregator)]
        return lower_CLH[:, :length], output.last_hidden_state[:, :length]

    def texts(
        self, last_CLH: Tensor, mask_CL: Tensor, counts: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """(text_BTH, mask_BT): all tokens of a document's chunks, one chunk behind the other."""
        rows = zip(last_CLH.split(list(counts)), mask_CL.split(list(counts)), strict=True)
        texts = [row_CLH[1:][row_CL[1:]] for row_CLH, row_CL in rows]
        lengths_B = torch.tensor([len(text) for text in texts], device=last_CLH.device)
        text_BTH = pad_sequence(texts, batch_first=True)
        place_T = torch.arange(text_BTH.shape[1], device=last_CLH.device)
        return text_BTH, place_T < lengths_B[:, None]
