"""The match of each part of a document with its query, by the position of the part.

Li et al., "The power of selecting key blocks with local pre-ranking for long document information
retrieval", section 3.2: retrieval status values (RSV) of blocks by position, for BM25 and for
embeddings. Here a document is cut into chunks of equally many words, a chunk's RSV is put on a
scale from 0 (the worst chunk of its document) to 1 (the best), and averaged over queries.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from rank_core.first_stage import Bm25Index, TextAnalysis

if TYPE_CHECKING:  # loads torch
    from rank_core.encoders.backbone_types import Backbone

ChunkScorer = Callable[[str, Sequence[str]], Sequence[float]]
"""A query and the chunks of one document to one number for each chunk."""

NORMAL_95 = 1.96
TEXTS_AT_ONCE = 32  # of an encoder


class RelevantPair(NamedTuple):
    """A query and a document that is relevant to it."""

    query_id: str
    query: str
    doc_id: str
    text: str


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


def scaled_scores(text: str, query: str, score: ChunkScorer, window: int) -> pd.DataFrame:
    """`start, end, scaled` of every chunk, 0 for the worst of the document and 1 for the best; none
    of a document with one chunk, or with equal scores of all chunks."""
    chunks = pd.DataFrame(word_chunks(text, window))
    if len(chunks) < 2:
        return chunks[:0]
    rsv_C = np.asarray(score(query, chunks.pop("text").tolist()), dtype=np.float64)
    # Scores of two queries have no common scale; positions within a document have.
    low, high = rsv_C.min(), rsv_C.max()
    return chunks.assign(scaled=(rsv_C - low) / (high - low)) if high > low else chunks[:0]


def rsv_curve(
    pairs: Iterable[RelevantPair], score: ChunkScorer, window: int, num_bins: int
) -> list[RsvPoint]:
    """Mean scaled RSV in equal parts of the documents.

    A chunk counts in each part by its share there, so documents with few chunks leave no gaps.
    Chunks are averaged within a query first, because they are not independent.
    """
    edges = np.linspace(0, 1, num_bins + 1)
    sums: dict[str, np.ndarray] = {}
    for pair in pairs:
        chunks = scaled_scores(pair.text, pair.query, score, window)
        if len(chunks):
            start_C1, end_C1 = chunks[["start"]].to_numpy(), chunks[["end"]].to_numpy()
            overlap_CN = np.minimum(end_C1, edges[1:]) - np.maximum(start_C1, edges[:-1])
            share_CN = np.maximum(overlap_CN, 0)
            for share_N, scaled in zip(share_CN, chunks["scaled"], strict=True):
                # Sums of weights and of weighted values, per query: queries with many documents
                # count no more than others.
                sum_2N = sums.setdefault(pair.query_id, np.zeros((2, num_bins)))
                sum_2N += share_N, share_N * scaled
    if not sums:
        return []
    # A document's chunks cover it from end to end, so no weight is zero.
    mean_QN = np.array([scored_N / weight_N for weight_N, scored_N in sums.values()])
    mean_N, error_N = mean_QN.mean(axis=0), np.full(num_bins, np.nan)
    if len(mean_QN) > 1:
        error_N = mean_QN.std(axis=0, ddof=1) / np.sqrt(len(mean_QN))
    half_N = NORMAL_95 * error_N
    columns = (edges[:-1], edges[1:], mean_N, mean_N - half_N, mean_N + half_N)
    points = np.transpose(columns).tolist()
    return [RsvPoint._make([*point, len(mean_QN)]) for point in points]


class Bm25Chunks:
    """BM25 of a query and a chunk, read in a language (empty: English); document frequencies and
    the mean length are those of its chunks, the only ones that it scores."""

    def __init__(self, chunks: Iterable[str], language: str = "") -> None:
        texts = list(chunks)
        named = {f"{number:012d}": text for number, text in enumerate(texts)}
        self._index = Bm25Index(named, TextAnalysis(language))
        self._numbers = {text: number for number, text in enumerate(texts)}

    def __call__(self, query: str, chunks: Sequence[str]) -> list[float]:
        scores: list[float] = self._index.scores(query)[[self._numbers[c] for c in chunks]].tolist()
        return scores


def cosine_scorer(backbone: "Backbone") -> ChunkScorer:
    """The cosine of the query's vector and each chunk's: means over a text's tokens, special ones
    included; a longer text than the encoder reads is cut."""
    import torch

    from rank_core.encoders.backbones import load_encoder, load_tokenizer

    encoder = load_encoder(backbone, dropout=0.0).eval()
    tokenizer = load_tokenizer(backbone.folder)

    @torch.inference_mode()
    def vectors(texts: list[str]) -> "torch.Tensor":
        most = backbone.max_input_tokens
        inputs = tokenizer(
            texts, padding=True, truncation=True, max_length=most, return_tensors="pt"
        )
        mask_NL = inputs["attention_mask"]
        hidden_NLH = encoder(input_ids=inputs["input_ids"], attention_mask=mask_NL)[0].double()
        mask_NL1 = mask_NL.unsqueeze(-1)
        mean_NH = (hidden_NLH * mask_NL1).sum(1) / mask_NL1.sum(1).clamp(min=1)
        return torch.nn.functional.normalize(mean_NH, dim=1)

    def score(query: str, chunks: Sequence[str]) -> Sequence[float]:
        query_H = vectors([query])[0]
        parts = [
            vectors(list(chunks[start : start + TEXTS_AT_ONCE])) @ query_H
            for start in range(0, len(chunks), TEXTS_AT_ONCE)
        ]
        scores: list[float] = torch.cat(parts).tolist()
        return scores

    return score
