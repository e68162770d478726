"""Optimizer, learning-rate schedules and precision."""

import math
from dataclasses import dataclass

import torch

from rank_core.errors import OutOfMemory
from rank_core.machine import is_out_of_memory
from rank_core.models.ranker import Ranker
from rank_core.settings.config import Training
from rank_core.settings.training import LAST_EPOCH

INVERSE_DECAY = 0.1  # in schedule inverse-epoch the rate is divided by 1 + 0.1 x epoch
ONE_CYCLE_START = 1 / 25  # torch's div_factor
ONE_CYCLE_END = ONE_CYCLE_START / 1e4  # and its final_div_factor


@dataclass(frozen=True)
class Timetable:
    """The steps of each epoch. An epoch is a number of groups: if batches do not divide it, epochs
    differ by one step."""

    num_steps: int
    batch_size: int
    epoch_groups: int

    def epoch(self, step: int) -> int:
        """The epoch of a step, both from 0."""
        return ((step + 1) * self.batch_size - 1) // self.epoch_groups

    def span(self, epoch: int) -> tuple[int, int]:
        """(first step, number of steps) of an epoch."""
        first, end = (e * self.epoch_groups // self.batch_size for e in (epoch, epoch + 1))
        return first, min(end, self.num_steps) - first

    def starts(self, step: int) -> bool:
        """True for the first step of an epoch."""
        return self.span(self.epoch(step))[0] == step


def build_optimizer(model: Ranker, training: Training) -> torch.optim.AdamW:
    """AdamW with a learning rate per part of the model."""
    rates = {
        "backbone": training.backbone_learning_rate,
        "head": training.head_learning_rate,
        "aggregator": training.aggregator_learning_rate,
        "interaction": training.interaction_learning_rate or training.aggregator_learning_rate,
    }
    groups = [
        {
            "params": parameters,
            "lr": rates[role],
            "peak_lr": rates[role],
            "warms_up": role != "backbone" or training.warmup_backbone,
        }
        for role, parameters in model.learning_rate_groups().items()
        if parameters
    ]
    # Fused: one kernel over all weights in place of a few for each of hundreds of tensors.
    optimizer = torch.optim.AdamW(groups, weight_decay=training.weight_decay, fused=True)
    _allocate_moments(optimizer)
    return optimizer


def _allocate_moments(optimizer: torch.optim.AdamW) -> None:
    """Allocates the optimizer's state before its first step: a failing first step could not be
    repeated. Raises `OutOfMemory`."""
    try:
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            optimizer.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter, memory_format=torch.preserve_format),
                "exp_avg_sq": torch.zeros_like(parameter, memory_format=torch.preserve_format),
            }
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemory(
            "the GPU's memory cannot hold the model and two moments of each weight; use a smaller "
            "backbone or a larger GPU, or give the trial a larger share of it"
        ) from None


def set_learning_rates(
    optimizer: torch.optim.Optimizer, training: Training, timetable: Timetable, step: int
) -> None:
    """Sets every group's rate to its peak rate times its factor at `step`."""
    for group in optimizer.param_groups:
        factor = rate_factor(training, timetable, step, warms_up=group["warms_up"])
        group["lr"] = group["peak_lr"] * factor


def rate_factor(
    training: Training, timetable: Timetable, step: int, *, warms_up: bool = True
) -> float:
    """The fraction of the peak rate at `step`: the schedule over all steps, or over the epoch's if
    the optimizer is reset in each, times the decay of the epochs before."""
    epoch, schedule = timetable.epoch(step), training.schedule
    warmup = training.warmup if warms_up else 0.0
    first, size = timetable.span(epoch)
    in_last_epoch = epoch == timetable.epoch(timetable.num_steps - 1)
    decay: float = training.epoch_decay**epoch
    if schedule.endswith(LAST_EPOCH) and in_last_epoch:
        one_cycle = schedule.removesuffix(LAST_EPOCH)
        return decay * schedule_factor(one_cycle, training.warmup, step - first, size)
    if not training.reset_optimizer:
        first, size = 0, timetable.num_steps
    if schedule == "inverse-epoch" and step >= math.ceil(warmup * size):
        decay /= 1 + INVERSE_DECAY * epoch
    if schedule.endswith(LAST_EPOCH) or schedule == "inverse-epoch":
        schedule = "constant"
    return decay * schedule_factor(schedule, warmup, step - first, size)


def schedule_factor(schedule: str, warmup: float, step: int, num_steps: int) -> float:
    """The fraction of the peak rate at `step` (0-based): linear warm-up, then constant, linear
    decay to 0 or half a cosine down to 0 (one-cycle); for one-cycle-linear see
    `_one_cycle_linear`."""
    if schedule == "one-cycle-linear":
        return _one_cycle_linear(warmup, step, num_steps)
    warmup_steps = math.ceil(warmup * num_steps)
    if step < warmup_steps:
        # From 1 / n and not from 0: a first step at rate 0 would be lost.
        return (step + 1) / warmup_steps
    # Below 1 at the last step, which would otherwise change nothing.
    done = (step - warmup_steps) / max(1, num_steps - warmup_steps)
    if schedule == "linear":
        return 1 - done
    if schedule == "one-cycle":
        return 0.5 * (1 + math.cos(math.pi * done))
    return 1.0


def _one_cycle_linear(warmup: float, step: int, num_steps: int) -> float:
    """torch's OneCycleLR with anneal_strategy="linear"; a phase may end between two steps."""
    # As in torch, phases end at fractional steps: rounding them would give other rates than its
    # scheduler.
    top, last = warmup * num_steps - 1, num_steps - 1
    if step <= top:
        return ONE_CYCLE_START + (1 - ONE_CYCLE_START) * (step / top if top else 1)
    return 1 - (1 - ONE_CYCLE_END) * (step - top) / (last - top)
