"""PARADE with late interaction (LATEIR of Boytsov et al. 2022): query and chunks are encoded apart,
so that documents could be encoded before any query is known."""

from itertools import accumulate

import torch
from torch import Tensor, nn

from rank_core.chunking.batches import ChunkBatch, EncoderInput
from rank_core.chunking.chunks import document_spans
from rank_core.encoders.backbone_types import Backbone
from rank_core.errors import BadInput
from rank_core.models.parade import SecondEncoder
from rank_core.models.ranker import pad_chunks
from rank_core.models.readers import NUM_MARKS, ApartPairs
from rank_core.models.vector_encoders import (
    Part,
    input_size,
    output_size,
    own_special,
    projection,
    random_special,
    read_first,
)
from rank_core.settings.config import Model, TrialConfig

OWN_SPECIAL = "own-special"


class LateInteraction(SecondEncoder):
    """An interaction encoder (`model.interaction`) over [C, SEP, query, SEP, chunk, SEP] gives a
    vector per chunk, an aggregator (`model.aggregator`) over [C, SEP, vectors, SEP] the score.

    Query and chunk enter as the backbone's outputs at their tokens, through a linear map where the
    sizes differ; so do the interaction's vectors at the aggregator. The papers take MiniLM-L-2 for
    the interaction and MiniLM-L-6 for the aggregator. With the quirk `own-special` C and SEP of the
    interaction start as its [CLS] and [SEP] (FlexNeuART's rand_special_init=False), not at random.
    """

    label = "PARADE-LateInteraction"
    pair_encoder = ApartPairs
    by_chunks = False
    reads_tokens = True
    options = ("aggregator", "interaction", "quirks")
    QUIRKS = (OWN_SPECIAL,)

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        self.interaction = self.body("interaction", settings)
        self.aggregator = self.body("aggregator", settings)
        self.token_projection = projection(self.head.in_features, input_size(self.interaction))
        self.interaction_special_2H = (
            own_special("model.interaction", settings.interaction)
            if OWN_SPECIAL in settings.quirks
            else random_special(self.interaction)
        )
        self.chunk_projection = projection(
            output_size(self.interaction), input_size(self.aggregator)
        )
        self.special_2H = random_special(self.aggregator)
        self.head = self.head_over(self.aggregator)

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """Both encoders have a place for everything they are given."""
        super().check(config, backbone)
        if OWN_SPECIAL in config.model.quirks and not config.model.interaction:
            raise BadInput(
                f"model.quirks={OWN_SPECIAL} must go with an encoder that has words of its own: "
                "set model.interaction, which is empty"
            )
        chunking = config.chunking
        # Rows share the width of the longest, so a short chunk may stand beside a long query.
        widest = max(chunking.window, chunking.max_query_tokens)
        places = 4 + chunking.max_query_tokens + widest
        cls.refuse_longer(config, "interaction", places, "query and chunk")
        places = 3 + len(document_spans("", chunking.max_document_tokens, chunking))
        cls.refuse_longer(config, "aggregator", places, "the chunks of a document")

    def forward(self, batch: ChunkBatch) -> Tensor:
        """score_B of a batch of documents, each a query row and chunk rows."""
        text_CTH, mask_CT = self.texts(batch.inputs)
        starts = [0, *accumulate(batch.counts[:-1])]
        query_of = [start for start, n in zip(starts, batch.counts, strict=True) for _ in range(n)]
        chunks = [row for row, start in enumerate(query_of) if row != start]
        query_C = torch.tensor([query_of[row] for row in chunks], device=text_CTH.device)
        chunk_C = torch.tensor(chunks, device=text_CTH.device)
        longest = int(mask_CT[starts].sum(1).max())
        parts = [
            Part(text_CTH[query_C, :longest], mask_CT[query_C, :longest], segment=0),
            Part(text_CTH[chunk_C], mask_CT[chunk_C], segment=0),
        ]
        x_CH = read_first(self.interaction, self.interaction_special_2H, parts)
        return self.aggregate(*pad_chunks(x_CH, [n - 1 for n in batch.counts]))

    def texts(self, inputs: EncoderInput) -> tuple[Tensor, Tensor]:
        """(text_CTH, mask_CT): the encoder's outputs at each row's own tokens, without marks, in
        the interaction's size."""
        text_CTH = self.token_projection(
            self.hidden(inputs)[:, 2 : inputs.input_ids_CL.shape[1] - 1]
        )
        length_C = inputs.attention_mask_CL.sum(1) - NUM_MARKS
        mask_CT = torch.arange(text_CTH.shape[1], device=text_CTH.device) < length_C[:, None]
        return text_CTH, mask_CT

    def aggregate(self, x_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """score_B from the interaction's vectors, in fp32 as all aggregation."""
        with torch.autocast(x_BPH.device.type, enabled=False):
            exact = torch.promote_types(x_BPH.dtype, torch.float32)
            part = Part(self.chunk_projection(x_BPH.to(exact)), mask_BP, segment=1)
            return self.score(read_first(self.aggregator, self.special_2H, [part]))
