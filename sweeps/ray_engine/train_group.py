"""The timing of a trial's training and validation on a group of Ray Train's workers."""

import socket
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ray import train
from ray.train.torch import get_device
from torch import distributed

from rank_core.chunking.inputs import load_inputs
from rank_core.encoders.packed import COMPILE_TOKENS
from rank_core.machine import begin_on_device, take_gpu, versions
from rank_core.settings.config import TrialConfig
from rank_core.trial.cross_validation import parts_of
from rank_core.trial.fold_model import FoldModel
from rank_core.trial.trial import Progress, trial_streams
from sweeps.plan.resources import Resources
from sweeps.ray_engine.timing import PARTS, Timing
from sweeps.ray_engine.trial_process import end_of_group, run_group

Mark = tuple[int, float, float, int]
"""Steps, seconds of training and of validation, tokens, at the end of an epoch."""


@dataclass(frozen=True)
class Timed:
    """The measurements of a group, from its rank 0."""

    timing: Timing
    precision: str  # of matrix products: float32, bfloat16 or float16
    versions: dict[str, str]


class GroupFailed(RuntimeError):
    """A worker failed, or the group never formed, as the message states."""


def timed(config: TrialConfig, resources: Resources) -> Timed:
    """Trains and validates on `resources.num_workers` workers; every epoch after the first is a
    repeat. Raises `GroupFailed` where a worker fails."""
    work = {"config": config, "resources": resources}
    try:
        timings: Timed = run_group(_worker, work, resources, f"scaling-{resources.num_workers}")
    except train.TrainingFailedError as error:
        raise GroupFailed(end_of_group(error).reason) from error
    return timings


def _worker(work: dict[str, Any]) -> Timed:
    """Runs the trial's loop in a worker, up to the scoring of test."""
    config: TrialConfig = work["config"]
    resources: Resources = work["resources"]
    if resources.gpus:
        take_gpu(get_device())
    torch.set_num_threads(resources.threads)
    begin_on_device(min(1.0, resources.gpus or 1.0))
    inputs = parts_of(config, load_inputs(config.collection, config.model.backbone))[0]
    model = FoldModel(config, inputs, trial_streams(config, inputs.backbone.content_hash))
    model.model.compile_layers(COMPILE_TOKENS)  # as in a trial of its real length
    losses: list[float] = []
    marks: list[Mark] = []
    last = config.training.num_epochs - 1
    for news in model.run(Path()):
        assert isinstance(news, Progress)
        losses += [point.loss for point in news.curve]
        if news.dev is not None:
            marks.append((news.step, model.train_seconds, model.eval_seconds, model.work.tokens))
            model.times.on = len(marks) == last
        if news.step == news.num_steps:
            break
    assert model.best.run is not None
    documents = sum(len(scores) for scores in model.best.run.values())
    marks = timed_marks(marks, waits=bool(resources.gpus))
    # The first epoch includes tokenization, allocation and kernel builds: timing starts after it.
    repeats = list(pairwise(marks))
    found = versions()
    own = WorkerTiming(
        *(socket.gethostname(), found["device"]),
        tokens=[b[3] - a[3] for a, b in repeats],
        steps=[(one.data, one.compute, one.sums) for one in model.times.steps],
    )
    workers = _of_each_worker(own)
    tokens = [sum(each) for each in zip(*(one.tokens for one in workers), strict=True)]
    timing = Timing(
        num_workers=train.get_context().get_world_size(),
        losses=tuple(losses),
        steps_per_second=tuple((b[0] - a[0]) / (b[1] - a[1]) for a, b in repeats),
        documents_per_second=tuple(documents / (b[2] - a[2]) for a, b in repeats),
        nodes=tuple(one.node for one in workers),
        devices=tuple(one.device for one in workers),
        batch_size=config.training.batch_size,
        tokens_per_second=tuple(
            number / (b[1] - a[1]) for number, (a, b) in zip(tokens, repeats, strict=True)
        ),
        learned=model.work.learned / max(1, model.work.tokens),
        row=model.work.tokens / max(1, model.work.inputs),
        parts=parts_of_steps([one.steps for one in workers]),
        seconds=marks[-1][1] + marks[-1][2],
        num_steps=marks[-1][0],
        gpus=len(workers) * resources.gpus,
        cores=0.0 if resources.gpus else float(len(workers) * resources.threads),
    )
    precision = str(model.autocast or torch.float32).removeprefix("torch.")
    return Timed(timing, precision, found)


def timed_marks(marks: list[Mark], *, waits: bool) -> list[Mark]:
    """The marks by which rates and hours are taken. A GPU is waited for after each part of a step
    in the last epoch, which slows it down: that is left out where another one is timed."""
    return marks[:-1] if waits and len(marks) > 2 else marks


@dataclass(frozen=True)
class WorkerTiming:
    """What one worker has measured."""

    node: str
    device: str
    tokens: list[int]  # of each repeat
    steps: list[tuple[float, float, float]]  # seconds of data, compute, sums


def parts_of_steps(steps: list[list[tuple[float, float, float]]]) -> tuple[float, ...]:
    """The seconds of `PARTS`, from each worker's data, compute and sums of the same steps: a sum
    ends for all workers at once, so that the last one to begin it waits for nobody."""
    seconds_WSP = np.array(steps)
    if not seconds_WSP.size:
        return ()
    data, compute, sums = seconds_WSP.mean(axis=(0, 1))
    all_reduce = seconds_WSP[:, :, 2].min(axis=0).mean()
    found = dict(data=data, compute=compute, all_reduce=all_reduce, waiting=sums - all_reduce)
    return tuple(float(found[name]) for name in PARTS)


def _of_each_worker(measured: WorkerTiming) -> list[WorkerTiming]:
    """What each worker of this one's group has measured, by rank."""
    if not distributed.is_initialized():
        return [measured]
    of_all = [measured] * distributed.get_world_size()
    distributed.all_gather_object(of_all, measured)
    return of_all
