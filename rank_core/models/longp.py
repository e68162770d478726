"""LongP: the whole document as one chunk, for long-context encoders (Longformer, BigBird,
ModernBERT, ALiBi encoders, decoders)."""

from typing import Any

from torch import nn

from rank_core.encoders.backbone_types import Backbone
from rank_core.errors import BadInput
from rank_core.models.passage_scores import FirstP
from rank_core.models.readers import (
    PADDED_ROWS,
    WholeDocuments,
    check_quirks,
    require_whole_documents,
)
from rank_core.settings.config import Model, TrialConfig

ZERO_BLOCKS = "bigbird-zero-blocks"
"""All random blocks are block 0 in evaluation, as in transformers, which published BigBird numbers
come from. Without the quirk, evaluation uses the blocks of training."""

QUIRKS = {ZERO_BLOCKS: "big_bird", PADDED_ROWS: "longformer"}
"""{quirk: kind of backbone}: FlexNeuART pads whole documents in place for Longformer only."""


class LongP(FirstP):
    """score = head(vector of the whole document)."""

    label = "LongP"
    paper = "Boytsov et al. 2022"
    family = "long context"
    pair_encoder = WholeDocuments

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        if ZERO_BLOCKS in settings.quirks:
            sparse: Any = encoder
            sparse.random_blocks_in_evaluation(False)

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """Rejects windows other than the whole document, passage training, and quirks of other
        encoders."""
        require_whole_documents(config)
        name = config.model.name
        if config.training.unit == "passage":
            raise BadInput(
                f"training.unit=passage has no effect with model {name}, which reads the document "
                "as a single passage"
            )
        check_quirks(config, tuple(QUIRKS))
        for quirk in config.model.quirks:
            if backbone.kind != QUIRKS[quirk]:
                raise BadInput(
                    f"quirk {quirk} needs a backbone of kind {QUIRKS[quirk]}, got {backbone.name} "
                    f"of kind {backbone.kind}"
                )
