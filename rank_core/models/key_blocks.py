"""Key blocks of a document (Li et al. 2023): scores of a query's words against each block, TF-IDF
and BM25; selectors and selection; encoder input, either the selected blocks as passages or all
blocks, from which the model selects.

Documents are token ids. A word is its joined, lower-cased word pieces, represented by a hash.
Punctuation is a separate token and no word: `harbour.` matches `harbour`, which splitting at spaces
would miss. Shapes: C blocks of all documents, L tokens.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rank_core.cache import cached_directory
from rank_core.chunking.batches import Chunk, ChunkBatch, PairEncoder
from rank_core.chunking.chunks import Span, block_spans, chunk_spans, mark_costs
from rank_core.chunking.encoder_input import (
    CPU,
    NUM_SPECIAL,
    EncoderInput,
    RowSize,
    SelectedRows,
)
from rank_core.chunking.token_store import TokenStore
from rank_core.encoders.flat_rows import flat_rows, on, rows_of_lengths
from rank_core.errors import BadInput, unknown
from rank_core.seeding import generator
from rank_core.settings.config import Model

Words = NDArray[np.uint64]

K1, B = 0.9, 0.4
UNSEEN_IDF = 10.0  # of words in no document of the collection
STATISTICS_VERSION = 1
WORDS_AT_ONCE = 1 << 22  # distinct words buffered between merges
MARKERS = ("Ġ", "▁")  # prefixes of a token after a space: byte-level BPE, SentencePiece
CONTINUES = "##"  # prefix of a WordPiece token within a word


class WordPieces:
    """Maps token ids to words, for a tokenizer's vocabulary."""

    def __init__(self, tokenizer: Any) -> None:
        vocabulary: dict[str, int] = tokenizer.get_vocab()
        size = max(vocabulary.values(), default=0) + 1
        special = set(tokenizer.all_special_ids)
        self._hash_V = np.zeros(size, dtype=np.uint64)
        self._is_word_V = np.zeros(size, dtype=bool)
        self._starts_V = np.ones(size, dtype=bool)
        word_pieces = any(token.startswith(CONTINUES) for token in vocabulary)
        marked = any(token.startswith(MARKERS) for token in vocabulary)
        for token, i in vocabulary.items():
            piece = token.removeprefix(CONTINUES) if word_pieces else token.lstrip("".join(MARKERS))
            self._hash_V[i] = _hash(piece.lower())
            self._is_word_V[i] = i not in special and any(map(str.isalnum, piece))
            if word_pieces:
                self._starts_V[i] = not token.startswith(CONTINUES)
            elif marked:
                self._starts_V[i] = token.startswith(MARKERS)

    def words(self, tokens: NDArray[np.int32]) -> tuple[Words, NDArray[np.int64]]:
        """The words in order, and the position of each word's first token."""
        is_word_T, starts_T = self._is_word_V[tokens], self._starts_V[tokens].copy()
        if not is_word_T.any():
            return np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64)
        # Punctuation is separate, and the token after it starts a word.
        starts_T[1:] |= ~is_word_T[1:] | ~is_word_T[:-1]
        starts_T[0] = True
        start_W = np.flatnonzero(starts_T)
        place_T = np.arange(len(tokens)) - np.repeat(start_W, np.diff([*start_W, len(tokens)]))
        factor_T = _FACTORS[np.minimum(place_T, len(_FACTORS) - 1)]
        # A word's hash is a polynomial of its pieces' hashes: whole documents without a loop over
        # words. Unsigned numbers wrap around, as modulo 2^64 means.
        word_W: Words = np.add.reduceat(self._hash_V[tokens] * factor_T, start_W)
        kept_W = is_word_T[start_W]
        return word_W[kept_W], start_W[kept_W]


class DocumentFrequencies(NamedTuple):
    """The number of documents of a collection that contain each word."""

    num_documents: int
    words: Words  # sorted
    counts: NDArray[np.int64]

    def of(self, words: Words) -> NDArray[np.int64]:
        """df_Q of words; 0 for unseen ones."""
        if not len(self.words):
            return np.zeros(len(words), dtype=np.int64)
        # A word behind the last has no place; the comparison below then finds that it is unknown.
        place_Q = np.minimum(np.searchsorted(self.words, words), len(self.words) - 1)
        return np.where(self.words[place_Q] == words, self.counts[place_Q], 0)


class KnownFrequencies(dict[str, NDArray[np.int32]]):
    """Tokens of a few documents, with the document frequencies of the collection that a model was
    trained on, if it needs them."""

    frequencies: DocumentFrequencies | None = None


def document_frequencies(
    tokens: Mapping[str, NDArray[np.int32]], pieces: WordPieces
) -> DocumentFrequencies:
    """Document frequencies of all words. For a token store they are kept on disk, under the name of
    its folder, which identifies contents and tokenizer."""
    if isinstance(tokens, KnownFrequencies) and tokens.frequencies is not None:
        return tokens.frequencies
    if not isinstance(tokens, TokenStore):
        return count_documents(tokens.values(), pieces)
    key = f"{tokens.folder.name}-{STATISTICS_VERSION}"

    def build(folder: Path) -> None:
        counted = count_documents(tokens.values(), pieces)
        np.save(folder / "num_documents.npy", counted.num_documents)
        np.save(folder / "words.npy", counted.words)
        np.save(folder / "counts.npy", counted.counts)

    folder = cached_directory("document-frequencies", key, build)
    return DocumentFrequencies(
        int(np.load(folder / "num_documents.npy")),
        np.load(folder / "words.npy", mmap_mode="r"),
        np.load(folder / "counts.npy", mmap_mode="r"),
    )


def count_documents(
    documents: Iterable[NDArray[np.int32]], pieces: WordPieces
) -> DocumentFrequencies:
    """Counts in one pass over the documents."""
    words, counts = np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64)
    pending: list[Words] = []
    num_documents = size = 0
    for tokens in documents:
        num_documents += 1
        pending.append(np.unique(pieces.words(tokens)[0]))
        size += len(pending[-1])
        if size >= WORDS_AT_ONCE:
            words, counts = _merge(words, counts, pending)
            pending, size = [], 0
    return DocumentFrequencies(num_documents, *_merge(words, counts, pending))


class BlockWords(NamedTuple):
    """The words of a document, and the block in which each begins."""

    words: Words
    block_W: NDArray[np.int64]
    num_blocks: int


def tf_idf(query: Words, document: BlockWords, df: DocumentFrequencies) -> NDArray[np.float64]:
    """score_K of the blocks: the sum over distinct query words in the block of
    (1 + log10 tf) (ln((1 + N) / (1 + df)) + 1), with scikit-learn's smoothed idf."""
    tf_QK, df_Q = _statistics(query, document, df)
    idf_Q = np.where(df_Q > 0, np.log((1 + df.num_documents) / (1 + df_Q)) + 1, UNSEEN_IDF)
    weight_QK = np.where(tf_QK > 0, 1 + np.log10(np.maximum(tf_QK, 1)), 0.0)
    return np.asarray(idf_Q @ weight_QK)


def bm25(query: Words, document: BlockWords, df: DocumentFrequencies) -> NDArray[np.float64]:
    """score_K of the blocks: the sum over distinct query words of
    idf tf / (k1 (1 - b + b length / mean length) + tf) with Lucene's idf,
    ln(1 + (N - df + .5) / (df + .5)); the mean length is over the document's blocks."""
    tf_QK, df_Q = _statistics(query, document, df)
    known_Q = np.log1p((df.num_documents - df_Q + 0.5) / (df_Q + 0.5))
    idf_Q = np.where(df_Q > 0, known_Q, UNSEEN_IDF)
    length_K = np.bincount(document.block_W, minlength=document.num_blocks)
    # Blocks are compared with each other: the lengths of other documents do not matter.
    relative_K = length_K / max(length_K.mean(), 1e-9)
    return np.asarray(idf_Q @ (tf_QK / (K1 * (1 - B + B * relative_K) + tf_QK)))


BLOCK_SCORES: dict[str, Callable[[Words, BlockWords, DocumentFrequencies], NDArray[np.float64]]] = {
    "tfidf": tf_idf,
    "bm25": bm25,
}


def _statistics(
    query: Words, document: BlockWords, df: DocumentFrequencies
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """(tf_QK, df_Q) of the distinct words of a query."""
    distinct = np.unique(query)
    tf_QK = np.zeros((len(distinct), document.num_blocks))
    place_W = np.searchsorted(distinct, document.words)
    known_W = place_W < len(distinct)
    known_W[known_W] = distinct[place_W[known_W]] == document.words[known_W]
    np.add.at(tf_QK, (place_W[known_W], document.block_W[known_W]), 1)
    return tf_QK, df.of(distinct)


def _merge(
    words: Words, counts: NDArray[np.int64], documents: list[Words]
) -> tuple[Words, NDArray[np.int64]]:
    """The counts, incremented for each document's distinct words."""
    new = np.concatenate([words, *documents])
    weights = np.concatenate([counts, np.ones(len(new) - len(words), dtype=np.int64)])
    merged, place = np.unique(new, return_inverse=True)
    total = np.zeros(len(merged), dtype=np.int64)
    np.add.at(total, place, weights)
    return merged, total


def _hash(piece: str) -> int:
    return int.from_bytes(hashlib.blake2b(piece.encode(), digest_size=8).digest(), "little")


# Powers of an odd number modulo 2^64, which make hashes depend on the order of pieces.
_FACTORS = np.array([pow(0x9E3779B97F4A7C15, i, 1 << 64) for i in range(128)], dtype=np.uint64)


FROM_TEXT = ("tfidf", "bm25", "random", "first-last-sampled")
LEARNED = ("learned-shared", "learned-separate", "bm25-then-learned")
DEFAULT = "bm25"
CASCADE_SURPLUS = 2  # tokens that BM25 passes on, as a multiple of those that are read
TRUNCATE_LATEST = "truncate-latest"
"""If the selected blocks are too long together, the reference implementation truncates the one
latest in the document; the paper, and this code without the quirk, the one selected last."""


class Passages(NamedTuple):
    """The passages in which the selected text is read: size, stride, number."""

    window: int
    stride: int
    number: int

    @property
    def budget(self) -> int:
        """The number of text tokens that fit."""
        return self.window + (self.number - 1) * self.stride

    def spans(self, num_tokens: int) -> tuple[Span, ...]:
        """The spans of the passages of a text of at most `budget` tokens."""
        return chunk_spans(num_tokens, self.window, self.stride)


def selector_of(settings: Model) -> str:
    """The selector of the settings, BM25 by default. Raises `BadInput` for unknown selectors and
    settings without effect."""
    selector = settings.selector or DEFAULT
    if selector not in (*FROM_TEXT, *LEARNED):
        raise unknown("model.selector", selector, (*FROM_TEXT, *LEARNED))
    if settings.selector_backbone and selector != "learned-separate":
        raise BadInput(
            "model.selector_backbone has no effect with model.selector="
            f"{selector}, got {settings.selector_backbone!r}; it is for learned-separate"
        )
    return selector


def by_score(score_K: NDArray[np.float64]) -> list[int]:
    """Blocks by descending score; ties in document order."""
    return np.argsort(-score_K, kind="stable").tolist()


def by_chance(selector: str, num_blocks: int, query: NDArray[np.int32], doc_id: str) -> list[int]:
    """The order of `random`, or of `first-last-sampled`: first, last, then random. It depends only
    on query and document."""
    rng = generator(0, "blocks", doc_id, np.asarray(query, np.int32).tobytes().hex())
    if selector == "random" or num_blocks < 3:
        return rng.permutation(num_blocks).tolist()
    return [0, num_blocks - 1, *(rng.permutation(num_blocks - 2) + 1).tolist()]


def within(order: Iterable[int], lengths: Sequence[int], budget: int) -> list[int]:
    """The first blocks of an order that reach `budget` tokens; the last one may exceed it."""
    chosen = []
    for block in order:
        if budget <= 0:
            break
        chosen.append(block)
        budget -= lengths[block]
    return chosen


def fitting(
    order: Iterable[int], lengths: Sequence[int], budget: int, *, truncate_latest: bool
) -> list[tuple[int, int]]:
    """(block, number of tokens read) of the selected blocks, in document order."""
    chosen = within(order, lengths, budget)
    read = {block: lengths[block] for block in chosen}
    surplus = sum(read.values()) - budget
    for block in sorted(chosen, reverse=True) if truncate_latest else chosen[::-1]:
        cut = min(max(surplus, 0), read[block])
        read[block] -= cut
        surplus -= cut
    return sorted((block, size) for block, size in read.items() if size)


def some_rows(inputs: EncoderInput, rows: Sequence[int]) -> EncoderInput:
    """Selected rows of an input, cut to the longest of them."""
    sizes = tuple(inputs.sizes[row] for row in rows)
    width = max(map(len, sizes))
    flat = rows_of_lengths([len(size) for size in sizes], width)
    row_R = on(inputs.device, torch.tensor(rows))
    segments = inputs.token_type_ids_CL
    return SelectedRows(
        inputs.input_ids_CL[row_R, :width],
        inputs.attention_mask_CL[row_R, :width],
        None if segments is None else segments[row_R, :width],
        inputs.query_length_C[row_R],
        sizes,
        padded=min(map(len, sizes)) < width,
        flat=on(row_R.device, flat),
    )


def with_segments(inputs: EncoderInput, wanted: bool) -> EncoderInput:
    """The input with or without segments for query and text, as the encoder needs."""
    if wanted == (inputs.token_type_ids_CL is not None):
        return inputs
    place_L = torch.arange(inputs.width, device=inputs.device)
    of_text_CL = (place_L >= inputs.query_length_C[:, None] + 2) & (inputs.attention_mask_CL == 1)
    return SelectedRows(
        inputs.input_ids_CL,
        inputs.attention_mask_CL,
        of_text_CL.long() if wanted else None,
        inputs.query_length_C,
        inputs.sizes,
        inputs.query_rows,
        padded=inputs.padded,
        flat=inputs.flat,
    )


def passages_of(
    batch: ChunkBatch, chosen: Sequence[Sequence[tuple[int, int]]], pad_id: int
) -> ChunkBatch:
    """The passages of each document's `chosen` blocks, given as (block, number of tokens)."""
    width = batch.inputs.width
    places: list[NDArray[np.int64]] = []
    counts, sources, first = [], [], 0
    for count, passages, blocks in zip(batch.counts, batch.passages, chosen, strict=True):
        num_query_tokens, num_tokens = batch.inputs.sizes[first]
        start = num_query_tokens + 2
        text = [np.arange(size) + (first + block) * width + start for block, size in blocks]
        text_T = np.concatenate([np.zeros(0, dtype=np.int64), *text])
        before = np.arange(start) + first * width
        after = np.array([first * width + start + num_tokens])
        spans = passages.spans(len(text_T))
        places += [np.concatenate([before, text_T[s:e], after]) for s, e in spans]
        counts.append(len(spans))
        sources += [first] * len(spans)
        first += count
    return ChunkBatch(_gather(batch.inputs, places, sources, pad_id), tuple(counts))


def _gather(
    inputs: EncoderInput, places: Sequence[NDArray[np.int64]], sources: list[int], pad_id: int
) -> EncoderInput:
    """Rows of the tokens at `places` of the flat input; other facts come from the `sources`
    rows."""
    # A passage is a gather from the flat input of all blocks: nothing is tokenised again, and the
    # device need not be asked.
    place_CL = np.zeros((len(places), max(map(len, places))), dtype=np.int64)
    real_CL = np.zeros(place_CL.shape, dtype=bool)
    for row, place in enumerate(places):
        place_CL[row, : len(place)] = place
        real_CL[row, : len(place)] = True

    def moved(values: NDArray[Any]) -> Tensor:
        return on(inputs.device, torch.from_numpy(values))

    at, real = moved(place_CL), moved(real_CL)
    segments = inputs.token_type_ids_CL
    queries = [inputs.sizes[source].num_query for source in sources]
    return SelectedRows(
        inputs.input_ids_CL.flatten()[at].masked_fill(~real, pad_id),
        real.long(),
        None if segments is None else segments.flatten()[at].masked_fill(~real, 0),
        inputs.query_length_C[moved(np.asarray(sources))],
        tuple(
            RowSize(num_query, len(place) - num_query - NUM_SPECIAL)
            for num_query, place in zip(queries, places, strict=True)
        ),
        padded=not real_CL.all(),
        flat=on(at.device, flat_rows(real_CL.astype(np.int64))),
    )


DOCUMENTS_KEPT = 4096  # segmented documents cached in memory, for later epochs


class Blocks(NamedTuple):
    """A segmented document."""

    tokens: NDArray[np.int32]
    spans: tuple[Span, ...]  # at least one

    @property
    def lengths(self) -> list[int]:
        """The number of tokens of each block."""
        return [end - start for start, end in self.spans]


class DocumentBlocks:
    """The documents of a collection as blocks, with word statistics."""

    def __init__(
        self, tokens: Mapping[str, NDArray[np.int32]], tokenizer: Any, max_document_tokens: int
    ) -> None:
        self._tokens, self._tokenizer, self._limit = tokens, tokenizer, max_document_tokens
        self._costs = mark_costs(tokenizer)
        self.of = lru_cache(DOCUMENTS_KEPT)(self._segment)
        self.words_of = lru_cache(DOCUMENTS_KEPT)(self._words_of)

    @cached_property
    def pieces(self) -> WordPieces:
        """The words of the tokenizer's vocabulary."""
        return WordPieces(self._tokenizer)

    @cached_property
    def frequencies(self) -> DocumentFrequencies:
        """Document frequencies of the collection's words, counted on first use."""
        return document_frequencies(self._tokens, self.pieces)

    def _segment(self, doc_id: str) -> Blocks:
        tokens = self._tokens[doc_id][: self._limit]
        return Blocks(tokens, block_spans(tokens, self._costs) or (Span(0, 0),))

    def _words_of(self, doc_id: str) -> BlockWords:
        tokens, spans = self.of(doc_id)
        words, start_W = self.pieces.words(tokens)
        ends = [end for _, end in spans]
        # A word belongs to the block in which it begins, also where its pieces cross the boundary.
        return BlockWords(words, np.searchsorted(ends, start_W, side="right"), len(spans))

    def scores(self, name: str, query: NDArray[np.int32], doc_id: str) -> NDArray[np.float64]:
        """score_K of a document's blocks by an entry of `BLOCK_SCORES`."""
        words, _ = self.pieces.words(np.asarray(query, dtype=np.int32))
        return BLOCK_SCORES[name](words, self.words_of(doc_id), self.frequencies)


@dataclass(frozen=True)
class BlockReader(PairEncoder):
    """Selects a document's blocks, or leaves the selection to the model."""

    selector: str
    num_passages: int  # of the chunking's window and stride; 0: one that fills the encoder
    truncate_latest: bool
    blocks: DocumentBlocks = field(compare=False)

    def passages(self, num_query_tokens: int) -> Passages:
        """The passages read with a query of `num_query_tokens` tokens."""
        if self.num_passages:
            return Passages(self.chunking.window, self.chunking.stride, self.num_passages)
        limit = self.backbone.max_window(num_query_tokens)
        return Passages(limit, limit, 1)

    def chunks(self, query: NDArray[np.int32], doc_id: str) -> list[Chunk]:
        """The passages of the selected blocks; every block separately if the model selects."""
        tokens, spans = self.blocks.of(doc_id)
        read = self.blocks_of(query, doc_id)
        if self.selector in LEARNED:
            return self.rows(query, [tokens[slice(*spans[i])] for i, _ in read])
        starts = [(spans[i].start, size) for i, size in read]
        text = np.concatenate([tokens[start : start + size] for start, size in starts])
        return self.rows(query, [text[s:e] for s, e in self.passages(len(query)).spans(len(text))])

    def blocks_of(self, query: NDArray[np.int32], doc_id: str) -> list[tuple[int, int]]:
        """(block, number of tokens) of the selected blocks, in document order; of those that a
        model selects from. A document that fits is read as a whole."""
        document = self.blocks.of(doc_id)
        lengths, budget = document.lengths, self.passages(len(query)).budget
        whole = list(enumerate(lengths))
        if len(document.tokens) <= budget:
            return whole
        if self.selector == "bm25-then-learned":
            order = self._order("bm25", query, doc_id)
            return [whole[i] for i in sorted(within(order, lengths, CASCADE_SURPLUS * budget))]
        if self.selector in LEARNED:
            return whole
        order = self._order(self.selector, query, doc_id)
        return fitting(order, lengths, budget, truncate_latest=self.truncate_latest)

    def num_tokens(self, query: NDArray[np.int32], doc_id: str) -> int:
        """What fits of a document; a model that selects reads all of it."""
        whole = super().num_tokens(query, doc_id)
        return whole if self.selector in LEARNED else min(whole, self.passages(len(query)).budget)

    def collate(
        self, documents: Sequence[Sequence[Chunk]], device: torch.device = CPU
    ) -> ChunkBatch:
        """A batch; with what the model needs to select blocks, if it does."""
        batch = super().collate(documents, device)
        if self.selector not in LEARNED:
            return batch
        prefix, middle, _ = self.backbone.layout.tokens
        around = len(prefix) + len(middle) - 2  # which count as of the query in `rows`
        passages = [self.passages(len(document[0].query) - around) for document in documents]
        return batch._replace(passages=tuple(passages))

    def _order(self, selector: str, query: NDArray[np.int32], doc_id: str) -> list[int]:
        if selector in BLOCK_SCORES:
            return by_score(self.blocks.scores(selector, query, doc_id))
        return by_chance(selector, len(self.blocks.of(doc_id).spans), query, doc_id)
