"""The gradient of one batch, micro-batch by micro-batch; on a GPU that is too small, in smaller
ones."""

import logging
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from rank_core.errors import OutOfMemory
from rank_core.models.ranker import Ranker
from rank_core.ranking.encode import Work, score_documents
from rank_core.training.examples import TrainingGroup
from rank_core.training.losses import Targets, loss_of
from rank_core.training.micro_batch import (
    can_checkpoint,
    checkpoint,
    is_checkpointing,
    micro_batch_tokens,
)
from rank_core.training.passage_training import Row, TrainingReader

logger = logging.getLogger(__name__)


class TrainingStep:
    """Computes gradients of whole batches. `tokens` is the budget of a micro-batch; it shrinks
    where the GPU does not hold it."""

    def __init__(
        self,
        model: Ranker,
        reader: TrainingReader,
        scaler: torch.amp.GradScaler,
        autocast: torch.dtype | None,
        work: Work,
        *,
        tokens: int = 0,
    ) -> None:
        training, self.reader = reader.training, reader
        self.model, self.pairs, self.training = model, reader.pairs, training
        self.scaler, self.autocast, self.work = scaler, autocast, work
        self.loss = loss_of(training)
        # Measured also where the number is known: it decides what the encoder keeps in memory.
        suits = training.micro_batch_tokens or micro_batch_tokens(
            model, reader.pairs, autocast, group_size=1 + training.negatives
        )
        self.tokens = tokens or suits
        self._at_work: list[Row] = []  # the micro-batch that is computed now

    def backward(self, batch: list[TrainingGroup], seed: int) -> Tensor:
        """Adds the batch's gradients to the parameters; returns the summed loss, detached.

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
            except torch.cuda.OutOfMemoryError:
                pass  # what the failed pass holds is free only outside of this block
            self.model.zero_grad(set_to_none=True)
            self.model.extra_loss = None
            vars(self.work).update(vars(before))
            if self.model.device.type == "cuda":
                torch.cuda.empty_cache()
            self._shrink()

    def _backward(self, batch: list[TrainingGroup]) -> Tensor:
        total = torch.zeros((), device=self.model.device)
        for rows in self.micro_batches(batch):
            self._at_work = rows
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
        """Makes do with less than the micro-batch took that did not fit."""
        rows, self._at_work = self._at_work, []
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
    """What is known of the rows' documents, on the scores' device; the copies do not wait."""

    def tensor(values: list[tuple[float, ...]]) -> Tensor:
        return torch.tensor(values, dtype=score_NG.dtype).to(score_NG.device, non_blocking=True)

    groups = [row.group for row in rows]
    relevance = [(float(group.grade), *[0.0] * len(group.negatives)) for group in groups]
    teacher = [group.teacher for group in groups if group.teacher is not None]
    return Targets(tensor(relevance), tensor(teacher) if teacher else None)
