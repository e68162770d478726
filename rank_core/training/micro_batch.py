"""The gradient of a batch, accumulated over micro-batches: how many encoder tokens a backward pass
may hold, and smaller passes if the GPU runs out of memory."""

import hashlib
import json
import logging
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rank_core.cache import cache_root
from rank_core.chunking.batches import PairEncoder
from rank_core.distributed import GradientSums
from rank_core.errors import OutOfMemory
from rank_core.files import write_json
from rank_core.machine import ahead, gpu_memory, is_out_of_memory
from rank_core.models.ranker import Ranker
from rank_core.ranking.encode import Document, Work, score_documents
from rank_core.training.examples import Row, TrainingGroup, TrainingReader
from rank_core.training.losses import Targets, loss_of

ON_CPU = 8192  # larger passes are not faster and exceed the caches
FREE_SHARE = 0.6  # of the free memory; the rest is for longer rows, aggregators and fragments
STEP = 8192  # granularity of a GPU's budget, in tokens
CHUNKS = (2, 2, 8)  # of three passes; the first loads kernels and workspaces
GRADIENT_BYTES = 4  # per parameter; the optimizer's moments are already allocated


class Peak(NamedTuple):
    """The peak memory of a forward and backward pass over some tokens, beyond the model."""

    tokens: int
    bytes: int


def micro_batch_tokens(
    model: Ranker, pairs: PairEncoder, autocast: torch.dtype | None, *, group_size: int = 2
) -> int:
    """Encoder tokens per micro-batch: a constant on a CPU, on a GPU as many as its memory holds.

    On a GPU they are measured once per model, backbone, window, device, memory and precision, and
    cached, so that repeated trials split batches alike. If a group of `group_size` documents would
    not fit, activation checkpointing is enabled (if the encoder supports it).
    """
    if model.device.type == "cpu":
        return ON_CPU
    plain = _tokens_on_gpu(model, pairs, autocast, checkpointing=False)
    if plain >= _group_tokens(pairs, group_size) or not can_checkpoint(model):
        return plain
    checkpoint(model)
    return _tokens_on_gpu(model, pairs, autocast, checkpointing=True)


def checkpoint(model: Ranker) -> None:
    """Enables activation checkpointing: layers keep only their inputs and are recomputed."""
    encoder: Any = model.encoder
    encoder.gradient_checkpointing_enable({"use_reentrant": False})


def tokens_that_fit(small: Peak, large: Peak, free: int) -> int:
    """The tokens whose peak is within `FREE_SHARE` of `free` bytes, by linear extrapolation from
    two measured peaks: a multiple of `STEP`, or a power of two below it; at least 1."""
    slope = (large.bytes - small.bytes) / (large.tokens - small.tokens)
    fixed = small.bytes - slope * small.tokens
    fits = (FREE_SHARE * free - fixed) / max(slope, 1.0)
    if fits >= STEP:
        return int(fits // STEP) * STEP
    return int(2 ** math.floor(math.log2(max(fits, 1.0))))


def can_checkpoint(model: Ranker) -> bool:
    """True if the encoder supports activation checkpointing."""
    return bool(getattr(model.encoder, "supports_gradient_checkpointing", False))


def is_checkpointing(model: Ranker) -> bool:
    """True if activation checkpointing is enabled."""
    return bool(getattr(model.encoder, "is_gradient_checkpointing", False))


def _group_tokens(pairs: PairEncoder, group_size: int) -> int:
    """The maximum encoder tokens of a group under the settings."""
    chunking = pairs.chunking
    num = -(-max(0, chunking.max_document_tokens - chunking.window) // chunking.stride) + 1
    num = 1 if pairs.first_chunk_only else min(num, chunking.max_chunks or num)
    return group_size * num * (chunking.window + chunking.max_query_tokens + 3)


def _tokens_on_gpu(
    model: Ranker, pairs: PairEncoder, autocast: torch.dtype | None, *, checkpointing: bool
) -> int:
    """The tokens that fit, measured or from the cache."""
    num_parameters = sum(p.numel() for _, p in model.trainable())
    facts = [
        type(model).__name__,
        num_parameters,  # training stages train different parts
        pairs.backbone.content_hash,
        pairs.chunking.window,
        pairs.chunking.max_query_tokens,
        torch.cuda.get_device_name(model.device),
        gpu_memory(model.device)[1],
        str(autocast),
        model.packs(autocast),
        checkpointing,
    ]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
    path = cache_root() / "micro-batch" / f"{key}.json"
    if path.exists():
        return int(json.loads(path.read_text())["tokens"])
    try:
        _, small, large = (_peak(model, pairs, autocast, chunks) for chunks in CHUNKS)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return 1  # one group at a time; not cached, as another process may use the memory
    finally:
        model.zero_grad(set_to_none=True)
        model.extra_loss = None
        torch.cuda.empty_cache()
    free = gpu_memory(model.device)[0] - GRADIENT_BYTES * num_parameters
    tokens = tokens_that_fit(small, large, free)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"facts": facts, "tokens": tokens})
    return tokens


def _peak(model: Ranker, pairs: PairEncoder, autocast: torch.dtype | None, chunks: int) -> Peak:
    """Peak memory of a pass over documents of one full chunk with a full query."""
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


logger = logging.getLogger(__name__)


class TrainingStep:
    """Computes the gradients of whole batches. `tokens` is the budget of a micro-batch; it is
    reduced when the GPU runs out of memory."""

    def __init__(
        self,
        model: Ranker,
        reader: TrainingReader,
        scaler: torch.amp.GradScaler,
        autocast: torch.dtype | None,
        work: Work,
        sums: GradientSums,
        *,
        tokens: int = 0,
    ) -> None:
        training, self.reader = reader.training, reader
        self.model, self.pairs, self.training = model, reader.pairs, training
        self.scaler, self.autocast, self.work, self.sums = scaler, autocast, work, sums
        self.loss = loss_of(training)
        # Measured even if the number is known, because it decides about checkpointing.
        measured = training.micro_batch_tokens or micro_batch_tokens(
            model, reader.pairs, autocast, group_size=1 + training.negatives
        )
        self.tokens = tokens or measured
        self._current: list[Row] = []  # the current micro-batch

    def backward(self, batch: list[TrainingGroup], seed: int) -> Tensor:
        """Adds the batch's gradients to the parameters and starts their `sums` over the workers in
        the last micro-batch. Returns this worker's summed loss, detached.

        If the GPU runs out of memory, the whole batch is repeated in micro-batches of half the
        size, with the same `seed` and cleared gradients. If a single row does not fit, activation
        checkpointing is enabled. Raises `OutOfMemory` if that does not help.
        """
        while True:
            # A stream per step, so that a resumed process draws what a fresh one would.
            torch.manual_seed(seed)
            before = replace(self.work)
            try:
                return self._backward(batch)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
            # Outside of the except block the failed pass no longer holds memory.
            self.sums.cancel()
            self.model.zero_grad(set_to_none=True)
            self.model.extra_loss = None
            vars(self.work).update(vars(before))
            if self.model.device.type == "cuda":
                torch.cuda.empty_cache()
            self._shrink()

    def _backward(self, batch: list[TrainingGroup]) -> Tensor:
        total = torch.zeros((), device=self.model.device)
        micro_batches = ahead(self.micro_batches(batch), self.model.device)
        for rows, following in pairwise(chain(micro_batches, [None])):
            assert rows is not None
            self._current = rows
            score_B = score_documents(
                self.model,
                self.pairs,
                [document for row in rows for document in row.documents],
                batch_tokens=self.tokens,
                autocast=self.autocast,
                work=self.work,
            )
            score_NG = score_B.view(len(rows), -1)
            loss = self.loss(score_NG, self.training, _targets(rows, score_NG))
            if self.model.extra_loss is not None:  # an auxiliary loss of the model
                loss, self.model.extra_loss = loss + self.model.extra_loss, None
            if following is None:
                self.sums.begin()
            self.scaler.scale(loss).backward()
            total += loss.detach()
        return total

    def micro_batches(self, batch: list[TrainingGroup]) -> Iterator[list[Row]]:
        """The batch's rows in order, in lists within the token budget, of at least one row."""
        micro_batch: list[Row] = []
        used = 0
        for row in (row for group in batch for row in self.reader.rows(group)):
            if micro_batch and used + row.tokens > self.tokens:
                yield micro_batch
                micro_batch, used = [], 0
            micro_batch.append(row)
            used += row.tokens
        if micro_batch:
            yield micro_batch

    def _shrink(self) -> None:
        """Halves the budget or enables checkpointing; raises `OutOfMemory` after both."""
        rows, self._current = self._current, []
        tokens = sum(row.tokens for row in rows)
        longest = max(
            len(chunk) for row in rows for document in row.documents for chunk in document
        )
        if len(rows) > 1:
            self.tokens = tokens // 2
        elif not is_checkpointing(self.model) and can_checkpoint(self.model):
            checkpoint(self.model)
            logger.warning("out of GPU memory: enabling activation checkpointing")
            return
        elif is_checkpointing(self.model) and self.tokens > longest:
            self.tokens = max(longest, min(self.tokens, tokens) // 2)
        else:
            raise OutOfMemory(
                f"the GPU's memory cannot hold a single group ({1 + self.training.negatives} "
                f"documents, {tokens} encoder tokens); lower chunking.max_document_tokens, "
                "chunking.max_chunks or training.negatives, or use a larger GPU"
            )
        logger.warning("out of GPU memory: reducing passes to %d tokens", self.tokens)


def _targets(rows: list[Row], score_NG: Tensor) -> Targets:
    """Grades and teacher scores of the rows' documents, on the scores' device."""

    def tensor(values: list[tuple[float, ...]]) -> Tensor:
        return torch.tensor(values, dtype=score_NG.dtype).to(score_NG.device, non_blocking=True)

    groups = [row.group for row in rows]
    relevance = [(float(group.grade), *[0.0] * len(group.negatives)) for group in groups]
    teacher = [group.teacher for group in groups if group.teacher is not None]
    return Targets(tensor(relevance), tensor(teacher) if teacher else None)
