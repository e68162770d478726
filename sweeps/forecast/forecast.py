"""The time that a plan will take: rates measured on the device that will run it, times the tokens
that its trials read.

A batch is measured for each kind of trial, for a tenth of the forecast time at most: in this
process, on a GPU in one of its own, in a cluster by a task on one of its nodes. Parallel trials on
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
from multiprocessing import get_context

import torch

from rank_core.models import model_class
from rank_core.models.list_rankers import ListRanker
from rank_core.trial.cross_validation import parts_of
from sweeps.forecast.microbenchmark import Planned, Speed, draw, planned_tokens, probe
from sweeps.plan.options import Options, cluster_address
from sweeps.plan.plan import Plan, PlannedCell, Trial
from sweeps.plan.trial_cost import Reads, trial_reads
from sweeps.store.checksums import RESULT, DamagedTrial, parse_result
from sweeps.store.trial_store import Store

MEASURING = 0.1  # of the forecast time
CALIBRATING = 50  # finished trials that are read
SPREAD = 0.2  # standard deviation of the log of (real / estimated), unknown from a batch
Z = 1.96  # 95%
CONTEXT_BYTES = 2**29  # of a process on a GPU, about: kernels and libraries
ONLY_HOW_MUCH = frozenset(
    {
        "seed",
        "chunking.stride",
        "chunking.max_chunks",
        "chunking.overflow",
        "training.max_steps",
        "training.validate_every",
        "training.backbone_learning_rate",
        "training.head_learning_rate",
        "training.aggregator_learning_rate",
        "training.weight_decay",
        "training.warmup",
        "training.margin",
    }
)
"""Settings without effect on the time of a token."""


@dataclass(frozen=True)
class TrialEstimate:
    """The measured trial of a cell."""

    seconds: float
    tokens: float  # that the encoder reads
    peak_bytes: int
    start: float = 0.0  # of `seconds`, before its first step
    end: float = 0.0  # of `seconds`, after its last epoch: test
    validation: float = 0.0  # of `seconds`, on dev

    def part(self, share: float, *, ends: bool) -> "TrialEstimate":
        """So much of its epochs, in a process of its own; with the end of the trial or without."""
        once = self.start + self.end * ends
        seconds = once + share * (self.seconds - self.start - self.end)
        return TrialEstimate(
            seconds,
            self.tokens * seconds / self.seconds,
            self.peak_bytes,
            self.start,
            self.end * ends,
            self.validation * share,
        )


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
    device_bytes: int  # memory of the GPU; 0 on a CPU
    threads: int


@dataclass(frozen=True)
class _Place:
    """The resources of a trial where it will run."""

    slots: int
    gpus: float  # of all workers of a trial


def forecast(plan: Plan, options: Options) -> Forecast:
    """Measure for a tenth of the forecast time; raises `BadInput` where a trial does not fit the
    device."""
    age = time.process_time()
    start = time.perf_counter()
    groups = _cost_groups(plan.cells)
    largest = [max(cells, key=lambda cell: cell.chunks.tokens_per_document) for cells in groups]
    place, speeds = _measure(largest, plan, options)
    trials = {}
    for cells in groups:
        speed = _nearest(cells[0], largest, speeds)
        for cell in cells:
            workers = options.num_workers
            trials[cell.cell] = trial_estimate(*_reads(cell), speed, num_workers=workers)
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
        device_bytes=example.device_bytes if example else 0,
        threads=options.cpus_per_worker,
    )


def real_seconds(
    trials: Iterable[Trial], finished: set[str], store: Store, known: Forecast
) -> list[tuple[TrialEstimate, float]]:
    """Estimates of finished trials with their real times, of the same kind of device and number of
    threads."""
    pairs = []
    for trial in [t for t in trials if t.name in finished and t.cell.cell in known.trials][
        :CALIBRATING
    ]:
        path = f"{store.root}/runs/{trial.name}"
        try:
            result = parse_result(store.fs.cat_file(f"{path}/{RESULT}"), path).facts
        except DamagedTrial:
            continue
        ran_on = result.get("versions", {})
        if (ran_on.get("device"), ran_on.get("threads")) == (known.device, str(known.threads)):
            seconds = result["train_seconds"] + result["eval_seconds"]
            pairs.append((known.trials[trial.cell.cell], seconds))
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


def _reads(cell: PlannedCell) -> tuple[Reads, Planned]:
    inputs = parts_of(cell.config, cell.inputs)[0]
    planned = planned_tokens(cell.config, inputs, draw(cell.config, inputs))
    return trial_reads(cell.config, cell.inputs), planned


def _measure(
    cells: Sequence[PlannedCell], plan: Plan, options: Options
) -> tuple[_Place, list[Speed]]:
    """The resources of a trial, and the speeds of the first cells, or of all if that is quick."""
    settings, threads = [cell.config.settings() for cell in cells], options.cpus_per_worker
    place = _this_machine(options)
    if options.engine == "local":
        place = replace(place, slots=1)
    if not cells:
        return place, []
    num_trials = sum(trial.cell.cost * trial.share for trial in plan.trials()) / cells[0].cost
    side_by_side = place.slots * options.num_workers
    enough = partial(_seconds_to_measure, *_reads(cells[0]), num_trials / side_by_side)
    measure = partial(probe, settings, threads, enough, gpu_share=options.gpu_share)
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


def _seconds_to_measure(reads: Reads, planned: Planned, num_trials: float, speed: Speed) -> float:
    """The seconds worth measuring for a sweep of `num_trials` times a trial of this speed."""
    return MEASURING * num_trials * trial_estimate(reads, planned, speed).seconds


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


def trial_estimate(
    reads: Reads, planned: Planned, speed: Speed, *, num_workers: int = 1
) -> TrialEstimate:
    """A trial's time from its reads; workers share reading and measuring evenly."""
    scored, trained = speed.scoring, speed.training
    tokens = reads.documents * planned.scoring
    steps = reads.groups * planned.training
    measured = reads.evaluations * speed.evaluation_seconds
    last = reads.last_documents * planned.scoring * scored.seconds
    end = bool(reads.last_documents) * speed.evaluation_seconds + last
    evaluation = measured + tokens * scored.seconds
    return TrialEstimate(
        seconds=speed.start_seconds + (evaluation + steps * trained.seconds) / num_workers,
        tokens=tokens * scored.read + steps * trained.read,
        peak_bytes=speed.peak_bytes,
        start=speed.start_seconds,
        end=end / num_workers,
        validation=(evaluation - end) / num_workers,
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


def gpu_share(peak_bytes: int, device_bytes: int) -> float:
    """The share of a GPU that a trial needs, as 1/n: room for the measured peak, the CUDA context
    of each process and a tenth of the memory for fragments. 1 where memory was not measured."""
    if not peak_bytes or not device_bytes:
        return 1.0
    return 1 / max(1, int(0.9 * device_bytes / (peak_bytes + CONTEXT_BYTES)))


def same_speed(settings: Mapping[str, object]) -> tuple[object, ...]:
    """A key of the cost per token, equal for configurations with the same cost."""
    return tuple(value for name, value in sorted(settings.items()) if name not in ONLY_HOW_MUCH)
