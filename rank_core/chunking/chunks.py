"""Chunks of a document as token spans: pure functions without a tokenizer or a model."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rank_core.seeding import generator
from rank_core.settings.config import Chunking


class Span(NamedTuple):
    """Tokens [start, end) of a document."""

    start: int
    end: int


@lru_cache(maxsize=65536)
def chunk_spans(num_tokens: int, window: int, stride: int) -> tuple[Span, ...]:
    """The ceil(max(0, n - window) / stride) + 1 spans of a document of n = `num_tokens` tokens.

    Lossless: neighbours start `stride` apart, the last span touches the end, none lies inside
    another. An empty document has one empty span, so that it still gets a score.
    """
    num_chunks = -(-max(0, num_tokens - window) // stride) + 1
    starts = range(0, num_chunks * stride, stride)
    return tuple(Span(start, min(start + window, num_tokens)) for start in starts)


def coarser_ends(num_tokens: int, chunking: Chunking) -> tuple[Span, ...]:
    """The last spans that multiples of `chunking.stride` cut and that `document_spans` lacks.

    A coarser stride may leave more of the window beyond the end: with n = 200, w = 150, stride 75
    cuts [0, 150) and [75, 200), stride 150 cuts [0, 150) and [150, 200). None of a document that
    `max_chunks` cuts short.
    """
    num_tokens = min(num_tokens, chunking.max_document_tokens)
    window, stride = chunking.window, chunking.stride
    num_chunks = len(chunk_spans(num_tokens, window, stride))
    if 0 < chunking.max_chunks < num_chunks:
        return ()
    multiples = range(2, window // stride + 1)
    ends = {chunk_spans(num_tokens, window, multiple * stride)[-1] for multiple in multiples}
    return tuple(sorted(ends - {chunk_spans(num_tokens, window, stride)[-1]}))


def document_spans(doc_id: str, num_tokens: int, chunking: Chunking) -> tuple[Span, ...]:
    """The spans a model reads of one document, after the token limit and the overflow policy.

    `first-last-sampled` keeps the first chunk, the last, and a sample of those between in document
    order (Zhang, Yates & Lin 2021). The sample depends on the document alone, never on the batch.
    """
    num_tokens = min(num_tokens, chunking.max_document_tokens)
    spans = chunk_spans(num_tokens, chunking.window, chunking.stride)
    limit = chunking.max_chunks
    if limit == 0 or len(spans) <= limit:
        return spans
    if chunking.overflow == "first" or limit == 1:
        return spans[:limit]
    rng = generator(0, "overflow", doc_id, len(spans), limit)
    middle = rng.choice(len(spans) - 2, size=limit - 2, replace=False) + 1
    return (spans[0], *(spans[i] for i in sorted(middle)), spans[-1])


class SpanCounts(NamedTuple):
    """The spans of documents of n different lengths, an entry for each length."""

    chunks: NDArray[np.int64]
    tokens: NDArray[np.int64]  # of all chunks; what several show counts several times
    covered: NDArray[np.float64]  # tokens that some chunk shows; the mean where chunks are drawn
    signature: bytes  # equal only where the spans of every document are equal


def span_counts(lengths: NDArray[np.int64], chunking: Chunking) -> SpanCounts:
    """The counts of `document_spans` for documents of these lengths, in closed form."""
    window, stride, limit = chunking.window, chunking.stride, chunking.max_chunks
    ends = np.minimum(lengths, chunking.max_document_tokens)
    whole = -(-np.maximum(ends - window, 0) // stride) + 1
    chunks = np.minimum(whole, limit) if limit else whole
    drawn = (chunks < whole) & (chunking.overflow != "first" and limit > 1)
    ends = np.where((chunks < whole) & ~drawn, (chunks - 1) * stride + window, ends)
    last = np.where(drawn, whole, chunks) - 1
    tokens = (chunks - 1) * window + ends - last * stride
    covered = np.where(drawn, tokens - _mean_overlap(whole, chunking), ends)
    steps = np.where(chunks > 1, stride, 0)
    spans = (chunks, np.minimum(ends, window), steps, ends, np.where(drawn, whole, 0))
    return SpanCounts(chunks, tokens, covered, np.stack(spans).astype(np.int64).tobytes())


def _mean_overlap(whole: NDArray[np.int64], chunking: Chunking) -> NDArray[np.float64]:
    """Tokens that neighbours share, over all samples of `max_chunks` of more than that many chunks
    which `document_spans` may draw."""
    window, stride, limit = chunking.window, chunking.stride, chunking.max_chunks
    if limit == 2:
        return np.maximum(window - (whole - 1) * stride, 0).astype(np.float64)
    between, kept = np.maximum(whole - 2, 1), limit - 2
    overlap, share = np.zeros(len(whole)), kept / between
    for gap in range(1, -(-window // stride)):
        # All gaps between neighbours are alike; a gap of so many chunks has C(between - gap,
        # kept - 1) of the C(between, kept) samples.
        overlap += (limit - 1) * share * (window - gap * stride)
        share = share * np.maximum(between - gap - kept + 1, 0) / np.maximum(between - gap, 1)
    return overlap
