"""The training loop, as a generator: it yields at validation points and whenever it has news."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from rank_core import distributed
from rank_core.batches import ChunkBatch, PairEncoder
from rank_core.config import Training
from rank_core.errors import Diverged
from rank_core.examples import TrainingPair, TrainingQuery, training_pairs
from rank_core.losses import pairwise_margin
from rank_core.models.ranker import Ranker
from rank_core.optimise import build_optimizer, schedule_factor, set_learning_rates
from rank_core.rerank import Work
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
    """One optimiser step; `loss` is the mean over the global batch's pairs."""

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
    device = model.head.weight.device
    parameters = [parameter for _, parameter in model.trainable()]
    optimizer = build_optimizer(model, training)
    scaler = torch.amp.GradScaler(device.type, enabled=autocast == torch.float16)
    stream = training_pairs(queries, order_seed=streams.order, negatives_seed=streams.negatives)
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
        batch = list(islice(stream, training.batch_size))[rank::world_size]
        loss = _backward(model, pairs, batch, training, scaler, autocast, work)
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


def _backward(
    model: Ranker,
    pairs: PairEncoder,
    batch: list[TrainingPair],
    training: Training,
    scaler: torch.amp.GradScaler,
    autocast: torch.dtype | None,
    work: Work,
) -> Tensor:
    """Adds the batch's gradients micro-batch by micro-batch; returns the summed loss, detached."""
    device = model.head.weight.device
    total = torch.zeros((), device=device)
    for start in range(0, len(batch), training.micro_batch_size):
        some = batch[start : start + training.micro_batch_size]
        chunks = [pairs.chunks(pair.query, pair.positive) for pair in some]
        chunks += [pairs.chunks(pair.query, pair.negative) for pair in some]
        work.add([len(chunk) for document in chunks for chunk in document])
        with torch.autocast(device.type, dtype=autocast, enabled=autocast is not None):
            score_2N = model(_to(pairs.collate(chunks), device)).float()
        positive_N, negative_N = score_2N.chunk(2)
        loss = pairwise_margin(positive_N, negative_N, training.margin)
        scaler.scale(loss).backward()
        total += loss.detach()
    return total


def _to(batch: ChunkBatch, device: torch.device) -> ChunkBatch:
    moved = [part.to(device) if isinstance(part, Tensor) else part for part in batch]
    return ChunkBatch(*moved)  # type: ignore[arg-type]


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
