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
from rank_core.encode import Work, score_documents
from rank_core.errors import Diverged
from rank_core.examples import TrainingGroup, TrainingQuery, training_groups
from rank_core.losses import Targets, loss_of
from rank_core.micro_batch import micro_batch_tokens
from rank_core.models.ranker import Ranker
from rank_core.optimise import Timetable, build_optimizer, set_learning_rates
from rank_core.passage_training import Row, TrainingReader
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


def epoch_groups(training: Training, num_queries: int) -> int:
    """Groups of one epoch: as many as there are queries, or what `training.epoch_steps` take."""
    return training.epoch_steps * training.batch_size or num_queries


def num_training_steps(training: Training, num_queries: int) -> int:
    """Optimiser steps of a trial: whole batches only, at least one; none without epochs."""
    if training.num_epochs == 0:
        return 0
    groups = training.num_epochs * epoch_groups(training, num_queries)
    steps = max(1, groups // training.batch_size)
    return min(steps, training.max_steps) if training.max_steps else steps


def validation_interval(training: Training, num_queries: int) -> int:
    """Steps between validations: as set, or an epoch's; the last step always validates too."""
    groups = epoch_groups(training, num_queries)
    return training.validate_every or max(1, groups // training.batch_size)


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
    num_steps = num_training_steps(training, len(queries))
    if num_steps == 0:  # the model as it was before: zero-shot
        yield TrainRecord(0, 0, (), validate=True)
        return
    device = model.device
    parameters = [parameter for _, parameter in model.trainable()]
    optimizer = build_optimizer(model, training)
    scaler = torch.amp.GradScaler(device.type, enabled=autocast == torch.float16)
    groups = epoch_groups(training, len(queries))
    timetable = Timetable(num_steps, training.batch_size, groups)
    stream = training_groups(
        queries,
        training.negatives,
        order_seed=streams.order,
        negatives_seed=streams.negatives,
        epoch_groups=groups,
    )
    reader = TrainingReader.of(pairs, training, streams.dropout)
    step_of = _Step(model, reader, scaler, autocast, work)
    validate_every = validation_interval(training, len(queries))
    rank, world_size = distributed.world()
    news: list[tuple[int, float, Tensor, float, Tensor]] = []
    for step in range(num_steps):
        model.train()
        # One stream per step: a resumed or reused process draws what a fresh one would.
        torch.manual_seed(derive(streams.dropout, step, rank))
        if training.reset_optimizer and timetable.starts(step):
            optimizer = build_optimizer(model, training)
        set_learning_rates(optimizer, training, timetable, step)
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
        reader: TrainingReader,
        scaler: torch.amp.GradScaler,
        autocast: torch.dtype | None,
        work: Work,
    ) -> None:
        training, self.reader = reader.training, reader
        self.model, self.pairs, self.training = model, reader.pairs, training
        self.scaler, self.autocast, self.work = scaler, autocast, work
        self.loss = loss_of(training)
        self.tokens = training.micro_batch_tokens or micro_batch_tokens(
            model, reader.pairs, autocast, group_size=1 + training.negatives
        )

    def backward(self, batch: list[TrainingGroup]) -> Tensor:
        """Adds the batch's gradients to the parameters; returns the summed loss, detached."""
        total = torch.zeros((), device=self.model.device)
        for rows in self.micro_batches(batch):
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


def _targets(rows: list[Row], score_NG: Tensor) -> Targets:
    """What is known of the rows' documents, on the scores' device; the copies do not wait."""

    def tensor(values: list[tuple[float, ...]]) -> Tensor:
        return torch.tensor(values, dtype=score_NG.dtype).to(score_NG.device, non_blocking=True)

    groups = [row.group for row in rows]
    relevance = [(float(group.grade), *[0.0] * len(group.negatives)) for group in groups]
    teacher = [group.teacher for group in groups if group.teacher is not None]
    return Targets(tensor(relevance), tensor(teacher) if teacher else None)


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
