"""Encoder input from (query, document) pairs, and batches of chunks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rank_core.chunking.chunks import Span, document_spans
from rank_core.chunking.encoder_input import (
    CPU,
    NUM_SPECIAL,
    EncoderInput,
    RowFormat,
    lay_out,
)
from rank_core.chunking.token_store import TokenStore, tokenize
from rank_core.encoders.backbone_types import ABSENT, Backbone
from rank_core.settings.config import Chunking

# B documents of a batch.


class ChunkBatch(NamedTuple):
    """The chunks of B documents, those of each document adjacent and in order."""

    inputs: EncoderInput
    counts: tuple[int, ...]  # chunks of each document, on the host
    passages: tuple[Any, ...] = ()
    """Where the model still selects from the chunks: what it reads of each document."""

    def to(self, device: torch.device) -> "ChunkBatch":
        """The batch on a device."""
        return self._replace(inputs=self.inputs.to(device))


class Chunk(NamedTuple):
    """An encoder input before padding: [CLS] query [SEP] chunk [SEP]."""

    query: NDArray[np.int32]
    text: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.query) + len(self.text) + NUM_SPECIAL


@dataclass(frozen=True)
class PairEncoder:
    """Splits documents into chunks and arranges chunks as tensors."""

    tokens: TokenStore
    chunking: Chunking
    first_chunk_only: bool  # as in FirstP
    backbone: Backbone

    query_rows: ClassVar[int] = 0  # rows of a document before its chunks

    def chunks(self, query: NDArray[np.int32], doc_id: str) -> list[Chunk]:
        """The chunks of a document, each with `query`; at least one."""
        document = self.document(doc_id)
        spans = self.spans_of(doc_id, len(document))
        return self.rows(query, [document[start:end] for start, end in spans])

    def document(self, doc_id: str) -> NDArray[np.int32]:
        """The tokens of a document, truncated to `max_document_tokens`."""
        return self.tokens[doc_id][: self.chunking.max_document_tokens]

    def rows(self, query: NDArray[np.int32], texts: Sequence[NDArray[np.int32]]) -> list[Chunk]:
        """The encoder inputs of a document that is split into `texts`. All tokens of a reranker's
        own layout but the last of each part count as of query or text."""
        if (own := self.backbone.own_layout) is not None:
            # `layout` writes one token before the query, one between and one at the end. A
            # template's other tokens join the query and the text, so that everything else sees
            # three special tokens.
            query = np.concatenate([own.prefix[1:], query, own.middle[:-1]]).astype(np.int32)
            end = np.asarray(own.suffix[:-1], dtype=np.int32)
            texts = [np.concatenate([text, end]) for text in texts] if len(end) else texts
        return [Chunk(query, text) for text in texts]

    def spans_of(self, doc_id: str, num_tokens: int) -> tuple[Span, ...]:
        """The spans of the chunks of a document of `num_tokens` tokens."""
        spans = document_spans(doc_id, num_tokens, self.chunking)
        return spans[:1] if self.first_chunk_only else spans

    def num_tokens(self, query: NDArray[np.int32], doc_id: str) -> int:
        """Encoder tokens of a document's rows, by its length and windows alone: an estimate for
        readers that cut otherwise, by which work is divided before anything is read."""
        spans = self.spans_of(doc_id, len(self.document(doc_id)))
        return sum(end - start + len(query) + NUM_SPECIAL for start, end in spans)

    def collate(
        self, documents: Sequence[Sequence[Chunk]], device: torch.device = CPU
    ) -> ChunkBatch:
        """The chunks of several documents as one batch, in memory from which a copy to `device`
        does not wait."""
        chunks = [chunk for document in documents for chunk in document]
        return ChunkBatch(self.layout(chunks, device), tuple(map(len, documents)))

    def layout(
        self,
        chunks: Sequence[Chunk],
        device: torch.device = CPU,
        *,
        query_alone: Sequence[int] = (),
    ) -> EncoderInput:
        """Chunks as an encoder input, in memory from which a copy to `device` does not wait. Rows
        in `query_alone` have no second segment."""
        queries, texts = [chunk.query for chunk in chunks], [chunk.text for chunk in chunks]
        return lay_out(queries, texts, self.form, device=device, query_alone=query_alone)

    @property
    def form(self) -> RowFormat:
        """The tokens around query and text, and the padding."""
        prefix, middle, suffix = self.backbone.layout.tokens
        ends = prefix[0], middle[-1], suffix[-1]
        form = RowFormat(*ends, self.backbone.pad_id, self.backbone.num_segments > 1)
        gaps = self.backbone.layout.has_gaps
        return form._replace(absent=ABSENT, closes_up=True) if gaps else form


def tokenize_queries(
    tokenizer: Any, queries: Sequence[str], max_query_tokens: int, before: str = ""
) -> list[NDArray[np.int32]]:
    """The token ids of each query with the text `before` it, truncated to `max_query_tokens`."""
    ids = tokenize(tokenizer, list(queries), before) if queries else []
    return [np.asarray(tokens[:max_query_tokens], dtype=np.int32) for tokens in ids]


def token_budget_batches(
    lengths: Sequence[int], batch_tokens: int, *, call_tokens: int = 0
) -> Iterator[list[int]]:
    """Batches of item indices, items of similar length together, longest first.

    A batch has at most `batch_tokens` tokens including padding, and at least one item. It ends
    early before a much shorter item if the padding would cost more than another call, whose
    overhead is that of `call_tokens` tokens.
    """
    # Longest first: memory is exceeded at once or never, and neighbours have similar lengths.
    order = _longest_first(lengths)
    start = 0
    while start < len(order):
        longest = lengths[order[start]]
        # The first item is the longest, and padding makes all others as long.
        end = start + max(1, batch_tokens // max(1, longest))
        batch = order[start:end]
        cut = next((n for n, i in enumerate(batch) if lengths[i] < SIMILAR * longest), len(batch))
        if sum(longest - lengths[i] for i in batch[cut:]) <= call_tokens:
            cut = len(batch)
        yield batch[:cut]
        start += cut


BATCH_TOKENS = {"cpu": 4096, "cuda": 65_536}
"""Default encoder tokens per scoring batch. A CPU's caches are small; a GPU waits for its host
below some 16,000 tokens, and batches that do not fit its memory are halved."""
CALL_TOKENS = 8192  # tokens that a GPU processes while its host launches a call


def batch_tokens_on(device: torch.device) -> int:
    """The default encoder tokens of a scoring batch on a device."""
    return BATCH_TOKENS["cuda" if device.type == "cuda" else "cpu"]


def batches_by_length(
    lengths: Sequence[int], batch_tokens: int, device: torch.device, *, flat: bool
) -> Iterator[list[int]]:
    """Batches of item indices for a device. Flat rows have no padding, so that lengths may mix and
    a batch is filled to the last token."""
    if flat:
        return unpadded_batches(lengths, batch_tokens)
    # On a CPU a further call costs nothing, on a GPU as much as some padding.
    call_tokens = CALL_TOKENS if device.type == "cuda" else 0
    return token_budget_batches(lengths, batch_tokens, call_tokens=call_tokens)


SIMILAR = 0.9  # of the longest item's length: long enough to share its batch


def unpadded_batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Batches of item indices, longest first, of at most `batch_tokens` tokens without padding and
    at least one item."""
    batch: list[int] = []
    used = 0
    for i in _longest_first(lengths):
        if batch and used + lengths[i] > batch_tokens:
            yield batch
            batch, used = [], 0
        batch.append(i)
        used += lengths[i]
    if batch:
        yield batch


def _longest_first(lengths: Sequence[int]) -> list[int]:
    return sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
