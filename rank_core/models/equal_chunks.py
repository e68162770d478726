"""Disjoint chunks of equal length, and what the models that read them share (CEDR, MacAvaney et al.
2019)."""

from collections.abc import Sequence

from numpy import int32
from numpy.typing import NDArray

from rank_core.chunking.batches import PairEncoder
from rank_core.chunking.chunks import Span, chunk_spans
from rank_core.chunking.token_store import TokenStore
from rank_core.encoders.backbone_types import Backbone
from rank_core.models.own_cuts import OwnCuts, refuse_stride
from rank_core.models.ranker import Ranker
from rank_core.settings.config import TrialConfig


class EqualChunks(OwnCuts):
    """Disjoint chunks of equal length: m = ceil(n / window) chunks of ceil(n / m) tokens, of which
    the last is shorter by what is missing."""

    def spans(self, document: NDArray[int32]) -> Sequence[Span]:
        """1000 tokens at a window of 477: three chunks of 334, 334 and 332."""
        num_tokens = len(document)
        num_chunks = max(1, -(-num_tokens // self.chunking.window))
        size = max(1, -(-num_tokens // num_chunks))
        return chunk_spans(num_tokens, size, size)


class EqualChunksRanker(Ranker):
    """A ranker of documents that are cut so; it comes before another base."""

    @classmethod
    def reader(cls, config: TrialConfig, backbone: Backbone, tokens: TokenStore) -> PairEncoder:
        """Disjoint chunks of equal length."""
        return EqualChunks(tokens, config.chunking, cls.first_chunk_only, backbone)

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """Its chunks do not overlap."""
        super().check(config, backbone)
        refuse_stride(config)
