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
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import torch

from rank_core.children import in_new_process
from rank_core.chunking.inputs import Inputs, load_inputs
from rank_core.errors import BadInput
from rank_core.machine import (
    autocast_type,
    begin_on_device,
    make_deterministic,
    peak_memory,
    reset_peak_memory,
    settings_restored,
    trial_device,
    versions,
)
from rank_core.models import model_class
from rank_core.models.build import build_model
from rank_core.models.dense import DenseChunks, embedding_model
from rank_core.models.runtimes import use_runtime
from rank_core.ranking.encode import Work
from rank_core.ranking.rerank import rerank
from rank_core.ranking.scorer import Scorer, evaluated_queries
from rank_core.retrieval.cuts import cut_texts
from rank_core.seeding import generator
from rank_core.settings.config import TrialConfig
from rank_core.training.examples import (
    TrainingGroup,
    TrainingQuery,
    TrainingReader,
    training_groups,
    training_queries,
)
from rank_core.training.train import Streams, train
from rank_core.trial import fold_model
from rank_core.trial.cross_validation import parts_of
from sweeps.plan.options import Options, cluster_address, range_text
from sweeps.plan.plan import Plan, PlannedCell, Trial
from sweeps.plan.resources import MACHINE, Node, Resources, resources_of
from sweeps.plan.trial_cost import (
    Tokens,
    index_of,
    index_sample,
    planned_tokens,
    unread_tokens,
)
from sweeps.store.records import State
from sweeps.terminal.text import numbered

CALIBRATING = 50  # finished trials that are read
SPREAD = 0.2  # standard deviation of the log of (real / estimated), unknown from a batch
Z = 1.96  # 95%
ONLY_HOW_MUCH = frozenset(
    "seed chunking.stride chunking.max_chunks chunking.overflow training.max_steps training.margin "
    "training.validate_every training.backbone_learning_rate training.head_learning_rate "
    "training.aggregator_learning_rate training.weight_decay training.warmup "
    "chunking.overlap chunking.snap chunking.title".split()
)
"""Settings without effect on the time of a token."""
SAMPLE = 240  # documents, and half as many training groups
SAMPLED_QUERIES = 512
MOST_SECONDS = 60.0
ENOUGH_SECONDS = 0.2  # of a batch; a shorter one is repeated
EMBEDDED_TOKENS = 4096  # of a sample of chunks
STEP_TOKENS = 8192  # of a measured training step on a CPU; a GPU takes the whole batch
ENDLESS = 10**6  # epochs of a step each
STREAMS = Streams(init=0, order=0, negatives=0, dropout=0)
T = TypeVar("T")


@dataclass(frozen=True)
class Speed:
    """The measured speed of one configuration."""

    scoring: float  # seconds per scored document
    training: float  # seconds per document of a training group; 0 without training
    start_seconds: float  # once a trial: building the model
    peak_bytes: int
    device: str  # as in results of trials
    load: float = 0.0  # processes for each core of the machine before it was measured


@dataclass(frozen=True)
class TrialEstimate:
    """The measured trial of a cell."""

    seconds: float
    tokens: float  # that the encoder reads
    peak_bytes: int
    trained: float = 0.0  # of the tokens, those of training


@dataclass(frozen=True)
class Calibration:
    """The log ratio of real and estimated times of trials: mean and standard error."""

    log_ratio: float
    log_sd: float
    num_trials: int

    def interval(self, amount: float) -> tuple[float, float, float]:
        """(low, middle, high) of an estimated amount of time."""
        # In logarithms: a trial that takes twice as long and one that takes half are errors of one
        # size.
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
    group_seconds: float  # of every trial: the start of its group of workers; 0 for a single one
    num_kinds: int  # of trials with the same cost per token
    num_measured: int  # of the kinds; another has the cost per token of the nearest
    seconds: float  # of measuring
    device: str
    threads: int
    load: float = 0.0  # the highest of the measured speeds
    num_workers: int = 1  # of a trial; of a range, as many as each trial has room for now
    group: str = ""  # of a range: `1-4 workers`

    @property
    def slots_text(self) -> str:
        """`2 slots`, or `2 slots of 1-4 workers, estimated with 2`."""
        text = numbered(self.slots, "slot")
        if not self.group:
            return text
        return f"{text} of {self.group}, estimated with {self.num_workers}"

    def wall(self, trials: Iterable[Trial], calibration: Calibration) -> tuple[float, float, float]:
        """(low, middle, high) of the seconds until the last of these trials has ended."""
        estimates = (self.trials.get(trial.cell.cell) for trial in trials)
        seconds = [one.seconds for one in estimates if one]
        groups = wall_seconds([self.group_seconds] * len(seconds), self.slots)
        low, middle, high = (
            amount + self.start_seconds + groups
            for amount in calibration.interval(wall_seconds(seconds, self.slots))
        )
        return low, middle, high


def forecast(plan: Plan, options: Options, num_ended: int = 0) -> Forecast:
    """Measure and estimate a plan of which so many trials have ended; raises `BadInput` where a
    trial does not fit the device."""
    age, start = time.process_time(), time.perf_counter()
    by_speed: dict[tuple[object, ...], list[PlannedCell]] = {}
    for cell in plan.cells:
        kind = model_class(cell.config.model.name)
        if kind.trains or kind.retrieves:
            by_speed.setdefault(same_speed(cell.config.settings()), []).append(cell)
    groups = by_speed.values()
    # The largest of a kind: if it fits into memory, all of the kind do.
    largest = [max(cells, key=lambda cell: cell.chunks.tokens_per_document) for cells in groups]
    resources, measured = _measure(largest, options, plan.max_trials - num_ended)
    workers = resources.num_workers
    speeds = [_per_token(cell, speed) for cell, speed in zip(largest, measured, strict=False)]
    trials, unread = {}, unread_tokens((c.cell, c.config, c.inputs) for c in plan.cells)
    for number, cells in enumerate(groups):
        own = speeds[number : number + 1]
        speed = own[0] if own else _nearest(cells[0], largest, speeds)
        for cell in cells:
            tokens = planned_tokens(cell.config, cell.inputs, cell.chunks)
            if cell.cell in unread:
                tokens = Tokens(0.0, float(unread[cell.cell]))
            trials[cell.cell] = trial_estimate(tokens, speed, num_workers=workers)
    example = speeds[0] if speeds else None
    return Forecast(
        trials=trials,
        slots=resources.slots,
        num_workers=workers,
        units=workers * (resources.gpus or float(options.cpus_per_worker)),
        unit="GPU" if resources.gpus else "core",
        # This process has imported and loaded what each trial's first process will: once here, once
        # there.
        start_seconds=2 * age,
        group_seconds=_group_seconds(age, workers, options.num_workers > 1),
        num_kinds=len(groups),
        num_measured=len(speeds),
        seconds=time.perf_counter() - start,
        device=example.device if example else "",
        threads=options.cpus_per_worker,
        load=max((speed.load for speed in speeds), default=0.0),
        group=range_text(options),
    )


def _group_seconds(age: float, num_workers: int, in_group: bool) -> float:
    """The seconds in which the processes of a group start: Ray Train makes a controller and the
    workers anew for every trial, and each imports the libraries."""
    if not in_group:
        return 0.0
    processes = num_workers + 1
    return age * processes / min(processes, os.cpu_count() or 1)


def real_seconds(states: Iterable[State], known: Forecast) -> list[tuple[TrialEstimate, float]]:
    """Estimates of finished trials with their real times on as many workers as they are estimated
    for, of the same kind of device and number of threads."""
    pairs = []
    finished = (state for state in states if state.status.used and state.cell in known.trials)
    for state in islice(finished, CALIBRATING):
        threads = state.facts.get("versions", {}).get("threads")
        if (state.devices, threads) == ((known.device,), str(known.threads)):
            seconds = state.result_seconds(known.num_workers) / known.num_workers
            pairs.append((known.trials[state.cell], seconds))
    return pairs


def _nearest(cell: PlannedCell, largest: Sequence[PlannedCell], speeds: list[Speed]) -> Speed:
    """The speed of a measured cell for one that was not: with the same model if there is one, of
    the nearest cost."""

    def distance(pair: tuple[PlannedCell, Speed]) -> tuple[bool, float]:
        other = pair[0]
        return other.config.model.name != cell.config.model.name, abs(other.cost - cell.cost)

    return min(zip(largest, speeds, strict=False), key=distance)[1]


def _per_token(cell: PlannedCell, speed: Speed) -> Speed:
    """The measured speed of a cell in seconds per token of its mean document."""
    tokens, chunks = cell.chunks.tokens_per_document, cell.chunks.chunks_per_document
    trained = tokens * cell.config.training.share_read(chunks)
    return replace(speed, scoring=speed.scoring / tokens, training=speed.training / trained)


def _measure(
    cells: Sequence[PlannedCell], options: Options, num_trials: int
) -> tuple[Resources, list[Speed]]:
    """The resources of trials, and the speeds of the first cells, or of all if that is quick."""
    settings = [cell.config.settings() for cell in cells]
    measure = partial(probe, settings, options.cpus_per_worker, gpu_share=options.gpu_share)
    if options.engine != "local" and cluster_address():
        from sweeps.ray_engine.cluster import on_a_slot

        return on_a_slot(measure, options, num_trials)
    resources = _here(options).estimated([this_machine()], num_trials)
    if options.engine == "local":
        resources = replace(resources, slots=1)
    if not cells:
        return resources, []
    if not torch.cuda.is_available():
        return resources, measure()
    # Otherwise this process would hold a part of the GPU's memory until it ends.
    return resources, in_new_process(measure, None if resources.gpus else _hide_gpus)


def _hide_gpus() -> None:
    """Hide the GPUs from this process, which has not used them yet."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def slots_of(options: Options) -> int:
    """The number of parallel trials on the cluster, or on this machine as Ray would see it."""
    if options.engine != "local" and cluster_address():
        from sweeps.ray_engine.cluster import slots_of_cluster

        return slots_of_cluster(options)
    return _here(options).slots


def _here(options: Options) -> Resources:
    """The resources of a trial on this machine, of whose GPU Ray alone knows the name."""
    any_kind = replace(options, accelerator=None)
    return resources_of(any_kind, [this_machine()], place=MACHINE)


def this_machine() -> Node:
    """This machine as the node that Ray will make of it."""
    return {"CPU": float(os.cpu_count() or 1), "GPU": float(torch.cuda.device_count())}


def trial_estimate(tokens: Tokens, speed: Speed, *, num_workers: int = 1) -> TrialEstimate:
    """A trial's time from its tokens; workers share reading evenly."""
    reading = tokens.scored * speed.scoring + tokens.trained * speed.training
    return TrialEstimate(
        seconds=speed.start_seconds + reading / num_workers,
        tokens=tokens.scored + tokens.trained,
        peak_bytes=speed.peak_bytes,
        trained=tokens.trained,
    )


def calibrate(real: Sequence[tuple[TrialEstimate, float]]) -> Calibration:
    """The calibration of estimates by finished trials and their real seconds; without any its
    standard error is `SPREAD`, as if one trial had taken as long as estimated."""
    logs = [math.log(seconds / trial.seconds) for trial, seconds in real if seconds > 0]
    # One trial's weight on the estimate itself, so that a first odd trial does not turn the
    # forecast over.
    number = len(logs) + 1
    return Calibration(sum(logs) / number, SPREAD / math.sqrt(number), len(logs))


def wall_seconds(seconds: Iterable[float], slots: int, busy: Sequence[float] = ()) -> float:
    """The time at which the last trial ends if each starts, in order, on the first free slot;
    `busy` are the seconds for which slots are taken."""
    # List scheduling: each trial on the slot that is free first, as the engine does.
    free = [*busy, *[0.0] * (slots - len(busy))]
    heapq.heapify(free)
    for duration in seconds:
        heapq.heappush(free, heapq.heappop(free) + duration)
    return max(free)


def same_speed(settings: Mapping[str, object]) -> tuple[object, ...]:
    """A key of the cost per token, equal for configurations with the same cost."""
    return tuple(value for name, value in sorted(settings.items()) if name not in ONLY_HOW_MUCH)


def probe(
    settings: Sequence[dict[str, Any]], threads: int, *, gpu_share: float = 1.0
) -> list[Speed]:
    """The speeds of configurations in turn, of the first and of all that begin within
    `MOST_SECONDS`. Memory of a GPU is limited as for trials."""
    begin_on_device(gpu_share)
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    start, speeds = time.perf_counter(), list[Speed]()
    with settings_restored(threads):
        for changes in settings:
            if speeds and time.perf_counter() - start >= MOST_SECONDS:
                break
            speeds.append(replace(_speed(TrialConfig().override(changes)), load=load))
    return speeds


def _embedding_speed(config: TrialConfig) -> Speed:
    """The speed of embedding a collection, per document of it."""
    before = time.perf_counter()
    inputs = load_inputs(config.collection, config.model.backbone)
    sample = index_of(config, inputs, str(trial_device()))
    started = time.perf_counter() - before + sample.scale * _cutting_seconds(config, inputs)
    each = sample.index.seconds_per_token(EMBEDDED_TOKENS)
    tokens = sample.encoder_tokens / max(1, len(inputs.tokens))
    peak = peak_memory(trial_device())
    return Speed(each * tokens, 0.0, started, peak, versions()["device"])


def _cutting_seconds(config: TrialConfig, inputs: Inputs) -> float:
    """The time of cutting the documents that a plan cuts; titles are read as text."""
    model, kind = embedding_model(config), model_class(config.model.name)
    assert issubclass(kind, DenseChunks)
    ids = inputs.tokens.ids_of(index_sample(inputs))
    texts, start = [inputs.collection.documents[doc_id] for doc_id in ids], time.perf_counter()
    cutting = kind.cutting(config, model.max_window)
    deque(cut_texts(texts, [0] * len(texts), model.tokenizer, cutting), maxlen=0)
    return time.perf_counter() - start


def _speed(config: TrialConfig) -> Speed:
    reset_peak_memory()
    if model_class(config.model.name).retrieves:
        return _embedding_speed(config)
    inputs = parts_of(config, load_inputs(config.collection, config.model.backbone))[0]
    before = time.perf_counter()
    scorer = scorer_of(config, inputs)
    built = time.perf_counter() - before
    rng = generator(0, "probe")
    pairs, groups = _scored(config, inputs, rng), _trained(config, inputs, rng)
    return Speed(
        scoring=_seconds_each(_scorings(scorer, pairs)) if pairs else 0.0,
        training=_seconds_each(_steps(scorer, groups)) if groups else 0.0,
        start_seconds=built,
        peak_bytes=peak_memory(trial_device()),
        device=versions()["device"],
    )


def scorer_of(config: TrialConfig, inputs: Inputs) -> Scorer:
    """The model of a configuration with weights drawn anew, as a trial computes it."""
    device = trial_device()
    make_deterministic(config.training.deterministic)
    model = build_model(config, inputs.backbone, init_seed=STREAMS.init).to(device)
    with suppress(BadInput):  # without a relevant document
        model.compile_layers(fold_model.planned_tokens(config, inputs))  # as in the trial
    autocast = autocast_type(config.training.precision, device)
    use_runtime(model, config, inputs.backbone, autocast, inputs=inputs)
    return Scorer(config, inputs, model, autocast)


def _scored(config: TrialConfig, inputs: Inputs, rng: np.random.Generator) -> list[tuple[str, str]]:
    """A draw of (query_id, doc_id) of test."""
    split, evaluation = inputs.collection.splits["test"], config.evaluation
    chosen = _sample(evaluated_queries(inputs.collection, "test", evaluation), SAMPLED_QUERIES, rng)
    listed = {q: list(split.candidates.get(q, ()))[: evaluation.depth] for q in chosen}
    return _sample([(q, doc_id) for q, docs in listed.items() for doc_id in docs], SAMPLE, rng)


def _trained(config: TrialConfig, inputs: Inputs, rng: np.random.Generator) -> list[TrainingGroup]:
    if config.training.num_epochs == 0:
        return []
    with suppress(BadInput):  # without a relevant document
        queries = training_queries(inputs, config)
        num, order = config.training.negatives, int(rng.integers(2**32))
        groups = training_groups(queries, num, order_seed=order, negatives_seed=0)
        return list(islice(groups, SAMPLE // 2))
    return []


def _sample(items: Sequence[T], number: int, rng: np.random.Generator) -> list[T]:
    """So many random items, in a random order."""
    return [items[i] for i in rng.permutation(len(items))[:number]]


def _seconds_each(work_done: Iterator[int]) -> float:
    """Times an endless iterator over numbers of documents: the last of several batches, because
    the first one takes longer (memory, kernels), or one long batch."""
    spent = 0.0
    while True:
        start = time.perf_counter()
        documents = next(work_done)
        seconds = time.perf_counter() - start
        # A first batch alone counts only where it is long enough for its warm-up not to matter.
        if (spent and spent + seconds >= ENOUGH_SECONDS) or seconds >= ENOUGH_SECONDS:
            return seconds / documents
        spent += seconds


def _scorings(scorer: Scorer, pairs: Sequence[tuple[str, str]]) -> Iterator[int]:
    """Score the same documents repeatedly: a full batch, or all documents."""
    ids, limit = scorer.inputs.query_tokens("test"), scorer.config.chunking.max_query_tokens
    queries = {query_id: ids[query_id][:limit] for query_id, _ in pairs}
    chosen: dict[str, dict[str, float]] = {}
    tokens = 0
    for query_id, doc_id in pairs:
        chosen.setdefault(query_id, {})[doc_id] = 0.0
        tokens += sum(map(len, scorer.pairs.chunks(queries[query_id], doc_id)))
        if tokens >= scorer.batch_tokens:
            break
    while True:
        rerank(
            scorer.model,
            scorer.pairs,
            queries={query_id: queries[query_id] for query_id in chosen},
            candidates=chosen,
            depth=len(pairs),
            batch_tokens=scorer.batch_tokens,
            autocast=scorer.autocast,
        )
        yield sum(map(len, chosen.values()))


def _steps(scorer: Scorer, groups: list[TrainingGroup]) -> Iterator[int]:
    """Training steps, the optimiser's part included, as a trial takes them."""
    settings, on_cpu = scorer.config.training, scorer.model.device.type == "cpu"
    reader = TrainingReader.of(scorer.pairs, settings, STREAMS.dropout)
    sizes = [sum(row.tokens for row in reader.rows(group)) for group in groups]
    fits = STEP_TOKENS * len(sizes) // max(1, sum(sizes)) if on_cpu else len(sizes)
    batch = min(max(1, fits), settings.batch_size)
    single = replace(settings, batch_size=batch, epoch_steps=1, validate_every=1, max_steps=0)
    endless = replace(single, num_epochs=ENDLESS)
    queries = [  # one for each group
        TrainingQuery(
            f"{group.query_id}-{number}",
            group.query,
            (group.positive,),
            (group.grade,),
            (group.negatives,),
            dict(zip(group.documents, group.teacher, strict=True)) if group.teacher else None,
        )
        for number, group in enumerate(groups)
    ]
    work, cast = Work(), scorer.autocast
    for _ in train(
        scorer.model, scorer.pairs, queries, endless, streams=STREAMS, autocast=cast, work=work
    ):
        yield batch * (1 + settings.negatives)
