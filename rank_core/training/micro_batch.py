"""The gradient of one batch, micro-batch by micro-batch: how many encoder tokens one backward pass
may hold, and smaller passes where the GPU is too small after all."""

import hashlib
import json
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rank_core.ahead import ahead
from rank_core.cache import cache_root
from rank_core.chunking.batches import PairEncoder
from rank_core.distributed import GradientSums
from rank_core.errors import OutOfMemory
from rank_core.files import write_json
from rank_core.machine import gpu_memory, is_out_of_memory
from rank_core.models.ranker import Ranker
from rank_core.ranking.encode import Document, Work, score_documents
from rank_core.training.examples import Row, TrainingGroup, TrainingReader
from rank_core.training.losses import Targets, loss_of

ON_CPU = 8192  # beyond it nothing gets faster, and the working set leaves the caches
FREE_SHARE = 0.6  # of the free memory; the rest is for longer rows, aggregators and fragments
STEP = 8192  # tokens by which the budgets of a GPU differ
CHUNKS = (2, 2, 8)  # of three passes: kernels and their workspaces are loaded in the first
GRADIENT_BYTES = 4  # of each parameter; the optimizer's moments are there already


class Peak(NamedTuple):
    """The most memory that a forward and backward pass over some tokens took beyond the model."""

    tokens: int
    bytes: int


def micro_batch_tokens(
    model: Ranker, pairs: PairEncoder, autocast: torch.dtype | None, *, group_size: int = 2
) -> int:
    """Encoder tokens of one micro-batch: a constant on a CPU, on a GPU as many as its memory holds.

    On a GPU they are measured once per model, backbone, window, device, memory and precision and
    cached, so that the same trial splits its batches in the same way tomorrow. Where it would not
    hold one group of `group_size` documents, the encoder recomputes its activations in the
    backward pass instead of keeping them (if it can).
    """
    if model.device.type == "cpu":
        return ON_CPU
    plain = _tokens_on_gpu(model, pairs, autocast, checkpointing=False)
    if plain >= _group_tokens(pairs, group_size) or not can_checkpoint(model):
        return plain
    checkpoint(model)
    return _tokens_on_gpu(model, pairs, autocast, checkpointing=True)


def checkpoint(model: Ranker) -> None:
    """Makes the encoder keep the inputs of its layers only and compute the rest twice."""
    encoder: Any = model.encoder
    encoder.gradient_checkpointing_enable({"use_reentrant": False})


def tokens_that_fit(small: Peak, large: Peak, free: int) -> int:
    """The tokens whose peak is within `FREE_SHARE` of `free` bytes, by the line through two
    measured peaks: a multiple of `STEP`, or a power of two below it; at least 1."""
    slope = (large.bytes - small.bytes) / (large.tokens - small.tokens)
    fixed = small.bytes - slope * small.tokens
    fits = (FREE_SHARE * free - fixed) / max(slope, 1.0)
    if fits >= STEP:
        return int(fits // STEP) * STEP
    return int(2 ** math.floor(math.log2(max(fits, 1.0))))


def can_checkpoint(model: Ranker) -> bool:
    """True where the encoder can compute its activations twice."""
    return bool(getattr(model.encoder, "supports_gradient_checkpointing", False))


def is_checkpointing(model: Ranker) -> bool:
    """True where it does so."""
    return bool(getattr(model.encoder, "is_gradient_checkpointing", False))


def _group_tokens(pairs: PairEncoder, group_size: int) -> int:
    """Encoder tokens of a group of the longest documents, as far as the settings tell."""
    chunking = pairs.chunking
    num = -(-max(0, chunking.max_document_tokens - chunking.window) // chunking.stride) + 1
    num = 1 if pairs.first_chunk_only else min(num, chunking.max_chunks or num)
    return group_size * num * (chunking.window + chunking.max_query_tokens + 3)


def _tokens_on_gpu(
    model: Ranker, pairs: PairEncoder, autocast: torch.dtype | None, *, checkpointing: bool
) -> int:
    facts = [
        type(model).__name__,
        sum(p.numel() for _, p in model.trainable()),  # stages of a model train different parts
        pairs.backbone.content_hash,
        pairs.chunking.window,
        pairs.chunking.max_query_tokens,
        torch.cuda.get_device_name(model.device),
        gpu_memory(model.device)[1],
        str(autocast),
        model.packs(autocast),
        checkpointing,
    ]
    try:
        return cached_tokens(facts, lambda: _measure(model, pairs, autocast))
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return 1  # one group at a time; not cached: another process may have held the memory


def cached_tokens(facts: Sequence[object], measure: Callable[[], int]) -> int:
    """The tokens measured under these facts on this machine, now or before."""
    key = hashlib.sha256(json.dumps(list(facts)).encode()).hexdigest()[:16]
    path = cache_root() / "micro-batch" / f"{key}.json"
    if path.exists():
        return int(json.loads(path.read_text())["tokens"])
    tokens = measure()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"facts": list(facts), "tokens": tokens})
    return tokens


def _measure(model: Ranker, pairs: PairEncoder, autocast: torch.dtype | None) -> int:
    gradients = GRADIENT_BYTES * sum(p.numel() for _, p in model.trainable())
    try:
        _, small, large = (_peak(model, pairs, autocast, chunks) for chunks in CHUNKS)
    finally:
        model.zero_grad(set_to_none=True)
        model.extra_loss = None
        torch.cuda.empty_cache()
    free, _ = gpu_memory(model.device)
    return tokens_that_fit(small, large, free - gradients)


def _peak(model: Ranker, pairs: PairEncoder, autocast: torch.dtype | None, chunks: int) -> Peak:
    """Memory of a pass over documents of one chunk of full length, beside a full query."""
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
    """Computes gradients of whole batches. `tokens` is the budget of a micro-batch; it shrinks
    where the GPU runs out of memory."""

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
        # Measured also where the number is known: it decides what the encoder keeps in memory.
        measured = training.micro_batch_tokens or micro_batch_tokens(
            model, reader.pairs, autocast, group_size=1 + training.negatives
        )
        self.tokens = tokens or measured
        self._current: list[Row] = []  # the micro-batch that is computed now

    def backward(self, batch: list[TrainingGroup], seed: int) -> Tensor:
        """Adds the batch's gradients to the parameters, whose `sums` over the workers begin in the
        last micro-batch; returns the summed loss of this worker, detached.

        Where the GPU runs out of memory the whole batch is computed again in micro-batches of half
        the size, as if they had been so small from the start: the same `seed` for what is drawn,
        the gradients from nothing. Where one row alone does not fit, its activations are computed
        twice instead of kept. Raises `OutOfMemory` if that does not help.
        """
        while True:
            # One stream per step: a resumed or reused process draws what a fresh one would.
            torch.manual_seed(seed)
            before = replace(self.work)
            try:
                return self._backward(batch)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
            # What the failed pass holds is free only outside of that block.
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
            if self.model.extra_loss is not None:  # what a model learns beside the ranking
                loss, self.model.extra_loss = loss + self.model.extra_loss, None
            if following is None:
                self.sums.begin()
            self.scaler.scale(loss).backward()
            total += loss.detach()
        return total

    def micro_batches(self, batch: list[TrainingGroup]) -> Iterator[list[Row]]:
        """The batch's rows in order, as many at once as the token budget holds, at least one."""
        some: list[Row] = []
        used = 0
        for row in (row for group in batch for row in self.reader.rows(group)):
            if some and used + row.tokens > self.tokens:
                yield some
                some, used = [], 0
            some.append(row)
            used += row.tokens
        if some:
            yield some

    def _shrink(self) -> None:
        """Halves the budget or computes activations twice. Raises `OutOfMemory` after both."""
        rows, self._current = self._current, []
        tokens = sum(row.tokens for row in rows)
        longest = max(
            len(chunk) for row in rows for document in row.documents for chunk in document
        )
        if len(rows) > 1:
            self.tokens = tokens // 2
        elif not is_checkpointing(self.model) and can_checkpoint(self.model):
            checkpoint(self.model)
            logger.warning("out of GPU memory: activations are computed twice from here")
            return
        elif is_checkpointing(self.model) and self.tokens > longest:
            self.tokens = max(longest, min(self.tokens, tokens) // 2)
        else:
            raise OutOfMemory(
                f"the GPU must hold one row of the loss, {1 + self.training.negatives} documents "
                f"with {tokens} encoder tokens; lower chunking.max_document_tokens, "
                "chunking.max_chunks or training.negatives, or take a larger GPU"
            )
        logger.warning("out of GPU memory: at most %d tokens a pass from here", self.tokens)


def _targets(rows: list[Row], score_NG: Tensor) -> Targets:
    """Grades and teacher scores of the rows' documents, on the device of the scores."""

    def tensor(values: list[tuple[float, ...]]) -> Tensor:
        return torch.tensor(values, dtype=score_NG.dtype).to(score_NG.device, non_blocking=True)

    groups = [row.group for row in rows]
    relevance = [(float(group.grade), *[0.0] * len(group.negatives)) for group in groups]
    teacher = [group.teacher for group in groups if group.teacher is not None]
    return Targets(tensor(relevance), tensor(teacher) if teacher else None)
