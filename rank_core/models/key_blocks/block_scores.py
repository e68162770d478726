"""Scores of a query's words against each block of a document: TF-IDF and BM25 (Li et al. 2023).

Documents are token ids. A word is its joined, lower-cased word pieces, represented by a hash.
Punctuation is a separate token and no word: `harbour.` matches `harbour`, which splitting at spaces
would miss.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rank_core.cache import cached_directory
from rank_core.chunking.token_store import TokenStore

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

    def idf(num_documents: int, counts_Q: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.log((1 + num_documents) / (1 + counts_Q)) + 1

    tf_QK, idf_Q = _statistics(query, document, df, idf)
    weight_QK = np.where(tf_QK > 0, 1 + np.log10(np.maximum(tf_QK, 1)), 0.0)
    return np.asarray(idf_Q @ weight_QK)


def bm25(query: Words, document: BlockWords, df: DocumentFrequencies) -> NDArray[np.float64]:
    """score_K of the blocks: the sum over distinct query words of
    idf tf / (k1 (1 - b + b length / mean length) + tf) with Lucene's idf,
    ln(1 + (N - df + .5) / (df + .5)); the mean length is over the document's blocks."""

    def idf(num_documents: int, counts_Q: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.log1p((num_documents - counts_Q + 0.5) / (counts_Q + 0.5))

    tf_QK, idf_Q = _statistics(query, document, df, idf)
    length_K = np.bincount(document.block_W, minlength=document.num_blocks)
    relative_K = length_K / max(length_K.mean(), 1e-9)
    return np.asarray(idf_Q @ (tf_QK / (K1 * (1 - B + B * relative_K) + tf_QK)))


BLOCK_SCORES: dict[str, Callable[[Words, BlockWords, DocumentFrequencies], NDArray[np.float64]]] = {
    "tfidf": tf_idf,
    "bm25": bm25,
}


def _statistics(
    query: Words,
    document: BlockWords,
    df: DocumentFrequencies,
    idf: Callable[[int, NDArray[np.int64]], NDArray[np.float64]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(tf_QK, idf_Q) of the distinct words of a query."""
    distinct = np.unique(query)
    tf_QK = np.zeros((len(distinct), document.num_blocks))
    place_W = np.searchsorted(distinct, document.words)
    known_W = place_W < len(distinct)
    known_W[known_W] = distinct[place_W[known_W]] == document.words[known_W]
    np.add.at(tf_QK, (place_W[known_W], document.block_W[known_W]), 1)
    df_Q = df.of(distinct)
    return tf_QK, np.where(df_Q > 0, idf(df.num_documents, df_Q), UNSEEN_IDF)


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


def _factors(size: int) -> Words:
    """Powers of an odd number modulo 2^64, which make hashes depend on the order of pieces."""
    base = 0x9E3779B97F4A7C15
    return np.array([pow(base, i, 1 << 64) for i in range(size)], dtype=np.uint64)


_FACTORS = _factors(128)
