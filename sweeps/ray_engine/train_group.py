"""The timing of a trial's training and validation on a group of Ray Train's workers."""

import socket
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

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
from sweeps.ray_engine.timing import Timing
from sweeps.ray_engine.trial_process import end_of_group, run_group


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
    marks: list[tuple[int, float, float]] = []  # steps and seconds, at the end of each epoch
    for news in model.run(Path()):
        assert isinstance(news, Progress)
        losses += [point.loss for point in news.curve]
        if news.dev is not None:
            marks.append((news.step, model.train_seconds, model.eval_seconds))
        if news.step == news.num_steps:
            break
    assert model.best.run is not None
    documents = sum(len(scores) for scores in model.best.run.values())
    # The first epoch includes tokenization, allocation and kernel builds: timing starts after it.
    repeats = list(pairwise(marks))
    found = versions()
    nodes, devices = zip(*_of_each_worker((socket.gethostname(), found["device"])), strict=True)
    timing = Timing(
        num_workers=train.get_context().get_world_size(),
        losses=tuple(losses),
        steps_per_second=tuple((b[0] - a[0]) / (b[1] - a[1]) for a, b in repeats),
        documents_per_second=tuple(documents / (b[2] - a[2]) for a, b in repeats),
        nodes=nodes,
        devices=devices,
    )
    precision = str(model.autocast or torch.float32).removeprefix("torch.")
    return Timed(timing, precision, found)


def _of_each_worker(place: tuple[str, str]) -> list[tuple[str, str]]:
    """What each worker of this one's group gives, by rank."""
    if not distributed.is_initialized():
        return [place]
    places = [place] * distributed.get_world_size()
    distributed.all_gather_object(places, place)
    return places
