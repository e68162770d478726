"""The match of each part of a document with its query, by the position of the part.

Li et al., "The power of selecting key blocks with local pre-ranking for long document information
retrieval", section 3.2: retrieval status values (RSV) of blocks by position, for BM25 and for
embeddings. Here a document is cut into chunks of equally many words, a chunk's RSV is put on a
scale from 0 (the worst chunk of its document) to 1 (the best), and averaged over queries.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from rank_core.first_stage import Bm25Index

ChunkScorer = Callable[[str, Sequence[str]], Sequence[float]]
"""A query and the chunks of one document to one number for each chunk."""

NORMAL_95 = 1.96


class RelevantPair(NamedTuple):
    """A query and a document that is relevant to it."""

    query_id: str
    query: str
    doc_id: str
    text: str


class ChunkScore(NamedTuple):
    """One chunk of a document."""

    query_id: str
    doc_id: str
    chunk: int
    start: float  # relative: 0 is the start of the document, 1 its end
    end: float
    rsv: float
    scaled: float  # 0 for the worst chunk of the document, 1 for the best


class RsvPoint(NamedTuple):
    """Mean scaled RSV in one part of the documents, over queries."""

    low: float  # relative position
    high: float
    mean: float
    ci_low: float  # 95%, normal approximation over queries
    ci_high: float
    num_queries: int


class WordChunk(NamedTuple):
    """Neighbouring words of a document, with the relative positions of their ends."""

    start: float
    end: float
    text: str


def word_chunks(text: str, window: int) -> list[WordChunk]:
    """A document in equal chunks of about `window` words, at least one.

    Sizes differ by one word at most, at random places: a short chunk at one end would score lower
    for its length alone.
    """
    words = text.split()
    num_chunks = max(1, round(len(words) / window))
    bounds = [round(number * len(words) / num_chunks) for number in range(num_chunks + 1)]
    total = max(len(words), 1)
    return [
        WordChunk(start / total, end / total, " ".join(words[start:end]))
        for start, end in pairwise(bounds)
    ]


def chunk_scores(
    pairs: Iterable[RelevantPair], score: ChunkScorer, window: int
) -> Iterator[ChunkScore]:
    """The RSV of every chunk. A document with one chunk, or with equal scores of all chunks, is
    excluded."""
    for pair in pairs:
        chunks = word_chunks(pair.text, window)
        if len(chunks) < 2:
            continue
        rsv_C = np.asarray(score(pair.query, [chunk.text for chunk in chunks]), dtype=np.float64)
        low, high = float(rsv_C.min()), float(rsv_C.max())
        if high <= low:
            continue
        for number, chunk in enumerate(chunks):
            rsv = float(rsv_C[number])
            scaled = (rsv - low) / (high - low)
            yield ChunkScore(
                pair.query_id, pair.doc_id, number, chunk.start, chunk.end, rsv, scaled
            )


def rsv_curve(scores: Sequence[ChunkScore], num_bins: int) -> list[RsvPoint]:
    """Mean scaled RSV in equal parts of the documents.

    A chunk counts in each part by its share there, so documents with few chunks leave no gaps.
    Chunks are averaged within a query first, because they are not independent.
    """
    if not scores:
        return []
    edges = np.linspace(0, 1, num_bins + 1)
    share_CN = _shares(scores, edges)
    scaled_C = np.array([score.scaled for score in scores])
    queries = {query_id: q for q, query_id in enumerate(dict.fromkeys(s.query_id for s in scores))}
    query_C = np.array([queries[score.query_id] for score in scores])
    weight_QN, sum_QN = np.zeros((2, len(queries), num_bins))
    np.add.at(weight_QN, query_C, share_CN)
    np.add.at(sum_QN, query_C, share_CN * scaled_C[:, None])
    # A document's chunks cover it from end to end, so no weight is zero.
    mean_QN = sum_QN / weight_QN
    mean_N = mean_QN.mean(axis=0)
    error_N = np.full(num_bins, np.nan)
    if len(queries) > 1:
        error_N = mean_QN.std(axis=0, ddof=1) / np.sqrt(len(queries))
    return [
        RsvPoint(
            low=float(edges[n]),
            high=float(edges[n + 1]),
            mean=float(mean_N[n]),
            ci_low=float(mean_N[n] - NORMAL_95 * error_N[n]),
            ci_high=float(mean_N[n] + NORMAL_95 * error_N[n]),
            num_queries=len(queries),
        )
        for n in range(num_bins)
    ]


def _shares(scores: Sequence[ChunkScore], edges: np.ndarray) -> np.ndarray:
    """The share of the document that each chunk covers in each part, (chunks, parts)."""
    start_C1 = np.array([[score.start] for score in scores])
    end_C1 = np.array([[score.end] for score in scores])
    overlap = np.minimum(end_C1, edges[1:]) - np.maximum(start_C1, edges[:-1])
    shares: np.ndarray = np.maximum(overlap, 0)
    return shares


class Bm25Chunks:
    """BM25 of a query and a chunk; document frequencies and the mean length are those of its
    chunks, the only ones that it scores."""

    def __init__(self, chunks: Iterable[str]) -> None:
        texts = list(chunks)
        self._index = Bm25Index({f"{number:012d}": text for number, text in enumerate(texts)})
        self._numbers = {text: number for number, text in enumerate(texts)}

    def __call__(self, query: str, chunks: Sequence[str]) -> list[float]:
        scores: list[float] = self._index.scores(query)[[self._numbers[c] for c in chunks]].tolist()
        return scores
