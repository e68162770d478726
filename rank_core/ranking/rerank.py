"""Scores of the candidates of queries: chunks of many documents in length-sorted batches, smaller
ones where the GPU runs out of memory."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rank_core.ahead import ahead
from rank_core.chunking.batches import PairEncoder
from rank_core.errors import OutOfMemory
from rank_core.evaluate import without_ties
from rank_core.machine import is_out_of_memory
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
    """`compute(documents, batch_tokens)`, and the batch size in tokens that the GPU held.

    Raises `OutOfMemory` where it does not hold the least that the model reads at once, a chunk or a
    whole document. `work` counts what led to the result only.
    """
    while True:
        before = replace(work)
        try:
            return compute(documents, batch_tokens), batch_tokens
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        # What the failed pass holds is free only outside of that block.
        vars(work).update(vars(before))
        if model.device.type == "cuda":
            torch.cuda.empty_cache()
        padded = [len(document) * max(map(len, document)) for document in documents]
        longest = max(len(chunk) for document in documents for chunk in document)
        least = longest if model.by_chunks else max(padded)
        if batch_tokens <= least:
            unit = "chunk" if model.by_chunks else "document"
            raise OutOfMemory(
                f"the GPU must hold the longest {unit} while scoring, {least} encoder tokens; "
                "lower chunking.window, chunking.max_chunks or chunking.max_document_tokens, or "
                "take a larger GPU"
            )
        batch_tokens = max(least, min(batch_tokens, sum(padded)) // 2)
        logger.warning("out of GPU memory: at most %d tokens a batch from here", batch_tokens)


KeptScores = dict[str, dict[str, NDArray[np.float32]]]
"""{query_id: {doc_id: score_P}}: a document's chunks, each with the score it would have alone."""

CHUNKS_AT_ONCE = 4096  # chunk vectors kept before they are aggregated; sorting happens within


@dataclass
class _Block:
    """Documents whose chunks are encoded together."""

    ids: list[tuple[str, str]] = field(default_factory=list)  # (query_id, doc_id)
    documents: list[Document] = field(default_factory=list)


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
    """The first `depth` candidates of each query in the model's order, with fp32 scores.

    Ties are broken by doc_id; a query without candidates keeps an empty list. What the chunks of a
    model that pools their scores have goes to `kept`, every query with a place in it.
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
    with torch.inference_mode():
        for block in ahead(_blocks(pairs, queries, candidates, depth), model.device):
            (score_B, of_chunks), batch_tokens = within_memory(
                score_block, block.documents, batch_tokens, model=model, work=counted
            )
            if kept is not None and of_chunks is not None:
                _keep(kept, block, torch.cat(of_chunks))
            for (query_id, doc_id), score in zip(block.ids, score_B.tolist(), strict=True):
                scores[query_id][doc_id] = score
    for of_query in scores.values():
        counted.ties += len(of_query) - len(
            set(np.asarray([*of_query.values()], np.float32).tolist())
        )
    return {query_id: ordered(scores[query_id]) for query_id in scores}


def _keep(kept: KeptScores, block: _Block, score_C: Tensor) -> None:
    ends = np.cumsum([len(document) for document in block.documents])
    parts = np.split(score_C.float().cpu().numpy(), ends[:-1])
    for (query_id, doc_id), score_P in zip(block.ids, parts, strict=True):
        kept[query_id][doc_id] = score_P


def ordered(scores: Mapping[str, float]) -> dict[str, float]:
    """Documents by score, equal float32 scores by rising doc_id, `untied`.

    The rule for the scores of a model, on which the order of the candidates has no effect.
    """
    by_score = sorted(scores, key=lambda doc_id: (-np.float32(scores[doc_id]), doc_id))
    return untied({doc_id: scores[doc_id] for doc_id in by_score})


def untied(ranked: Mapping[str, float]) -> dict[str, float]:
    """A ranked list in its own order, with strictly falling float32 scores.

    The rule for lists that others ranked: a first stage keeps its ranks. Equal scores are moved
    apart by the smallest step, because evaluation tools break ties each in their own way (trec_eval
    by falling doc_id, MS MARCO's script by rising); the order stays ours in all of them.
    """
    return dict(zip(ranked, without_ties([*ranked.values()]), strict=True))


def _blocks(
    pairs: PairEncoder,
    queries: Mapping[str, NDArray[np.int32]],
    candidates: Run,
    depth: int,
) -> Iterator[_Block]:
    block, num_chunks = _Block(), 0
    for query_id, query in queries.items():
        for doc_id in list(candidates.get(query_id, ()))[:depth]:
            block.ids.append((query_id, doc_id))
            block.documents.append(pairs.chunks(query, doc_id))
            num_chunks += len(block.documents[-1])
            if num_chunks >= CHUNKS_AT_ONCE:
                yield block
                block, num_chunks = _Block(), 0
    if block.ids:
        yield block
