"""The training loop, a generator that yields at validations and every few steps."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor, nn

from rank_core import distributed
from rank_core.chunking.batches import PairEncoder
from rank_core.errors import Diverged
from rank_core.machine import ahead
from rank_core.models.ranker import Ranker
from rank_core.ranking.encode import Work
from rank_core.seeding import derive
from rank_core.settings.config import Training
from rank_core.training.examples import (
    TrainingGroup,
    TrainingQuery,
    TrainingReader,
    training_groups,
)
from rank_core.training.micro_batch import TrainingStep
from rank_core.training.optimizer import Timetable, build_optimizer, set_learning_rates
from rank_core.training.step_times import UNTIMED, StepTimes

RECORD_EVERY = 20  # steps; losses stay on the device in between, to avoid synchronisation


@dataclass(frozen=True)
class Streams:
    """The seeds of a trial's independent random streams."""

    init: int
    order: int
    negatives: int
    dropout: int


@dataclass(frozen=True)
class CurvePoint:
    """An optimizer step; `loss` is the mean over the groups of the global batch."""

    step: int
    seconds: float  # Unix time
    loss: float
    learning_rate: float  # of the backbone
    gradient_norm: float  # before clipping


@dataclass(frozen=True)
class TrainRecord:
    """The steps since the last record, and whether to validate now."""

    step: int
    num_steps: int
    curve: tuple[CurvePoint, ...]
    validate: bool


def no_pause(step: int) -> bool:
    """Never pauses."""
    return False


def epoch_groups(training: Training, num_queries: int) -> int:
    """Groups per epoch: one per query, or those of `training.epoch_steps`."""
    return training.epoch_steps * training.batch_size or num_queries


def num_training_steps(training: Training, num_queries: int) -> int:
    """Optimizer steps of a trial: whole batches, at least one; 0 without epochs."""
    if training.num_epochs == 0:
        return 0
    groups = training.num_epochs * epoch_groups(training, num_queries)
    steps = max(1, groups // training.batch_size)
    return min(steps, training.max_steps) if training.max_steps else steps


def validation_interval(training: Training, num_queries: int) -> int:
    """Steps between validations: the setting, or an epoch; the last step is always validated."""
    groups = epoch_groups(training, num_queries)
    return training.validate_every or max(1, groups // training.batch_size)


@dataclass
class LoopState:
    """The state between two steps, apart from weights, settings and seeds."""

    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    step: int = 0  # completed optimizer steps
    tokens: int = 0  # this worker's micro-batch budget; 0: the device's


def initial_state(model: Ranker, training: Training, autocast: torch.dtype | None) -> LoopState:
    """The state before the first step."""
    # Only fp16 needs loss scaling: its smallest number is 6e-8, where bf16 has the exponents of
    # fp32.
    scaler = torch.amp.GradScaler(model.device.type, enabled=autocast == torch.float16)
    return LoopState(build_optimizer(model, training), scaler)


def train(
    model: Ranker,
    pairs: PairEncoder,
    queries: Sequence[TrainingQuery],
    training: Training,
    *,
    streams: Streams,
    autocast: torch.dtype | None,
    work: Work,
    state: LoopState | None = None,
    pause: Callable[[int], bool] = no_pause,
    times: StepTimes = UNTIMED,
) -> Iterator[TrainRecord]:
    """Trains `model` in place and yields records at validations and every `RECORD_EVERY` steps. The
    numbers depend only on settings, data and `streams`.

    Training starts from `state` and updates it: at each yield, model and state are those after the
    record's step. A single worker calls `pause` after every step and yields at once if it is true;
    several workers, which would have to agree, ignore it. `times` gets the parts of each step.
    Raises `Diverged` if the loss is not finite.
    """
    num_steps = num_training_steps(training, len(queries))
    if num_steps == 0:  # zero-shot
        yield TrainRecord(0, 0, (), validate=True)
        return
    state = state or initial_state(model, training, autocast)
    parameters = [parameter for _, parameter in model.trainable()]
    groups = epoch_groups(training, len(queries))
    timetable = Timetable(num_steps, training.batch_size, groups)
    stream = training_groups(
        queries,
        training.negatives,
        order_seed=streams.order,
        negatives_seed=streams.negatives,
        epoch_groups=groups,
        # A resumed trial continues the stream of groups in place: which group comes when is a
        # function of seeds and position alone.
        first=state.step * training.batch_size,
    )
    reader = TrainingReader.of(pairs, training, streams.dropout)
    sums = distributed.GradientSums(parameters)
    step_of = TrainingStep(model, reader, state.scaler, autocast, work, sums, tokens=state.tokens)
    validate_every = validation_interval(training, len(queries))
    rank, world_size = distributed.world()
    steps: list[_Step] = []
    # Documents are read and tokenised for the next step while the GPU computes this one.
    batches = times.waiting(ahead(own_shares(stream, reader), model.device))
    for step, batch in zip(range(state.step, num_steps), batches, strict=False):
        # Validation switches dropout off between two steps.
        model.train()
        if training.reset_optimizer and timetable.starts(step):
            state.optimizer.state.clear()  # frees memory for the next one
            state.optimizer = build_optimizer(model, training)
        set_learning_rates(state.optimizer, training, timetable, step)
        # The rank is in the stream's name: rows of different workers have different dropout
        # masks, as rows of one batch have.
        loss = step_of.backward(batch, derive(streams.dropout, step, rank))
        norm = _update(state, parameters, sums, training, times)
        rate = float(state.optimizer.param_groups[0]["lr"])
        state.step, state.tokens = step + 1, step_of.tokens
        steps.append((step + 1, time.time(), loss, rate, norm))
        # The last step is a candidate for the best checkpoint even where the interval does not
        # divide the steps.
        validate = (step + 1) % validate_every == 0 or step + 1 == num_steps
        pauses = world_size == 1 and pause(step + 1)
        if validate or pauses or len(steps) == RECORD_EVERY:
            yield TrainRecord(step + 1, num_steps, _curve(steps, training.batch_size), validate)
            steps.clear()


def own_shares(
    stream: Iterator[TrainingGroup], reader: TrainingReader
) -> Iterator[list[TrainingGroup]]:
    """This worker's groups of each global batch, of which every worker has about equally many
    tokens. The loss is a sum over groups, so it does not matter who computes which."""
    rank, num_workers = distributed.world()
    while batch := list(islice(stream, reader.training.batch_size)):
        if num_workers > 1:
            sizes = [reader.num_tokens(group) for group in batch]
            batch = [batch[i] for i in distributed.dealt(sizes, num_workers)[rank]]
        yield batch


def _update(
    state: LoopState,
    parameters: list[nn.Parameter],
    sums: distributed.GradientSums,
    training: Training,
    times: StepTimes,
) -> Tensor:
    """Takes an optimizer step with all workers' gradients; returns their norm before clipping."""
    times.end("compute")
    # Summed before unscaling: an overflow in one worker then makes all of them skip the step.
    sums.finish()
    times.end("sums")
    # The limit of the norm is meant for true gradients, not for scaled ones.
    state.scaler.unscale_(state.optimizer)
    norm = torch.nn.utils.clip_grad_norm_(parameters, training.gradient_clip or float("inf"))
    state.scaler.step(state.optimizer)
    state.scaler.update()
    # None instead of zeros: the next backward pass writes where it would add, and memory is free in
    # between.
    state.optimizer.zero_grad(set_to_none=True)
    times.end("compute")
    return norm


_Step = tuple[int, float, Tensor, float, Tensor]
"""A `CurvePoint` with loss (of this worker) and norm still on the device."""


def _curve(steps: list[_Step], batch_size: int) -> tuple[CurvePoint, ...]:
    """The steps as numbers, losses summed over workers; raises `Diverged` for non-finite ones."""
    # The first read of the losses on the host: it waits for the GPU, once for all steps of a
    # record.
    sums = distributed.sum_numbers([float(loss) for _, _, loss, _, _ in steps])
    curve = tuple(
        CurvePoint(step, seconds, total / batch_size, rate, float(norm))
        for (step, seconds, _, rate, norm), total in zip(steps, sums, strict=True)
    )
    for point in curve:
        # False for NaN too, which no comparison with `>=` would catch.
        if not (abs(point.loss) < float("inf")):
            raise Diverged(
                f"the training loss must be finite, got {point.loss} at step {point.step}; "
                "lower the learning rates or lengthen the warm-up"
            )
    return curve
