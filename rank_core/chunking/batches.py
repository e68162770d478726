"""Encoder input from (query, document) pairs: chunks only, padded per batch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rank_core.chunking.chunks import Span, document_spans
from rank_core.chunking.token_store import TokenStore, tokenize
from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.flat_rows import FlatRows, flat_rows, on
from rank_core.settings.config import Chunking

# C chunks of a batch, L tokens of its longest row, B documents.

NUM_SPECIAL = 3  # [CLS] query [SEP] chunk [SEP]


class RowSize(NamedTuple):
    """The token counts of a row [CLS] query [SEP] text [SEP]."""

    num_query: int
    num_text: int

    def __len__(self) -> int:
        return self.num_query + self.num_text + NUM_SPECIAL


class EncoderInput(NamedTuple):
    """Rows of [CLS] query [SEP] chunk [SEP], padded at the end; every row has real tokens. Facts
    about the rows are also kept on the host: reading them back from a GPU would block."""

    input_ids_CL: Tensor
    attention_mask_CL: Tensor
    token_type_ids_CL: Tensor | None
    query_length_C: Tensor  # query tokens of each row, from position 1 on
    sizes: tuple[RowSize, ...] = ()  # of each row; empty for rows selected on the device
    query_rows: tuple[int, ...] = ()  # for each row, the first row with the same query
    padded: bool = True  # False: no position is masked
    flat: FlatRows | None = None  # the real tokens; None for rows selected on the device

    def to(self, device: torch.device) -> "EncoderInput":
        """The input on a device, copied without blocking."""
        return on(device, self)

    @property
    def encoder_mask(self) -> Tensor | None:
        """mask_CL for an encoder; None where nothing is masked, which is faster."""
        return self.attention_mask_CL if self.padded else None


class ChunkBatch(NamedTuple):
    """The chunks of B documents, those of each document adjacent and in order."""

    inputs: EncoderInput
    counts: tuple[int, ...]  # chunks of each document, on the host
    passages: tuple[Any, ...] = ()
    """Where the model still selects from the chunks: what it reads of each document."""

    def to(self, device: torch.device) -> "ChunkBatch":
        """The batch on a device."""
        return on(device, self)


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

    def collate(self, documents: Sequence[Sequence[Chunk]]) -> ChunkBatch:
        """The chunks of several documents as one batch."""
        chunks = [chunk for document in documents for chunk in document]
        return ChunkBatch(self.layout(chunks), tuple(map(len, documents)))

    def layout(self, chunks: Sequence[Chunk]) -> EncoderInput:
        """Chunks as a padded encoder input."""
        shape = (len(chunks), max(map(len, chunks)))
        input_ids = np.full(shape, self.backbone.pad_id, dtype=np.int64)
        mask = np.zeros(shape, dtype=np.int64)
        segments = np.zeros(shape, dtype=np.int64)
        prefix, middle, suffix = self.backbone.layout.tokens
        for row, (query, text) in enumerate(chunks):
            start = len(query) + 2
            end = start + len(text)
            input_ids[row, 0] = prefix[0]
            input_ids[row, 1 : start - 1] = query
            input_ids[row, start - 1] = middle[-1]
            input_ids[row, start:end] = text
            input_ids[row, end] = suffix[-1]
            mask[row, : end + 1] = 1
            # BERT's second segment: the text and the [SEP] that ends it.
            segments[row, start : end + 1] = 1
        # Models that encode the query alone do so once for all rows that share it.
        first: dict[bytes, int] = {}
        return EncoderInput(
            torch.from_numpy(input_ids),
            torch.from_numpy(mask),
            torch.from_numpy(segments) if self.backbone.num_segments > 1 else None,
            torch.tensor([len(chunk.query) for chunk in chunks]),
            tuple(RowSize(len(chunk.query), len(chunk.text)) for chunk in chunks),
            tuple(first.setdefault(chunk.query.tobytes(), row) for row, chunk in enumerate(chunks)),
            padded=min(map(len, chunks)) < shape[1],
            flat=flat_rows(mask),
        )


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
