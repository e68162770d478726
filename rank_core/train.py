"""The training loop, as a generator: it yields at validation points and whenever it has news."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from rank_core import distributed
from rank_core.batches import PairEncoder
from rank_core.config import Training
from rank_core.encode import Document, Work, score_documents
from rank_core.errors import Diverged
from rank_core.examples import TrainingGroup, TrainingQuery, training_groups
from rank_core.losses import loss_of
from rank_core.micro_batch import micro_batch_tokens
from rank_core.models.ranker import Ranker
from rank_core.optimise import build_optimizer, schedule_factor, set_learning_rates
from rank_core.seeding import derive

NEWS_EVERY = 20  # steps; losses stay on the device in between, so that no step waits for them


@dataclass(frozen=True)
class Streams:
    """The seeds of a trial's independent random streams."""

    init: int
    order: int
    negatives: int
    dropout: int


@dataclass(frozen=True)
class CurvePoint:
    """One optimiser step; `loss` is the mean over the global batch's groups."""

    step: int
    seconds: float  # wall clock, Unix time
    loss: float
    learning_rate: float  # of the backbone
    gradient_norm: float  # before clipping


@dataclass(frozen=True)
class TrainRecord:
    """News from the loop: the steps since the last record, and whether to validate now."""

    step: int
    num_steps: int
    curve: tuple[CurvePoint, ...]
    validate: bool


def num_training_steps(training: Training, num_queries: int) -> int:
    """Optimiser steps of a trial: whole batches only, at least one."""
    steps = max(1, training.num_epochs * num_queries // training.batch_size)
    return min(steps, training.max_steps) if training.max_steps else steps


def validation_interval(training: Training, num_queries: int) -> int:
    """Steps between validations: as set, or an epoch's; the last step always validates too."""
    return training.validate_every or max(1, num_queries // training.batch_size)


def train(
    model: Ranker,
    pairs: PairEncoder,
    queries: list[TrainingQuery],
    training: Training,
    *,
    streams: Streams,
    autocast: torch.dtype | None,
    work: Work,
) -> Iterator[TrainRecord]:
    """Trains `model` in place; the same streams give the same numbers, whatever ran before."""
    device = model.device
    parameters = [parameter for _, parameter in model.trainable()]
    optimizer = build_optimizer(model, training)
    scaler = torch.amp.GradScaler(device.type, enabled=autocast == torch.float16)
    stream = training_groups(
        queries,
        training.negatives,
        order_seed=streams.order,
        negatives_seed=streams.negatives,
    )
    step_of = _Step(model, pairs, training, scaler, autocast, work)
    num_steps = num_training_steps(training, len(queries))
    validate_every = validation_interval(training, len(queries))
    rank, world_size = distributed.world()
    news: list[tuple[int, float, Tensor, float, Tensor]] = []
    for step in range(num_steps):
        model.train()
        # One stream per step: a resumed or reused process draws what a fresh one would.
        torch.manual_seed(derive(streams.dropout, step, rank))
        factor = schedule_factor(training.schedule, training.warmup, step, num_steps)
        set_learning_rates(optimizer, factor)
        loss = step_of.backward(list(islice(stream, training.batch_size))[rank::world_size])
        scaler.unscale_(optimizer)
        distributed.sum_gradients(parameters)
        norm = torch.nn.utils.clip_grad_norm_(parameters, training.gradient_clip or float("inf"))
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        rate = float(optimizer.param_groups[0]["lr"])
        news.append((step + 1, time.time(), loss, rate, norm))
        validate = (step + 1) % validate_every == 0 or step + 1 == num_steps
        if validate or len(news) == NEWS_EVERY:
            yield TrainRecord(step + 1, num_steps, _curve(news, training.batch_size), validate)
            news.clear()


class _Step:
    """The gradient of one batch, micro-batch by micro-batch."""

    def __init__(
        self,
        model: Ranker,
        pairs: PairEncoder,
        training: Training,
        scaler: torch.amp.GradScaler,
        autocast: torch.dtype | None,
        work: Work,
    ) -> None:
        self.model, self.pairs, self.training = model, pairs, training
        self.scaler, self.autocast, self.work = scaler, autocast, work
        self.loss = loss_of(training)
        self.tokens = training.micro_batch_tokens or micro_batch_tokens(model, pairs, autocast)

    def backward(self, batch: list[TrainingGroup]) -> Tensor:
        """Adds the batch's gradients to the parameters; returns the summed loss, detached."""
        total = torch.zeros((), device=self.model.device)
        for groups in self.micro_batches(batch):
            score_B = score_documents(
                self.model,
                self.pairs,
                [document for group in groups for document in group],
                batch_tokens=self.tokens,
                autocast=self.autocast,
                work=self.work,
            )
            loss = self.loss(score_B.view(len(groups), -1), self.training)
            self.scaler.scale(loss).backward()
            total += loss.detach()
        return total

    def micro_batches(self, batch: list[TrainingGroup]) -> Iterator[list[list[Document]]]:
        """The batch's groups in order, as many at once as the token budget holds, at least one."""
        some: list[list[Document]] = []
        used = 0
        for group in batch:
            documents: list[Document] = [
                self.pairs.chunks(group.query, doc_id) for doc_id in group.documents
            ]
            size = sum(len(chunk) for document in documents for chunk in document)
            if some and used + size > self.tokens:
                yield some
                some, used = [], 0
            some.append(documents)
            used += size
        if some:
            yield some


def _curve(
    news: list[tuple[int, float, Tensor, float, Tensor]], batch_size: int
) -> tuple[CurvePoint, ...]:
    """The steps as numbers, losses added up over workers; refuses to go on without a number."""
    sums = distributed.sum_numbers([float(loss) for _, _, loss, _, _ in news])
    curve = tuple(
        CurvePoint(step, seconds, total / batch_size, rate, float(norm))
        for (step, seconds, _, rate, norm), total in zip(news, sums, strict=True)
    )
    for point in curve:
        if not (abs(point.loss) < float("inf")):
            raise Diverged(
                f"the training loss must be finite, got {point.loss} at step {point.step}; "
                "lower the learning rates or lengthen the warm-up"
            )
    return curve
