"""The gradient of a batch, accumulated over micro-batches, which become smaller if the GPU runs out
of memory."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

import torch
from torch import Tensor

from rank_core.distributed import GradientSums
from rank_core.encoders.flat_rows import on
from rank_core.errors import OutOfMemory
from rank_core.machine import ahead, is_out_of_memory
from rank_core.models.ranker import Ranker
from rank_core.ranking.encode import Work, score_documents
from rank_core.training.examples import Row, TrainingGroup, TrainingReader
from rank_core.training.losses import Targets, loss_of

TOKENS = {"cpu": 8192, "cuda": 65_536}
"""Encoder tokens of a pass at first. Larger ones are not faster, and exceed a CPU's caches; a GPU
that cannot hold them halves them."""


def checkpoint(model: Ranker) -> None:
    """Enables activation checkpointing: layers keep only their inputs and are recomputed."""
    encoder: Any = model.encoder
    encoder.gradient_checkpointing_enable({"use_reentrant": False})


def is_checkpointing(model: Ranker) -> bool:
    """True if activation checkpointing is enabled."""
    return bool(getattr(model.encoder, "is_gradient_checkpointing", False))


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
        self.tokens = tokens or training.micro_batch_tokens or TOKENS[model.device.type]
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
            # The failed attempt must not count as work done: costs are compared between trials.
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
        # Pairs of neighbours say which micro-batch is the last: only its gradients are complete and
        # may be summed over the workers.
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
            # All groups have one relevant document and as many negatives.
            score_NG = score_B.view(len(rows), -1)
            loss = self.loss(score_NG, self.training, _targets(rows, score_NG))
            if self.model.extra_loss is not None:  # an auxiliary loss of the model
                loss, self.model.extra_loss = loss + self.model.extra_loss, None
            if following is None:
                self.sums.begin()
            self.scaler.scale(loss).backward()
            # On the device: reading a number back would wait for the pass.
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
        supported = getattr(self.model.encoder, "supports_gradient_checkpointing", False)
        if len(rows) > 1:
            # Half of what did not fit, which may be far below the budget.
            self.tokens = tokens // 2
        # A single row cannot be split in the loss; with checkpointing its activations are
        # recomputed, at a third more time.
        elif not is_checkpointing(self.model) and supported:
            checkpoint(self.model)
            logger.warning("out of GPU memory: enabling activation checkpointing")
            return
        # With checkpointing a row's passes may be smaller than the row: chunk by chunk at the
        # least.
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
        return on(score_NG.device, torch.tensor(values, dtype=score_NG.dtype))

    groups = [row.group for row in rows]
    relevance = [(float(group.grade), *[0.0] * len(group.negatives)) for group in groups]
    teacher = [group.teacher for group in groups if group.teacher is not None]
    return Targets(tensor(relevance), tensor(teacher) if teacher else None)
