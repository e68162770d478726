"""PARADE with late interaction (LATEIR, Boytsov et al. 2022): query and chunks are encoded
separately, so that documents could be encoded in advance."""

import torch
from torch import Tensor, nn

from rank_core.chunking.batches import NUM_SPECIAL, ChunkBatch
from rank_core.chunking.chunks import document_spans
from rank_core.encoders.backbone_types import Backbone
from rank_core.errors import BadInput
from rank_core.models.parade import SecondEncoder
from rank_core.models.poolings import at_least_fp32
from rank_core.models.ranker import pad_chunks
from rank_core.models.readers import UNMASKED, ApartPairs, first_rows
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
    vector per chunk; an aggregator (`model.aggregator`) over [C, SEP, vectors, SEP] gives the
    score.

    Query and chunk are the backbone's outputs over their rows, including [CLS] and both [SEP], as
    in FlexNeuART. A linear map adapts sizes that differ, at both encoders. The whole interaction
    input has segment 0. The papers use MiniLM-L-2 for the interaction and MiniLM-L-6 for the
    aggregator. With the quirk `own-special`, C and SEP of the interaction start as its [CLS] and
    [SEP] embeddings, the intent of FlexNeuART's rand_special_init=False, which fails there because
    the interaction's tokenizer is missing.
    """

    label = "PARADE-LateInteraction"
    pair_encoder = ApartPairs
    by_chunks = False
    reads_tokens = True
    options = ("aggregator", "interaction", "quirks")
    QUIRKS = (UNMASKED, OWN_SPECIAL)

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        self.in_place = UNMASKED in settings.quirks
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
        """Rejects inputs that do not fit the positions of either encoder."""
        super().check(config, backbone)
        if OWN_SPECIAL in config.model.quirks and not config.model.interaction:
            raise BadInput(
                f"model.quirks={OWN_SPECIAL} needs an encoder with word embeddings: set "
                "model.interaction, which is empty"
            )
        chunking = config.chunking
        places = 4 + 2 * NUM_SPECIAL + chunking.max_query_tokens + chunking.window
        cls.refuse_longer(config, "interaction", places, "query and chunk")
        places = 3 + len(document_spans("", chunking.max_document_tokens, chunking))
        cls.refuse_longer(config, "aggregator", places, "the chunks of a document")

    def forward(self, batch: ChunkBatch) -> Tensor:
        """score_B of documents, each a query row followed by chunk rows."""
        x_CLH = self.token_projection(self.hidden(batch.inputs))
        mask_CL = batch.inputs.attention_mask_CL.bool()
        firsts = first_rows(batch.counts)
        query_of = [row for row, n in zip(firsts, batch.counts, strict=True) for _ in range(n - 1)]
        chunks = sorted(set(range(len(x_CLH))) - set(firsts))
        parts = []
        for rows in (query_of, chunks):
            row_C = torch.tensor(rows).to(x_CLH.device, non_blocking=True)
            counts = tuple(len(batch.inputs.sizes[row]) for row in rows)
            width = max(counts)
            parts.append(Part(x_CLH[row_C, :width], mask_CL[row_C, :width], 0, counts))
        x_CH = read_first(
            self.interaction, self.interaction_special_2H, parts, in_place=self.in_place
        )
        return self.aggregate(*pad_chunks(x_CH, [n - 1 for n in batch.counts]))

    def aggregate(self, x_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """score_B from the interaction's vectors, in fp32."""
        with torch.autocast(x_BPH.device.type, enabled=False):
            part = Part(self.chunk_projection(at_least_fp32(x_BPH)), mask_BP, segment=1)
            return self.score(read_first(self.aggregator, self.special_2H, [part]))
