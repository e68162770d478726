"""Cuts and layouts of documents other than sliding windows beside the query: disjoint chunks, whole
documents, query and chunks apart, rows padded in place."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np
from numpy import int32
from numpy.typing import NDArray

from rank_core.chunking.batches import Chunk, ChunkBatch, EncoderInput, PairEncoder
from rank_core.chunking.chunks import Span, chunk_spans, document_spans
from rank_core.encoders.backbone_types import TYPES
from rank_core.encoders.flat_rows import flat_rows
from rank_core.errors import BadInput, unknown
from rank_core.settings.config import Model, TrialConfig


class OwnCuts(PairEncoder):
    """Cuts the first `max_document_tokens` tokens by `spans`; chunking says how many are kept."""

    def spans(self, document: NDArray[int32]) -> Sequence[Span]:
        """The spans of the chunks in order; never empty."""
        return chunk_spans(len(document), self.chunking.window, self.chunking.stride)

    def chunks(self, query: NDArray[int32], doc_id: str) -> list[Chunk]:
        """The chunks of one document beside `query`; never empty."""
        document = self.document(doc_id)
        spans = self.spans(document)
        # Chunks are dropped like the one-token windows of a document with a token per chunk.
        ones = replace(self.chunking, window=1, stride=1, max_document_tokens=len(spans))
        kept = document_spans(doc_id, len(spans), ones)
        return self.rows(query, [document[slice(*spans[i])] for i, _ in kept])


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
        return self.rows(query, [self.document(doc_id)])


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


class ApartPairs(PairEncoder):
    """A document is its query, then its chunks, each a row [CLS] [SEP] text [SEP] of its own.

    The query's row has segment 0; a chunk's text and last [SEP] have segment 1.
    """

    def rows(self, query: NDArray[int32], texts: Sequence[NDArray[int32]]) -> list[Chunk]:
        """The query's row and the chunks' rows."""
        return [Chunk(NOTHING, text) for text in (query, *texts)]

    def collate(self, documents: Sequence[Sequence[Chunk]]) -> ChunkBatch:
        """The rows of several documents as one batch."""
        batch = super().collate(documents)
        if batch.inputs.token_type_ids_CL is not None:
            batch.inputs.token_type_ids_CL[first_rows(batch.counts)] = 0
        return batch


def first_rows(counts: Sequence[int]) -> list[int]:
    """The row of a batch at which each document begins."""
    return [0, *accumulate(counts[:-1])]


UNMASKED = "unmasked-chunks"
"""Every document is padded to max_document_tokens and cut as if the padding were text; rows are
padded in place. Attention within a row never sees padding: a padding-only chunk reads the query and
the marks. Windows begin wherever a text is left, also where another window has covered it."""

PADDED_ROWS = "padded-rows"
"""Query and text of every row are padded in place, to max_query_tokens and to the length of a chunk
of max_document_tokens tokens, so that text and last [SEP] have the same places in all rows."""

PADDING = -1  # in chunks, until they are laid out


def check_quirks(config: TrialConfig, known: tuple[str, ...]) -> None:
    """Refuses quirks that the model does not have."""
    for quirk in config.model.quirks:
        if quirk not in known:
            raise unknown(f"quirk of model {config.model.name}", quirk, known)


def pads_in_place(settings: Model) -> bool:
    """True where a quirk of the model pads rows in place."""
    return bool({UNMASKED, PADDED_ROWS} & set(settings.quirks))


class PaddedRows(PairEncoder):
    """Rows [CLS] query [SEP] text [SEP] in which padding stands where query and text end."""

    def document(self, doc_id: str) -> NDArray[int32]:
        """`max_document_tokens` tokens and padding: all documents are cut alike."""
        return _padded(super().document(doc_id), self.chunking.max_document_tokens)

    def rows(self, query: NDArray[int32], texts: Sequence[NDArray[int32]]) -> list[Chunk]:
        """Rows of equal length; the first text is as long as any."""
        size = len(texts[0])
        padded = [_padded(text, size) for text in texts]
        return super().rows(_padded(query, self.chunking.max_query_tokens), padded)

    def layout(self, chunks: Sequence[Chunk]) -> EncoderInput:
        """Rows with masks of 0 at padding wherever it is."""
        rows = super().layout(chunks)
        absent_CL = rows.input_ids_CL == PADDING
        mask_CL = rows.attention_mask_CL.masked_fill(absent_CL, 0)
        # A kind that numbers positions after padding gives padding itself none.
        counts = TYPES[self.backbone.kind].positions != "after-padding"
        return rows._replace(
            input_ids_CL=rows.input_ids_CL.masked_fill(absent_CL, self.backbone.pad_id),
            attention_mask_CL=mask_CL,
            padded=rows.padded or bool(absent_CL.any()),
            flat=flat_rows(mask_CL.numpy(), count_padding=counts),
        )


def padded_in_place(kind: type[PairEncoder]) -> type[PairEncoder]:
    """A reader that cuts as `kind` does and lays out padded rows."""
    return type(f"Padded{kind.__name__}", (PaddedRows, kind), {})


def _padded(tokens: NDArray[int32], size: int) -> NDArray[int32]:
    return np.pad(tokens, (0, size - len(tokens)), constant_values=PADDING)
