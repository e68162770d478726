"""Cuts and layouts of documents other than sliding windows beside the query: disjoint chunks, whole
documents, query and chunks apart, padding that competes."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy import int32
from numpy.typing import NDArray

from rank_core.chunking.batches import Chunk, EncoderInput, PairEncoder
from rank_core.chunking.chunks import Span, chunk_spans, document_spans
from rank_core.errors import BadInput, unknown
from rank_core.settings.config import TrialConfig


class OwnCuts(PairEncoder):
    """Cuts the first `max_document_tokens` tokens by `spans`; chunking says how many are kept."""

    def spans(self, document: NDArray[int32]) -> Sequence[Span]:
        """The spans of the chunks in order; never empty."""
        return chunk_spans(len(document), self.chunking.window, self.chunking.stride)

    def chunks(self, query: NDArray[int32], doc_id: str) -> list[Chunk]:
        """The chunks of one document beside `query`; never empty."""
        document = self.tokens[doc_id][: self.chunking.max_document_tokens]
        spans = self.spans(document)
        # Chunks are dropped like the one-token windows of a document with a token per chunk.
        ones = replace(self.chunking, window=1, stride=1, max_document_tokens=len(spans))
        kept = document_spans(doc_id, len(spans), ones)
        return [Chunk(query, document[slice(*spans[i])]) for i, _ in kept]


class EqualChunks(OwnCuts):
    """Disjoint chunks of equal length: m = ceil(n / window) chunks of ceil(n / m) tokens, of which
    the last may be shorter (CEDR, MacAvaney et al. 2019)."""

    def spans(self, document: NDArray[int32]) -> Sequence[Span]:
        """1000 tokens at a window of 477: three chunks of 334, 334 and 332."""
        num_tokens = len(document)
        num_chunks = max(1, -(-num_tokens // self.chunking.window))
        size = max(1, -(-num_tokens // num_chunks))
        return chunk_spans(num_tokens, size, size)


class WholeDocuments(PairEncoder):
    """The first `max_document_tokens` tokens of a document as one chunk."""

    def chunks(self, query: NDArray[int32], doc_id: str) -> list[Chunk]:
        """One chunk."""
        return [Chunk(query, self.tokens[doc_id][: self.chunking.max_document_tokens])]


def require_whole_documents(config: TrialConfig) -> None:
    """Raises `BadInput` where the window is not the whole document."""
    chunking = config.chunking
    if chunking.window != chunking.max_document_tokens:
        raise BadInput(
            f"model {config.model.name} reads a document in one piece: chunking.window = "
            f"chunking.max_document_tokens must hold, got {chunking.window} and "
            f"{chunking.max_document_tokens}"
        )


NOTHING: NDArray[int32] = np.zeros(0, dtype=int32)
NUM_MARKS = 3  # of a row: [CLS] [SEP] text [SEP]


class ApartPairs(PairEncoder):
    """A document is its query, then its chunks, each a row [CLS] [SEP] text [SEP] of its own."""

    def rows(self, query: NDArray[int32], texts: Sequence[NDArray[int32]]) -> list[Chunk]:
        """The query's row and the chunks' rows."""
        return [Chunk(NOTHING, text) for text in (query, *texts)]


UNMASKED = "unmasked-chunks"
"""Every document is padded to max_document_tokens and cut as if the padding were text; every row
is [CLS] query [SEP] chunk [SEP] with query and chunk padded in place, so that the last [SEP] keeps
one place. Attention within a row never sees padding: a padding-only chunk reads the query and the
marks. Windows begin wherever a text is left, also where another window has covered it."""

PADDING = -1  # in chunks, until they are laid out


def check_quirks(config: TrialConfig, known: tuple[str, ...], pooling: str) -> None:
    """Refuses quirks that the model does not have, and the last token's vector where rows are
    padded in place."""
    for quirk in config.model.quirks:
        if quirk not in known:
            raise unknown(f"quirk of model {config.model.name}", quirk, known)
    if UNMASKED in config.model.quirks and pooling == "last":
        raise BadInput(
            f"quirk {UNMASKED} pads rows in place, so model.pool must be cls or mean, got last"
        )


class UnmaskedChunks(PairEncoder):
    """All windows of a document of `max_document_tokens` tokens, whatever its own length."""

    def chunks(self, query: NDArray[int32], doc_id: str) -> list[Chunk]:
        """Chunks of equal length, the same number for every document."""
        limits = self.chunking
        text = self.tokens[doc_id][: limits.max_document_tokens]
        spans = document_spans(doc_id, limits.max_document_tokens, limits)
        padded = _padded(query, limits.max_query_tokens)
        return [Chunk(padded, _padded(text[start:end], limits.window)) for start, end in spans]

    def layout(self, chunks: Sequence[Chunk]) -> EncoderInput:
        """Rows of one length, with masks of 0 at padding wherever it is."""
        rows = super().layout(chunks)
        absent_CL = rows.input_ids_CL == PADDING
        return rows._replace(
            input_ids_CL=rows.input_ids_CL.masked_fill(absent_CL, self.backbone.pad_id),
            attention_mask_CL=rows.attention_mask_CL.masked_fill(absent_CL, 0),
            query_length_C=torch.tensor([int((c.query != PADDING).sum()) for c in chunks]),
        )


def _padded(tokens: NDArray[int32], size: int) -> NDArray[int32]:
    return np.pad(tokens, (0, size - len(tokens)), constant_values=PADDING)
