"""Readers of documents other than by sliding windows: disjoint chunks, whole documents, separate
rows for query and chunks, rows padded in place."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np
import torch
from numpy import int32
from numpy.typing import NDArray

from rank_core.chunking.batches import Chunk, ChunkBatch, PairEncoder
from rank_core.chunking.chunks import Span, chunk_spans, document_spans
from rank_core.chunking.encoder_input import CPU, RowFormat
from rank_core.encoders.backbone_types import type_of
from rank_core.settings.config import Model


class OwnCuts(PairEncoder):
    """Splits the first `max_document_tokens` tokens by `spans`, of which `chunking` limits the
    number."""

    def spans(self, document: NDArray[int32]) -> Sequence[Span]:
        """The spans of the chunks, in order; at least one."""
        return chunk_spans(len(document), self.chunking.window, self.chunking.stride)

    def chunks(self, query: NDArray[int32], doc_id: str) -> list[Chunk]:
        """The chunks of a document, each with `query`; at least one."""
        document = self.document(doc_id)
        spans = self.spans(document)
        # Overflow is handled as for a document with one token per chunk.
        ones = replace(self.chunking, window=1, stride=1, max_document_tokens=len(spans))
        kept = document_spans(doc_id, len(spans), ones)
        return self.rows(query, [document[slice(*spans[i])] for i, _ in kept])


class EqualChunks(OwnCuts):
    """Disjoint chunks of equal length: m = ceil(n / window) chunks of ceil(n / m) tokens, the last
    possibly shorter (CEDR, MacAvaney et al. 2019)."""

    def spans(self, document: NDArray[int32]) -> Sequence[Span]:
        """For 1000 tokens and window 477: chunks of 334, 334 and 332 tokens."""
        num_tokens = len(document)
        # As few chunks as the window allows, and then as even as possible: no short last one.
        num_chunks = max(1, -(-num_tokens // self.chunking.window))
        size = max(1, -(-num_tokens // num_chunks))
        return chunk_spans(num_tokens, size, size)


class WholeDocuments(PairEncoder):
    """The first `max_document_tokens` tokens of a document as one chunk."""

    def chunks(self, query: NDArray[int32], doc_id: str) -> list[Chunk]:
        """A single chunk."""
        return self.rows(query, [self.document(doc_id)])


NOTHING: NDArray[int32] = np.zeros(0, dtype=int32)


class ApartPairs(PairEncoder):
    """A document's query and chunks in separate rows [CLS] [SEP] text [SEP], the query first.

    The query's row has segment 0; a chunk's text and last [SEP] have segment 1.
    """

    query_rows = 1

    def rows(self, query: NDArray[int32], texts: Sequence[NDArray[int32]]) -> list[Chunk]:
        """The query's row, then the chunks' rows."""
        return [Chunk(NOTHING, text) for text in (query, *texts)]

    def collate(
        self, documents: Sequence[Sequence[Chunk]], device: torch.device = CPU
    ) -> ChunkBatch:
        """The rows of several documents as one batch."""
        counts = tuple(map(len, documents))
        chunks = [chunk for document in documents for chunk in document]
        return ChunkBatch(self.layout(chunks, device, query_alone=first_rows(counts)), counts)


def first_rows(counts: Sequence[int]) -> list[int]:
    """The index of each document's first row in a batch."""
    return [0, *accumulate(counts[:-1])]


UNMASKED = "unmasked-chunks"
"""Documents are padded to max_document_tokens and chunked as if padding were text, and rows are
padded in place. Attention never sees padding: a chunk of padding reads only the query and special
tokens. Windows start wherever text remains, even if another window covers it."""

PADDED_ROWS = "padded-rows"
"""Query and text of each row are padded in place, to max_query_tokens and to the chunk length of a
document of max_document_tokens, so that text and last [SEP] have the same positions in all rows."""

PADDING = -1  # token id of padding in chunks, until `layout`


def pads_in_place(settings: Model) -> bool:
    """True if a quirk of the model pads rows in place."""
    return bool({UNMASKED, PADDED_ROWS} & set(settings.quirks))


class PaddedRows(PairEncoder):
    """Rows [CLS] query [SEP] text [SEP] with padding after the query and after the text."""

    def document(self, doc_id: str) -> NDArray[int32]:
        """A document padded to `max_document_tokens`, so that all are chunked alike."""
        return _padded(super().document(doc_id), self.chunking.max_document_tokens)

    def rows(self, query: NDArray[int32], texts: Sequence[NDArray[int32]]) -> list[Chunk]:
        """Rows of the length of the first text, which is the longest."""
        size = len(texts[0])
        padded = [_padded(text, size) for text in texts]
        return super().rows(_padded(query, self.chunking.max_query_tokens), padded)

    @property
    def form(self) -> RowFormat:
        """Rows in which all padding is masked."""
        # Kinds that number positions after padding do not number padding itself.
        counts = type_of(self.backbone.kind).positions != "after-padding"
        return super().form._replace(absent=PADDING, counts_absent=counts)


def padded_in_place(kind: type[PairEncoder]) -> type[PairEncoder]:
    """A reader that chunks as `kind` does and pads rows in place."""
    # Multiple inheritance: `kind` cuts what `PaddedRows` has padded.
    return type(f"Padded{kind.__name__}", (PaddedRows, kind), {})


def _padded(tokens: NDArray[int32], size: int) -> NDArray[int32]:
    return np.pad(tokens, (0, size - len(tokens)), constant_values=PADDING)
