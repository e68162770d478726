"""Readers of models that do not cut documents into sliding windows."""

from collections.abc import Sequence
from dataclasses import replace

from numpy import int32
from numpy.typing import NDArray

from rank_core.chunking.batches import Chunk, PairEncoder
from rank_core.chunking.chunks import Span, chunk_spans, document_spans
from rank_core.errors import BadInput
from rank_core.settings.config import TrialConfig


class OwnCuts(PairEncoder):
    """Cuts the first `max_document_tokens` tokens by `spans`; chunking says how many are kept."""

    def spans(self, document: NDArray[int32]) -> Sequence[Span]:
        """Where a document is cut, in order; never empty."""
        return chunk_spans(len(document), self.chunking.window, self.chunking.stride)

    def chunks(self, query: NDArray[int32], doc_id: str) -> list[Chunk]:
        """The chunks of one document beside `query`; never empty."""
        document = self.tokens[doc_id][: self.chunking.max_document_tokens]
        spans = self.spans(document)
        # Chunks are dropped like the one-token windows of a document with a token per chunk.
        ones = replace(self.chunking, window=1, stride=1, max_document_tokens=len(spans))
        kept = document_spans(doc_id, len(spans), ones)
        return [Chunk(query, document[slice(*spans[i])]) for i, _ in kept]


def refuse_stride(config: TrialConfig) -> None:
    """Refuses a stride where a model's chunks never overlap."""
    chunking = config.chunking
    if chunking.stride != chunking.window:
        raise BadInput(
            f"chunking.stride has no effect with model {config.model.name}, whose chunks do not "
            f"overlap; set it to chunking.window={chunking.window}, got {chunking.stride}"
        )
