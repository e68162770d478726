"""Scoring on a GPU that holds less at once than it was asked to: again with half of it."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import torch

from rank_core.errors import OutOfMemory
from rank_core.models.ranker import Ranker
from rank_core.ranking.encode import Document, Work

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
        except torch.cuda.OutOfMemoryError:
            pass  # what the failed pass holds is free only outside of this block
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
