"""LongP: the whole document as one chunk, for encoders that read so much at once (Longformer,
BigBird, ModernBERT, ALiBi encoders, decoders)."""

from typing import Any

from numpy import int32
from numpy.typing import NDArray
from torch import nn

from rank_core.chunking.batches import Chunk, PairEncoder
from rank_core.chunking.token_store import TokenStore
from rank_core.encoders.backbone_types import Backbone
from rank_core.errors import BadInput, unknown
from rank_core.models.passage_scores import FirstP
from rank_core.settings.config import Model, TrialConfig

ZERO_BLOCKS = "bigbird-zero-blocks"
"""In evaluation every random block is block 0, as in transformers, which the published BigBird
numbers come from; without it the blocks of training are used."""


class WholeDocuments(PairEncoder):
    """The first `max_document_tokens` tokens of a document as one chunk."""

    def chunks(self, query: NDArray[int32], doc_id: str) -> list[Chunk]:
        """One chunk."""
        return [Chunk(query, self.tokens[doc_id][: self.chunking.max_document_tokens])]


class LongP(FirstP):
    """The head's score of one vector of the whole document."""

    label = "LongP"
    paper = "Boytsov et al. 2022"
    family = "long context"
    options = ("pool", "quirks")

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        if ZERO_BLOCKS in settings.quirks:
            sparse: Any = encoder
            sparse.random_blocks_in_evaluation(False)

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """Refuses a window that is not the whole document, training on parts of it, and quirks of
        other encoders."""
        chunking, name = config.chunking, config.model.name
        if chunking.window != chunking.max_document_tokens:
            raise BadInput(
                f"model {name} reads a document in one piece: chunking.window = "
                f"chunking.max_document_tokens must hold, got {chunking.window} and "
                f"{chunking.max_document_tokens}"
            )
        if config.training.unit == "passage":
            raise BadInput(
                f"training.unit=passage has no effect with model {name}, whose one passage is the "
                "document"
            )
        for quirk in config.model.quirks:
            if quirk != ZERO_BLOCKS:
                raise unknown(f"quirk of model {name}", quirk, (ZERO_BLOCKS,))
            if backbone.kind != "big_bird":
                raise BadInput(
                    f"quirk {quirk} needs a backbone of kind big_bird, got {backbone.name} of kind "
                    f"{backbone.kind}"
                )

    @classmethod
    def reader(cls, config: TrialConfig, backbone: Backbone, tokens: TokenStore) -> PairEncoder:
        """Documents in one piece, whatever the window."""
        return WholeDocuments(tokens, config.chunking, cls.first_chunk_only, backbone)
