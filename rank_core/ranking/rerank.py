"""Reranking: chunks of many documents in length-sorted batches, smaller ones if a GPU runs out of
memory."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rank_core.chunking.batches import PairEncoder
from rank_core.errors import OutOfMemory
from rank_core.evaluate import untied
from rank_core.machine import ahead, is_out_of_memory
from rank_core.models.ranker import Ranker
from rank_core.ranking.encode import Document, Work, score_documents
from rank_core.records import Run

logger = logging.getLogger(__name__)

T = TypeVar("T")


def within_memory(
    compute: Callable[[Sequence[Document], int], T],
    documents: Sequence[Document],
    batch_tokens: int,
    *,
    model: Ranker,
    work: Work,
) -> tuple[T, int]:
    """`compute(documents, batch_tokens)`, with a smaller batch if the GPU runs out of memory, and
    the batch size used, which the model's later batches do not exceed.

    Raises `OutOfMemory` if the smallest input, a chunk or a whole document, does not fit. `work`
    counts successful passes only.
    """
    # Batches that failed once would fail again: the limit stays with the model.
    batch_tokens = min(batch_tokens, model.most_tokens or batch_tokens)
    while True:
        before = replace(work)
        try:
            return compute(documents, batch_tokens), batch_tokens
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        # Outside of the except block the failed pass no longer holds memory.
        vars(work).update(vars(before))
        if model.device.type == "cuda":
            torch.cuda.empty_cache()
        # Only a model that needs whole documents has to hold all chunks of one at once.
        padded = [len(document) * max(map(len, document)) for document in documents]
        longest = max(len(chunk) for document in documents for chunk in document)
        least = longest if model.by_chunks else max(padded)
        if batch_tokens <= least:
            unit = "chunk" if model.by_chunks else "document"
            raise OutOfMemory(
                f"the GPU's memory cannot hold the longest {unit} while scoring ({least} encoder "
                "tokens); lower chunking.window, chunking.max_chunks or "
                "chunking.max_document_tokens, or use a larger GPU"
            )
        # Half of what was tried: the block may have been smaller than the budget.
        model.most_tokens = batch_tokens = max(least, min(batch_tokens, sum(padded)) // 2)
        logger.warning("out of GPU memory: reducing batches to %d tokens", batch_tokens)


KeptScores = dict[str, dict[str, NDArray[np.float32]]]
"""{query_id: {doc_id: score_P}}: the scores of a document's chunks, each scored alone."""

CHUNKS_AT_ONCE = 4096  # chunks encoded together, sorted by length


def rerank(
    model: Ranker,
    pairs: PairEncoder,
    *,
    queries: Mapping[str, NDArray[np.int32]],
    candidates: Run,
    depth: int,
    batch_tokens: int,
    autocast: torch.dtype | None = None,
    work: Work | None = None,
    kept: KeptScores | None = None,
) -> Run:
    """The first `depth` candidates of each query, ranked by the model, with fp32 scores.

    Ties are broken by doc_id; a query without candidates gets an empty list. For models that pool
    chunk scores, those scores are added to `kept`, with an entry for every query.
    """
    counted = Work() if work is None else work

    def score_block(
        documents: Sequence[Document], batch_tokens: int
    ) -> tuple[Tensor, list[Tensor] | None]:
        of_chunks: list[Tensor] | None = None if kept is None else []
        score_B = score_documents(
            model,
            pairs,
            documents,
            batch_tokens=batch_tokens,
            autocast=autocast,
            work=counted,
            kept=of_chunks,
        )
        return score_B, of_chunks

    scores: dict[str, dict[str, float]] = {query_id: {} for query_id in queries}
    if kept is not None:
        kept.update({query_id: {} for query_id in queries})
    model.eval()
    with torch.inference_mode(), model.one_ranking():
        for ids, documents in ahead(_blocks(pairs, queries, candidates, depth), model.device):
            (score_B, of_chunks), batch_tokens = within_memory(
                score_block, documents, batch_tokens, model=model, work=counted
            )
            if kept is not None and of_chunks is not None:
                score_C = torch.cat(of_chunks).float().cpu().numpy()
                parts = np.split(score_C, np.cumsum([len(document) for document in documents])[:-1])
                for (query_id, doc_id), score_P in zip(ids, parts, strict=True):
                    kept[query_id][doc_id] = score_P
            for (query_id, doc_id), score in zip(ids, score_B.tolist(), strict=True):
                scores[query_id][doc_id] = score
    for of_query in scores.values():
        counted.add_ties(of_query.values())
    return {query_id: ordered(scores[query_id]) for query_id in scores}


def ordered(scores: Mapping[str, float]) -> dict[str, float]:
    """Documents by descending score, float32 ties by ascending doc_id, then `untied`. This is the
    order for model scores: the order of the candidates has no effect."""
    # float32, as scores are stored and read back: two that are equal in a file must be ordered as
    # ties here too.
    by_score = sorted(scores, key=lambda doc_id: (-np.float32(scores[doc_id]), doc_id))
    return untied({doc_id: scores[doc_id] for doc_id in by_score})


def _blocks(
    pairs: PairEncoder, queries: Mapping[str, NDArray[np.int32]], candidates: Run, depth: int
) -> Iterator[tuple[list[tuple[str, str]], list[Document]]]:
    """([(query_id, doc_id)], documents) whose chunks are encoded together."""
    ids: list[tuple[str, str]] = []
    documents: list[Document] = []
    num_chunks = 0
    for query_id, query in queries.items():
        for doc_id in list(candidates.get(query_id, ()))[:depth]:
            ids.append((query_id, doc_id))
            documents.append(pairs.chunks(query, doc_id))
            num_chunks += len(documents[-1])
            if num_chunks >= CHUNKS_AT_ONCE:
                yield ids, documents
                ids, documents, num_chunks = [], [], 0
    if ids:
        yield ids, documents
