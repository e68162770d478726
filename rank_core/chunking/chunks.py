"""Chunks of a document as token spans: pure functions, independent of tokenizer and model."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rank_core.seeding import generator
from rank_core.settings.config import Chunking


class Span(NamedTuple):
    """The tokens [start, end) of a document."""

    start: int
    end: int


@lru_cache(maxsize=65536)
def chunk_spans(num_tokens: int, window: int, stride: int) -> tuple[Span, ...]:
    """The ceil(max(0, n - window) / stride) + 1 spans of a document of n = `num_tokens` tokens.

    They cover the document: spans start `stride` apart, the last one ends at the document's end,
    and none contains another. An empty document has one empty span, so that it gets a score.
    """
    num_chunks = -(-max(0, num_tokens - window) // stride) + 1
    starts = range(0, num_chunks * stride, stride)
    return tuple(Span(start, min(start + window, num_tokens)) for start in starts)


def coarser_ends(num_tokens: int, chunking: Chunking) -> tuple[Span, ...]:
    """The last spans under coarser strides, multiples of `chunking.stride`, that `document_spans`
    does not have.

    With n = 200 and window 150, stride 75 gives [0, 150) and [75, 200), but stride 150 gives
    [0, 150) and [150, 200). Empty for a document that `max_chunks` cuts short.
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
    """The spans that a model reads of a document, after truncation and the overflow policy.

    `first-last-sampled` keeps the first chunk, the last chunk and a sample of the others, in
    document order (Zhang, Yates & Lin 2021). The sample depends only on the document.
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
    """Counts over the spans of documents, an entry per document length."""

    chunks: NDArray[np.int64]
    tokens: NDArray[np.int64]  # of all chunks; overlaps count repeatedly
    covered: NDArray[np.float64]  # tokens in at least one chunk; the mean where chunks are sampled
    signature: bytes  # equal only if the spans of all documents are equal


def span_counts(lengths: NDArray[np.int64], chunking: Chunking) -> SpanCounts:
    """The counts of `document_spans` for the given document lengths, in closed form."""
    window, stride, limit = chunking.window, chunking.stride, chunking.max_chunks
    ends = np.minimum(lengths, chunking.max_document_tokens)
    whole = -(-np.maximum(ends - window, 0) // stride) + 1
    chunks = np.minimum(whole, limit) if limit else whole
    sampled = (chunks < whole) & (chunking.overflow != "first" and limit > 1)
    ends = np.where((chunks < whole) & ~sampled, (chunks - 1) * stride + window, ends)
    last = np.where(sampled, whole, chunks) - 1
    tokens = (chunks - 1) * window + ends - last * stride
    covered = np.where(sampled, tokens - _mean_overlap(whole, chunking), ends)
    steps = np.where(chunks > 1, stride, 0)
    spans = (chunks, np.minimum(ends, window), steps, ends, np.where(sampled, whole, 0))
    return SpanCounts(chunks, tokens, covered, np.stack(spans).astype(np.int64).tobytes())


def _mean_overlap(whole: NDArray[np.int64], chunking: Chunking) -> NDArray[np.float64]:
    """The expected number of tokens shared by adjacent chunks over the samples of `max_chunks`
    chunks that `document_spans` may draw."""
    window, stride, limit = chunking.window, chunking.stride, chunking.max_chunks
    if limit == 2:
        return np.maximum(window - (whole - 1) * stride, 0).astype(np.float64)
    between, kept = np.maximum(whole - 2, 1), limit - 2
    overlap, share = np.zeros(len(whole)), kept / between
    for gap in range(1, -(-window // stride)):
        # All gaps are identically distributed; C(between - gap, kept - 1) of the C(between, kept)
        # samples have a gap of this many chunks at a given place.
        overlap += (limit - 1) * share * (window - gap * stride)
        share = share * np.maximum(between - gap - kept + 1, 0) / np.maximum(between - gap, 1)
    return overlap
