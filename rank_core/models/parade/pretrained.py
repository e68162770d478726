"""PARADE-Transformer with a pretrained aggregator (PRETR and PRETR-Q of Boytsov et al. 2022)."""

from itertools import accumulate

import torch
from torch import Tensor, nn

from rank_core.chunking.batches import ChunkBatch
from rank_core.chunking.chunks import document_spans
from rank_core.encoders.backbone_types import Backbone
from rank_core.models.parade.second_encoder import SecondEncoder
from rank_core.models.parade.vector_sequence import (
    Part,
    input_size,
    projection,
    random_special,
    read_first,
)
from rank_core.models.ranker import pad_chunks
from rank_core.models.row_vectors import row_vectors
from rank_core.settings.config import Model, TrialConfig


class ParadePretrained(SecondEncoder):
    """A pretrained encoder (`model.aggregator`) over [C, SEP, cls_1 .. cls_n, SEP].

    Chunk vectors pass a linear map where the sizes differ; C and SEP are new, N(0, 1) / sqrt(H);
    C's output is scored. The papers' aggregators are cross-encoder/ms-marco-MiniLM-L-{2,4,6}-v2.
    """

    label = "PARADE-Transformer-pretrained"
    options = ("aggregator", "pool", "quirks")
    OTHER_PLACES = 3  # C and two SEP

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        self.aggregator = self.body("aggregator", settings)
        self.projection = projection(self.head.in_features, input_size(self.aggregator))
        self.special_2H = random_special(self.aggregator)
        self.head = self.head_over(self.aggregator)

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """The aggregator has a place for everything it is given."""
        super().check(config, backbone)
        chunking = config.chunking
        places = cls.OTHER_PLACES + len(document_spans("", chunking.max_document_tokens, chunking))
        what = "the chunks of a document"
        if cls.reads_tokens:
            places, what = places + chunking.max_query_tokens, f"the query and {what}"
        cls.refuse_longer(config, "aggregator", places, what)

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """Runs the aggregator over each document's chunk vectors and scores C's output."""
        part = Part(self.projection(cls_BPH), mask_BP, segment=1)
        return self.score(read_first(self.aggregator, self.special_2H, [part]))


class ParadeWithQuery(ParadePretrained):
    """The same over [C, SEP, q_1 .. q_m, SEP, cls_1 .. cls_n, SEP]: the aggregator sees the query.

    q are the encoder's outputs at the query's tokens beside the first chunk; they pass the same
    linear map as the chunk vectors and have segment 0.
    """

    label = "PARADE-Transformer-query"
    by_chunks = False
    reads_tokens = True
    OTHER_PLACES = 4  # C and three SEP

    def forward(self, batch: ChunkBatch) -> Tensor:
        """score_B of a batch of documents."""
        inputs = batch.inputs
        hidden_CLH = self.hidden(inputs)
        cls_BPH, mask_BP = pad_chunks(
            row_vectors(hidden_CLH, inputs.attention_mask_CL, self.pooling), batch.counts
        )
        firsts = [0, *accumulate(batch.counts[:-1])]
        first_B = torch.tensor(firsts, device=hidden_CLH.device)
        length_B = inputs.query_length_C[first_B]
        longest = int(length_B.max())
        query_BQH = hidden_CLH[first_B, 1 : 1 + longest]
        mask_BQ = torch.arange(longest, device=hidden_CLH.device) < length_B[:, None]
        return self.aggregate_with(query_BQH, mask_BQ, cls_BPH, mask_BP)

    def aggregate_with(
        self, query_BQH: Tensor, mask_BQ: Tensor, cls_BPH: Tensor, mask_BP: Tensor
    ) -> Tensor:
        """score_B from query and chunk vectors, in fp32 as all aggregation."""
        with torch.autocast(cls_BPH.device.type, enabled=False):
            exact = torch.promote_types(query_BQH.dtype, torch.float32)
            parts = [
                Part(self.projection(query_BQH.to(exact)), mask_BQ, segment=0),
                Part(self.projection(cls_BPH.to(exact)), mask_BP, segment=1),
            ]
            return self.score(read_first(self.aggregator, self.special_2H, parts))
