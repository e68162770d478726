"""The time that a plan will take: rates measured on the device that will run it, times the tokens
that its trials read.

A batch is measured for each kind of trial, as many as begin within a minute: in this process, on a
GPU in one of its own, in a cluster by a task on one of its nodes. Parallel trials on
cores share the memory's bandwidth, which finished trials show, but not a single batch.
"""

import heapq
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from multiprocessing import get_context

import torch

from rank_core.models import model_class
from rank_core.models.list_rankers import ListRanker
from sweeps.forecast.microbenchmark import Speed, probe
from sweeps.plan.options import Options, cluster_address
from sweeps.plan.plan import Plan, PlannedCell
from sweeps.plan.trial_cost import Tokens, planned_tokens
from sweeps.store.records import State

CALIBRATING = 50  # finished trials that are read
SPREAD = 0.2  # standard deviation of the log of (real / estimated), unknown from a batch
Z = 1.96  # 95%
ONLY_HOW_MUCH = frozenset(
    "seed chunking.stride chunking.max_chunks chunking.overflow training.max_steps training.margin "
    "training.validate_every training.backbone_learning_rate training.head_learning_rate "
    "training.aggregator_learning_rate training.weight_decay training.warmup".split()
)
"""Settings without effect on the time of a token."""


@dataclass(frozen=True)
class TrialEstimate:
    """The measured trial of a cell."""

    seconds: float
    tokens: float  # that the encoder reads
    peak_bytes: int


@dataclass(frozen=True)
class Calibration:
    """The log ratio of real and estimated times of trials: mean and standard error."""

    log_ratio: float
    log_sd: float
    num_trials: int

    def interval(self, amount: float) -> tuple[float, float, float]:
        """(low, middle, high) of an estimated amount of time."""
        middle = amount * math.exp(self.log_ratio)
        factor = math.exp(Z * self.log_sd)
        return middle / factor, middle, middle * factor


@dataclass(frozen=True)
class Forecast:
    """Estimates of the cells' trials, and of the device that they were measured on."""

    trials: dict[str, TrialEstimate]  # by cell; none for a system on a server
    slots: int  # parallel trials
    units: float  # GPUs of a slot, or its cores where there is no GPU
    unit: str  # "GPU" or "core"
    start_seconds: float  # of the command, and again of its first trials: imports, data
    num_kinds: int  # of trials with the same cost per token
    num_measured: int  # of the kinds; another has the cost per token of the nearest
    seconds: float  # of measuring
    device: str
    threads: int


@dataclass(frozen=True)
class _Place:
    """The resources of a trial where it will run."""

    slots: int
    gpus: float  # of all workers of a trial


def forecast(plan: Plan, options: Options) -> Forecast:
    """Measure and estimate; raises `BadInput` where a trial does not fit the device."""
    age, start = time.process_time(), time.perf_counter()
    groups = _cost_groups(plan.cells)
    largest = [max(cells, key=lambda cell: cell.chunks.tokens_per_document) for cells in groups]
    place, measured = _measure(largest, options)
    speeds = [_per_token(cell, speed) for cell, speed in zip(largest, measured, strict=False)]
    trials = {}
    for cells in groups:
        speed = _nearest(cells[0], largest, speeds)
        for cell in cells:
            tokens = planned_tokens(cell.config, cell.inputs, cell.chunks)
            trials[cell.cell] = trial_estimate(tokens, speed, num_workers=options.num_workers)
    example = speeds[0] if speeds else None
    return Forecast(
        trials=trials,
        slots=place.slots,
        units=place.gpus or float(options.num_workers * options.cpus_per_worker),
        unit="GPU" if place.gpus else "core",
        start_seconds=2 * age,
        num_kinds=len(groups),
        num_measured=len(speeds),
        seconds=time.perf_counter() - start,
        device=example.device if example else "",
        threads=options.cpus_per_worker,
    )


def real_seconds(states: Iterable[State], known: Forecast) -> list[tuple[TrialEstimate, float]]:
    """Estimates of finished trials with their real times, of the same kind of device and number of
    threads."""
    pairs = []
    finished = (state for state in states if state.status.used and state.cell in known.trials)
    for state in islice(finished, CALIBRATING):
        ran_on = state.facts.get("versions", {})
        if (ran_on.get("device"), ran_on.get("threads")) == (known.device, str(known.threads)):
            seconds = state.facts["train_seconds"] + state.facts["eval_seconds"]
            pairs.append((known.trials[state.cell], seconds))
    return pairs


def _cost_groups(cells: Sequence[PlannedCell]) -> list[list[PlannedCell]]:
    """The cells with weights, grouped by cost per token."""
    groups: dict[tuple[object, ...], list[PlannedCell]] = {}
    for cell in cells:
        if not issubclass(model_class(cell.config.model.name), ListRanker):
            groups.setdefault(same_speed(cell.config.settings()), []).append(cell)
    return list(groups.values())


def _nearest(cell: PlannedCell, largest: Sequence[PlannedCell], speeds: list[Speed]) -> Speed:
    """The speed of the measured cell with the same model, or else with the nearest cost."""
    name = cell.config.model.name
    measured = zip(largest, speeds, strict=False)
    return min(
        measured,
        key=lambda pair: (pair[0].config.model.name != name, abs(pair[0].cost - cell.cost)),
    )[1]


def _per_token(cell: PlannedCell, speed: Speed) -> Speed:
    """The measured speed of a cell in seconds per token of its mean document."""
    tokens, chunks = cell.chunks.tokens_per_document, cell.chunks.chunks_per_document
    trained = tokens * cell.config.training.share_read(chunks)
    return replace(speed, scoring=speed.scoring / tokens, training=speed.training / trained)


def _measure(cells: Sequence[PlannedCell], options: Options) -> tuple[_Place, list[Speed]]:
    """The resources of a trial, and the speeds of the first cells, or of all if that is quick."""
    place = _this_machine(options)
    if options.engine == "local":
        place = replace(place, slots=1)
    if not cells:
        return place, []
    settings = [cell.config.settings() for cell in cells]
    measure = partial(probe, settings, options.cpus_per_worker, gpu_share=options.gpu_share)
    if options.engine != "local" and cluster_address():
        from sweeps.ray_engine.cluster import on_a_slot

        slot, speeds = on_a_slot(measure, options)
        return _Place(slot.slots, slot.num_workers * slot.gpus), speeds
    if not torch.cuda.is_available():
        return place, measure()
    # Otherwise this process would hold a part of the GPU's memory until it ends.
    hide = None if place.gpus else _hide_gpus
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=hide) as pool:
        return place, pool.submit(measure).result()


def _hide_gpus() -> None:
    """Hide the GPUs from this process, which has not used them yet."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def slots_of(options: Options) -> int:
    """The number of parallel trials on the cluster, or on this machine as Ray would see it."""
    if options.engine != "local" and cluster_address():
        from sweeps.ray_engine.cluster import slots_of_cluster

        return slots_of_cluster(options)
    return _this_machine(options).slots


def _this_machine(options: Options) -> _Place:
    """This machine alone, as Ray will see it."""
    slots, gpus = (os.cpu_count() or 1) / (options.num_workers * options.cpus_per_worker), 0.0
    if torch.cuda.is_available() and options.gpus_per_worker != 0:
        gpus = options.num_workers * (options.gpus_per_worker or 1.0)
        slots = min(slots, torch.cuda.device_count() / gpus)
    return _Place(max(1, int(slots)), gpus)


def trial_estimate(tokens: Tokens, speed: Speed, *, num_workers: int = 1) -> TrialEstimate:
    """A trial's time from its tokens; workers share reading evenly."""
    reading = tokens.scored * speed.scoring + tokens.trained * speed.training
    return TrialEstimate(
        seconds=speed.start_seconds + reading / num_workers,
        tokens=tokens.scored + tokens.trained,
        peak_bytes=speed.peak_bytes,
    )


def calibrate(real: Sequence[tuple[TrialEstimate, float]]) -> Calibration:
    """The calibration of estimates by finished trials and their real seconds; without any its
    standard error is `SPREAD`, as if one trial had taken as long as estimated."""
    logs = [math.log(seconds / trial.seconds) for trial, seconds in real if seconds > 0]
    number = len(logs) + 1
    return Calibration(sum(logs) / number, SPREAD / math.sqrt(number), len(logs))


def wall_seconds(seconds: Iterable[float], slots: int, busy: Sequence[float] = ()) -> float:
    """The time at which the last trial ends if each starts, in order, on the first free slot;
    `busy` are the seconds for which slots are taken."""
    free = [*busy, *[0.0] * (slots - len(busy))]
    heapq.heapify(free)
    for duration in seconds:
        heapq.heappush(free, heapq.heappop(free) + duration)
    return max(free)


def same_speed(settings: Mapping[str, object]) -> tuple[object, ...]:
    """A key of the cost per token, equal for configurations with the same cost."""
    return tuple(value for name, value in sorted(settings.items()) if name not in ONLY_HOW_MUCH)
