"""How many encoder tokens one backward pass may hold."""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from rank_core.cache import cache_root
from rank_core.chunking.batches import PairEncoder
from rank_core.files import write_json
from rank_core.models.ranker import Ranker
from rank_core.ranking.encode import Document, Work, score_documents

ON_CPU = 8192  # beyond it nothing gets faster, and the working set leaves the caches
FREE_SHARE = 0.6  # of the free memory; the rest is for longer rows, aggregators and fragments
CHUNKS = (2, 8)  # of the two passes that are measured
BYTES_LATER = 12  # of each parameter: its gradient and two moments, in fp32


class Peak(NamedTuple):
    """The most memory that a forward and backward pass over some tokens took beyond the model."""

    tokens: int
    bytes: int


def micro_batch_tokens(
    model: Ranker, pairs: PairEncoder, autocast: torch.dtype | None, *, group_size: int = 2
) -> int:
    """What suits the device: a constant on a CPU, on a GPU what its memory holds.

    The GPU's is measured once per model, backbone, window, device and precision and kept on disk,
    so that the same trial splits its batches in the same way tomorrow. Where it would not hold one
    group of `group_size` documents, the encoder recomputes its activations in the backward pass
    instead of keeping them (if it can).
    """
    if model.device.type == "cpu":
        return ON_CPU
    plain = _measured_once(model, pairs, autocast, checkpointing=False)
    if plain >= _group_tokens(pairs, group_size) or not can_checkpoint(model):
        return plain
    checkpoint(model)
    return _measured_once(model, pairs, autocast, checkpointing=True)


def checkpoint(model: Ranker) -> None:
    """Lets the encoder keep the inputs of its layers only and compute the rest twice."""
    encoder: Any = model.encoder
    encoder.gradient_checkpointing_enable({"use_reentrant": False})


def tokens_that_fit(small: Peak, large: Peak, free: int) -> int:
    """The largest power of two whose peak is within `FREE_SHARE` of `free` bytes, by the line
    through two measured peaks; at least 1."""
    slope = (large.bytes - small.bytes) / (large.tokens - small.tokens)
    fixed = small.bytes - slope * small.tokens
    fits = (FREE_SHARE * free - fixed) / max(slope, 1.0)
    return int(2 ** math.floor(math.log2(max(fits, 1.0))))


def can_checkpoint(model: Ranker) -> bool:
    """Whether the encoder knows how to compute its activations twice."""
    return bool(getattr(model.encoder, "supports_gradient_checkpointing", False))


def is_checkpointing(model: Ranker) -> bool:
    """Whether it does so."""
    return bool(getattr(model.encoder, "is_gradient_checkpointing", False))


def _group_tokens(pairs: PairEncoder, group_size: int) -> int:
    """Encoder tokens of a group of the longest documents, as far as the settings tell."""
    chunking = pairs.chunking
    num = -(-max(0, chunking.max_document_tokens - chunking.window) // chunking.stride) + 1
    num = 1 if pairs.first_chunk_only else min(num, chunking.max_chunks or num)
    return group_size * num * (chunking.window + chunking.max_query_tokens + 3)


def _measured_once(
    model: Ranker, pairs: PairEncoder, autocast: torch.dtype | None, *, checkpointing: bool
) -> int:
    facts = [
        type(model).__name__,
        sum(p.numel() for _, p in model.trainable()),  # stages of a model train different parts
        pairs.backbone.content_hash,
        pairs.chunking.window,
        pairs.chunking.max_query_tokens,
        torch.cuda.get_device_name(model.device),
        str(autocast),
        checkpointing,
    ]
    return remembered(facts, lambda: _measure(model, pairs, autocast))


def remembered(facts: Sequence[object], measure: Callable[[], int]) -> int:
    """What was measured under these facts on this machine, now or before."""
    key = hashlib.sha256(json.dumps(list(facts)).encode()).hexdigest()[:16]
    path = cache_root() / "micro-batch" / f"{key}.json"
    if path.exists():
        return int(json.loads(path.read_text())["tokens"])
    tokens = measure()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"facts": list(facts), "tokens": tokens})
    return tokens


def _measure(model: Ranker, pairs: PairEncoder, autocast: torch.dtype | None) -> int:
    later = BYTES_LATER * sum(p.numel() for _, p in model.trainable())
    try:
        small, large = (_peak(model, pairs, autocast, chunks) for chunks in CHUNKS)
    except torch.cuda.OutOfMemoryError:
        return 1  # one group at a time
    finally:
        model.zero_grad(set_to_none=True)
        model.extra_loss = None
        torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(model.device)
    return tokens_that_fit(small, large, free - later)


def _peak(model: Ranker, pairs: PairEncoder, autocast: torch.dtype | None, chunks: int) -> Peak:
    """Measured over documents of one chunk of full length, beside a full query."""
    chunking = pairs.chunking
    word = np.asarray([pairs.backbone.cls_id], dtype=np.int32)
    query, text = word.repeat(chunking.max_query_tokens), word.repeat(chunking.window)
    document = pairs.rows(query, [text])
    model.train()
    model.zero_grad(set_to_none=True)
    torch.cuda.reset_peak_memory_stats(model.device)
    before = torch.cuda.memory_allocated(model.device)
    tokens = chunks * sum(map(len, document))
    documents: list[Document] = [document] * chunks
    score_B = score_documents(
        model, pairs, documents, batch_tokens=tokens, autocast=autocast, work=Work()
    )
    loss = score_B.sum()
    if model.extra_loss is not None:
        loss, model.extra_loss = loss + model.extra_loss, None
    loss.backward()
    return Peak(tokens, torch.cuda.max_memory_allocated(model.device) - before)
