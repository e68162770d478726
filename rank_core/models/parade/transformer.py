"""PARADE-Transformer with random weights (Li et al. 2020; RAND of Boytsov et al. 2022)."""

from torch import Tensor, nn

from rank_core.encoders.backbone_types import Backbone
from rank_core.models.parade.parade import Parade
from rank_core.models.parade.vector_sequence import RANDOM_POSITIONS, Part, random_body, read_first
from rank_core.settings.config import Model


class ParadeTransformer(Parade):
    """A transformer with random weights over [C, SEP, cls_1 .. cls_n, SEP]; C's output is scored.

    The RAND-L2 of Boytsov et al. as meant: 2 layers, 4 heads, C and SEP start as the encoder's
    embeddings of [CLS] and [SEP], positions and segments (0, 0, 1 .. 1, 0) are embedded, absent
    chunks are masked, and the SEP that closes a document follows its own last chunk. C is written
    to and read from position 0.
    """

    label = "PARADE-Transformer"
    one_chunk_is_firstp = False
    NUM_LAYERS = 2
    NUM_HEADS = 4
    max_chunks = RANDOM_POSITIONS - 3  # less C and two SEP

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        hidden = self.head.in_features
        self.aggregator = random_body(hidden, self.NUM_LAYERS, self.NUM_HEADS, settings.dropout)
        words = encoder.get_input_embeddings().weight  # type: ignore[operator]
        special_2H = words[[backbone.cls_id, backbone.sep_id]]
        self.special_2H = nn.Parameter(special_2H.detach().clone())

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """Runs the aggregator over each document's chunk vectors and scores C's output."""
        part = Part(cls_BPH, mask_BP, segment=1)
        return self.score(read_first(self.aggregator, self.special_2H, [part]))


class ParadeTransformerL3(ParadeTransformer):
    """The same with 3 layers: RAND-L3 of Boytsov et al. 2022 as meant. Their code attended across
    the documents of a batch and scored the first chunk's output; that is not reproduced."""

    label = "PARADE-Transformer-L3"
    paper = "Boytsov et al. 2022"
    NUM_LAYERS = 3
