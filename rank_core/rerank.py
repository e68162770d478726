"""Scores the candidates of queries: chunks of many documents in length-sorted batches."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rank_core.batches import Chunk, PairEncoder, token_budget_batches
from rank_core.data.collection import Run
from rank_core.models.ranker import Ranker, pad_chunks

CHUNKS_AT_ONCE = 4096  # chunk vectors kept before they are aggregated; sorting happens within


@dataclass
class Work:
    """What the encoder has read so far, and what it could not tell apart."""

    tokens: int = 0  # of real chunks, with query and special tokens
    padded_tokens: int = 0  # the same, padding included
    ties: int = 0  # documents whose score another document of the query had as well

    def add(self, lengths: Sequence[int]) -> None:
        """Counts one padded batch of inputs."""
        self.tokens += sum(lengths)
        self.padded_tokens += len(lengths) * max(lengths)


@dataclass
class _Block:
    """Documents whose chunks are encoded together."""

    pairs: list[tuple[str, str]] = field(default_factory=list)  # (query_id, doc_id)
    chunks: list[Chunk] = field(default_factory=list)
    doc_C: list[int] = field(default_factory=list)


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
) -> Run:
    """The first `depth` candidates of each query in the model's order, with fp32 scores.

    Ties are broken by doc_id; a query without candidates keeps an empty list.
    """
    work = Work() if work is None else work
    scores: dict[str, dict[str, float]] = {query_id: {} for query_id in queries}
    model.eval()
    with torch.inference_mode():
        for block in _blocks(pairs, queries, candidates, depth):
            score_B = _score_block(model, pairs, block, batch_tokens, autocast, work)
            for (query_id, doc_id), score in zip(block.pairs, score_B.tolist(), strict=True):
                scores[query_id][doc_id] = score
    for of_query in scores.values():
        work.ties += len(of_query) - len(set(np.asarray([*of_query.values()], np.float32).tolist()))
    return {query_id: ordered(scores[query_id]) for query_id in scores}


def ordered(scores: Mapping[str, float]) -> dict[str, float]:
    """Documents by score, then doc_id, with strictly falling float32 scores.

    Equal scores are moved apart by the smallest step, because evaluation tools break ties each in
    their own way; the order stays ours in all of them.
    """
    result: dict[str, float] = {}
    previous = np.float32(np.inf)
    for doc_id in sorted(scores, key=lambda doc_id: (-np.float32(scores[doc_id]), doc_id)):
        score = np.float32(scores[doc_id])
        if score >= previous:
            score = np.nextafter(previous, np.float32(-np.inf), dtype=np.float32)
        result[doc_id] = float(score)
        previous = score
    return result


def _blocks(
    pairs: PairEncoder,
    queries: Mapping[str, NDArray[np.int32]],
    candidates: Run,
    depth: int,
) -> Iterator[_Block]:
    block = _Block()
    for query_id, query in queries.items():
        for doc_id in list(candidates.get(query_id, ()))[:depth]:
            chunks = pairs.chunks(query, doc_id)
            block.doc_C.extend([len(block.pairs)] * len(chunks))
            block.pairs.append((query_id, doc_id))
            block.chunks.extend(chunks)
        if len(block.chunks) >= CHUNKS_AT_ONCE:
            yield block
            block = _Block()
    if block.pairs:
        yield block


def _score_block(
    model: Ranker,
    pairs: PairEncoder,
    block: _Block,
    batch_tokens: int,
    autocast: torch.dtype | None,
    work: Work,
) -> Tensor:
    """score_B (fp32, on the CPU) of the block's documents."""
    device = model.head.weight.device
    lengths = [len(chunk) for chunk in block.chunks]
    cls_CH: Tensor | None = None
    with torch.autocast(device.type, dtype=autocast, enabled=autocast is not None):
        for rows in token_budget_batches(lengths, batch_tokens):
            work.add([lengths[i] for i in rows])
            ids, mask, types = pairs.layout([block.chunks[i] for i in rows])
            cls = model.encode(
                ids.to(device), mask.to(device), None if types is None else types.to(device)
            ).float()
            if cls_CH is None:
                cls_CH = cls.new_empty(len(lengths), cls.shape[-1])
            cls_CH[rows] = cls
    assert cls_CH is not None  # every document has a chunk
    # The head and the aggregator are cheap: fp32, so that close scores do not become ties.
    cls_BPH, mask_BP = pad_chunks(
        cls_CH, torch.tensor(block.doc_C, device=device), len(block.pairs)
    )
    return model.aggregate(cls_BPH, mask_BP).float().cpu()
