"""Chunks of a document as token spans: pure functions, independent of tokenizer and model.

Windows at a stride, and blocks that end at sentence or clause boundaries (Ding et al., "CogLTX",
2020): on token ids, every block costs 4, every cut a cost that depends on its position, and dynamic
programming finds the cheapest segmentation into blocks of at most 63 tokens.
"""

from bisect import bisect_left
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rank_core.seeding import generator
from rank_core.settings.config import Chunking


class Span(NamedTuple):
    """The tokens [start, end) of a document."""

    start: int
    end: int


def num_chunks(num_tokens: int, window: int, stride: int) -> int:
    """The number of `chunk_spans`, without making them."""
    return -(-max(0, num_tokens - window) // stride) + 1


@lru_cache(maxsize=65536)
def chunk_spans(num_tokens: int, window: int, stride: int) -> tuple[Span, ...]:
    """The ceil(max(0, n - window) / stride) + 1 spans of a document of n = `num_tokens` tokens.

    They cover the document: spans start `stride` apart, the last one ends at the document's end,
    and none contains another. An empty document has one empty span, so that it gets a score.
    """
    # A window that begins within the last one would lie inside it: the count is of windows that add
    # a token.
    starts = range(0, num_chunks(num_tokens, window, stride) * stride, stride)
    return tuple(Span(start, min(start + window, num_tokens)) for start in starts)


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
    # No trial's seed: all trials read the same chunks, in training and in scoring, so that a
    # difference between seeds is none of reading.
    rng = generator(0, "overflow", doc_id, len(spans), limit)
    # The first and the last chunk are kept anyway.
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
    # What determines the spans, with the stride left out where a document has one chunk: settings
    # that differ on paper alone have equal signatures.
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
    # No document has chunks further apart than its first and last.
    # Chunks further apart than a window share no token.
    for gap in range(1, min(-(-window // stride), int(whole.max(initial=1)))):
        # All gaps are identically distributed; C(between - gap, kept - 1) of the C(between, kept)
        # samples have a gap of this many chunks at a given place.
        overlap += (limit - 1) * share * (window - gap * stride)
        # The ratio of successive binomial coefficients: no factorials, no overflow.
        share = share * np.maximum(between - gap - kept + 1, 0) / np.maximum(between - gap, 1)
    return overlap


BLOCK_TOKENS = 63  # maximum
BLOCK_COST = 4
FORCED_CUT_COST = 8  # of a cut after BLOCK_TOKENS tokens without a mark
MARK_COSTS = {"\n": 0, ".": 1, "?": 1, "!": 1, ",": 2}  # of a cut after this punctuation mark
NO_MARK = -1
WORD_STARTS = ("", "Ġ", "▁")  # prefixes of a token after a space: byte-level BPE, SentencePiece
BYTE_LEVEL_NEWLINE = "Ċ"


def mark_costs(tokenizer: Any) -> NDArray[np.int8]:
    """cost_V: the cost of a cut after each token of the vocabulary; NO_MARK for other tokens."""
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    cost_V = np.full(max(vocabulary.values(), default=0) + 1, NO_MARK, dtype=np.int8)
    for mark, cost in [*MARK_COSTS.items(), (BYTE_LEVEL_NEWLINE, MARK_COSTS["\n"])]:
        # A mark may be a token of its own or begin with the sign of a space before it.
        for start in WORD_STARTS:
            if start + mark in vocabulary:
                cost_V[vocabulary[start + mark]] = cost
    return cost_V


def block_spans(tokens: NDArray[np.int32], cost_V: NDArray[np.int8]) -> tuple[Span, ...]:
    """The cheapest blocks that cover `tokens`; empty for no tokens. Among equally cheap
    segmentations, the one with the shortest last block wins, then the one before it."""
    if not len(tokens):
        return ()
    ends, costs = _possible_ends(tokens, cost_V)
    least = [0]  # cost of the cheapest segmentation up to each possible end
    previous = [0]
    for i in range(1, len(ends)):
        # The first end from which a block to here is not too long.
        near = bisect_left(ends, ends[i] - BLOCK_TOKENS)
        # `min` returns the first minimum, here the nearest.
        best = min(range(i - 1, near - 1, -1), key=least.__getitem__)
        least.append(least[best] + costs[i] + BLOCK_COST)
        previous.append(best)
    spans, i = [], len(ends) - 1
    while i > 0:
        spans.append(Span(ends[previous[i]], ends[i]))
        i = previous[i]
    return tuple(reversed(spans))


def _possible_ends(
    tokens: NDArray[np.int32], cost_V: NDArray[np.int8]
) -> tuple[list[int], list[int]]:
    """The possible ends of blocks and their costs: the start, after each mark, the document's end,
    and forced cuts, so that adjacent ends are at most a block apart."""
    cost_T = cost_V[tokens]
    marks = np.flatnonzero(cost_T != NO_MARK)
    places = [(int(mark) + 1, int(cost_T[mark])) for mark in marks]
    if not places or places[-1][0] < len(tokens):
        places.append((len(tokens), 0))
    ends, costs = [0], [0]
    for end, cost in places:
        # Without a mark nothing could end here: forced cuts keep the problem solvable.
        while end - ends[-1] > BLOCK_TOKENS:
            ends.append(ends[-1] + BLOCK_TOKENS)
            costs.append(FORCED_CUT_COST)
        ends.append(end)
        costs.append(cost)
    return ends, costs
