"""What KeyB is given of a document: chosen blocks as passages, or the blocks to choose from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rank_core.chunking.batches import NUM_SPECIAL, Chunk, ChunkBatch, PairEncoder
from rank_core.chunking.chunks import Span
from rank_core.chunking.cogltx import block_spans, mark_costs
from rank_core.encoders.backbones import load_tokenizer
from rank_core.models.key_blocks.block_batch import BlockBatch, BlockRow
from rank_core.models.key_blocks.block_scores import (
    BLOCK_SCORES,
    BlockWords,
    DocumentFrequencies,
    WordPieces,
    document_frequencies,
)
from rank_core.models.key_blocks.selectors import (
    CASCADE_SURPLUS,
    LEARNED,
    Passages,
    by_chance,
    by_score,
    fitting,
    within,
)

DOCUMENTS_KEPT = 4096  # that stay segmented in memory: candidates come back epoch after epoch


class Blocks(NamedTuple):
    """A segmented document."""

    tokens: NDArray[np.int32]
    spans: tuple[Span, ...]  # at least one

    @property
    def lengths(self) -> list[int]:
        """Tokens of each block."""
        return [end - start for start, end in self.spans]


class DocumentBlocks:
    """The documents of a collection as blocks, with the statistics of their words."""

    def __init__(
        self, tokens: Mapping[str, NDArray[np.int32]], tokenizer: Any, max_document_tokens: int
    ) -> None:
        self._tokens, self._tokenizer, self._limit = tokens, tokenizer, max_document_tokens
        self._costs = mark_costs(tokenizer)
        self.of = lru_cache(DOCUMENTS_KEPT)(self._segment)
        self.words_of = lru_cache(DOCUMENTS_KEPT)(self._words_of)

    @cached_property
    def pieces(self) -> WordPieces:
        """How tokens become words."""
        return WordPieces(self._tokenizer)

    @cached_property
    def frequencies(self) -> DocumentFrequencies:
        """Counted once for a collection, when first asked for."""
        return document_frequencies(self._tokens, self.pieces)

    def _segment(self, doc_id: str) -> Blocks:
        tokens = self._tokens[doc_id][: self._limit]
        return Blocks(tokens, block_spans(tokens, self._costs) or (Span(0, 0),))

    def _words_of(self, doc_id: str) -> BlockWords:
        tokens, spans = self.of(doc_id)
        words, start_W = self.pieces.words(tokens)
        ends = [end for _, end in spans]
        return BlockWords(words, np.searchsorted(ends, start_W, side="right"), len(spans))

    def scores(self, name: str, query: NDArray[np.int32], doc_id: str) -> NDArray[np.float64]:
        """score_K of a document's blocks by an entry of `BLOCK_SCORES`."""
        words, _ = self.pieces.words(np.asarray(query, dtype=np.int32))
        return BLOCK_SCORES[name](words, self.words_of(doc_id), self.frequencies)


@dataclass(frozen=True)
class BlockReader(PairEncoder):
    """Chooses a document's blocks, or leaves the choice to the model."""

    selector: str
    num_passages: int  # of the chunking's window and stride; 0: one that fills the encoder
    truncate_latest: bool
    blocks: DocumentBlocks = field(compare=False)

    @classmethod
    def over(
        cls, plain: PairEncoder, selector: str, *, num_passages: int, truncate_latest: bool
    ) -> "BlockReader":
        """A reader of the same documents."""
        limit = plain.chunking.max_document_tokens
        tokenizer = load_tokenizer(plain.backbone.folder)
        return cls(
            plain.tokens,
            plain.chunking,
            plain.first_chunk_only,
            plain.backbone,
            selector,
            num_passages,
            truncate_latest,
            DocumentBlocks(plain.tokens, tokenizer, limit),
        )

    def passages(self, num_query_tokens: int) -> Passages:
        """How much is read beside a query of so many tokens."""
        if self.num_passages:
            return Passages(self.chunking.window, self.chunking.stride, self.num_passages)
        limit = self.backbone.max_input_tokens - num_query_tokens - NUM_SPECIAL
        return Passages(limit, limit, 1)

    def chunks(self, query: NDArray[np.int32], doc_id: str) -> list[Chunk]:
        """The passages of the chosen blocks; where the model chooses, every block by itself."""
        tokens, spans = document = self.blocks.of(doc_id)
        passages = self.passages(len(query))
        fits = len(tokens) <= passages.budget
        if self.selector in LEARNED:
            kept = list(range(len(spans)))
            if self.selector == "bm25-then-learned" and not fits:
                order = self._order("bm25", query, doc_id)
                kept = sorted(within(order, document.lengths, CASCADE_SURPLUS * passages.budget))
            return [Chunk(query, tokens[slice(*spans[i])]) for i in kept]
        if not fits:
            chosen = fitting(
                self._order(self.selector, query, doc_id),
                document.lengths,
                passages.budget,
                truncate_latest=self.truncate_latest,
            )
            starts = [(spans[i].start, size) for i, size in chosen]
            tokens = np.concatenate([tokens[start : start + size] for start, size in starts])
        return [Chunk(query, tokens[start:end]) for start, end in passages.spans(len(tokens))]

    def collate(self, documents: Sequence[Sequence[Chunk]]) -> ChunkBatch:
        """One batch, with what is needed to choose from it where that is left to the model."""
        batch = super().collate(documents)
        if self.selector not in LEARNED:
            return batch
        rows = [BlockRow(len(c.query), len(c.text)) for document in documents for c in document]
        passages = [self.passages(len(document[0].query)) for document in documents]
        return BlockBatch(batch, tuple(rows), tuple(passages))

    def _order(self, selector: str, query: NDArray[np.int32], doc_id: str) -> list[int]:
        if selector in BLOCK_SCORES:
            return by_score(self.blocks.scores(selector, query, doc_id))
        return by_chance(selector, len(self.blocks.of(doc_id).spans), query, doc_id)
