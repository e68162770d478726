"""The cost of scoring and training on this device: a batch of documents for each configuration.
Imports no ray, mlflow or optuna."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from rank_core.chunking.inputs import Inputs, load_inputs
from rank_core.errors import BadInput
from rank_core.machine import (
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
from rank_core.models.ranker import Ranker
from rank_core.ranking.encode import Work
from rank_core.ranking.rerank import ordered, rerank
from rank_core.ranking.scorer import Scorer, evaluated_queries
from rank_core.seeding import generator
from rank_core.settings.config import TrialConfig
from rank_core.training.examples import (
    TrainingGroup,
    TrainingQuery,
    TrainingReader,
    training_groups,
    training_queries,
)
from rank_core.training.optimizer import autocast_type
from rank_core.training.train import Streams, train
from rank_core.trial.cross_validation import parts_of

SAMPLE = 240  # documents, and half as many training groups
SAMPLED_QUERIES = 512
ENOUGH_SECONDS = 0.2  # of a batch; a shorter one is repeated
STEP_TOKENS = 8192  # of a measured training step on a CPU; a GPU takes the whole batch
FEW_TOKENS = 8192  # of a micro-batch where a GPU's memory is short
ENDLESS = 10**6  # epochs of a step each
STREAMS = Streams(init=0, order=0, negatives=0, dropout=0)
T = TypeVar("T")


@dataclass(frozen=True)
class Rate:
    """Of a batch of documents."""

    seconds: float  # per encoder token of the documents
    read: float  # encoder input tokens for each of them: MaxP reads some twice


@dataclass(frozen=True)
class Speed:
    """The measured speed of one configuration."""

    scoring: Rate
    training: Rate  # 0 without training
    start_seconds: float  # once a trial: building the model
    evaluation_seconds: float  # once a validation: measuring its run
    peak_bytes: int  # on a GPU with small micro-batches, since large ones fill it
    device_bytes: int  # memory of the GPU; 0 on a CPU
    device: str  # as in results of trials


@dataclass(frozen=True)
class Sample:
    """A random draw of the inputs of a trial."""

    queries: dict[str, NDArray[np.int32]]  # token ids of the scored documents' queries
    scored: list[tuple[str, str]]  # (query_id, doc_id)
    trained: list[TrainingGroup]


@dataclass(frozen=True)
class Planned:
    """Encoder tokens of the mean scored document and the mean training group."""

    scoring: float
    training: float


def probe(
    settings: Sequence[dict[str, Any]],
    threads: int,
    enough: Callable[[Speed], float],
    *,
    gpu_share: float = 1.0,
) -> list[Speed]:
    """The speeds of configurations in turn: of the first, and of all that begin within `enough`
    seconds, a number that depends on the first. Memory of a GPU is limited as for trials."""
    begin_on_device(gpu_share)
    start, speeds = time.perf_counter(), list[Speed]()
    with settings_restored(threads):
        for changes in settings:
            if speeds and time.perf_counter() - start >= enough(speeds[0]):
                break
            speeds.append(_speed(TrialConfig().override(changes)))
    return speeds


def draw(config: TrialConfig, inputs: Inputs) -> Sample:
    """A sample, the same in every process and for all configurations with the same inputs."""
    rng = generator(0, "probe")
    split, evaluation = inputs.collection.splits["test"], config.evaluation
    evaluated = evaluated_queries(inputs.collection, "test", evaluation)
    chosen = _sample(evaluated, SAMPLED_QUERIES, rng)
    listed = {q: list(split.candidates.get(q, ()))[: evaluation.depth] for q in chosen}
    pairs = _sample([(q, doc_id) for q, docs in listed.items() for doc_id in docs], SAMPLE, rng)
    tokens, limit = inputs.query_tokens("test"), config.chunking.max_query_tokens
    queries = {query_id: tokens[query_id][:limit] for query_id, _ in pairs}
    return Sample(queries, pairs, _groups(config, inputs, rng))


def planned_tokens(config: TrialConfig, inputs: Inputs, sample: Sample) -> Planned:
    """The encoder tokens that a configuration reads of a sample; no model is built for it."""
    kind = model_class(config.model.name)
    assert issubclass(kind, Ranker)
    pairs = kind.reader(config, inputs.backbone, inputs.tokens)
    reader = TrainingReader.of(pairs, config.training, STREAMS.dropout)

    scored = [sum(map(len, pairs.chunks(sample.queries[q], doc_id))) for q, doc_id in sample.scored]
    trained = [sum(row.tokens for row in reader.rows(group)) for group in sample.trained]
    return Planned(*(sum(tokens) / max(1, len(tokens)) for tokens in (scored, trained)))


def _groups(config: TrialConfig, inputs: Inputs, rng: np.random.Generator) -> list[TrainingGroup]:
    if config.training.num_epochs == 0:
        return []
    with suppress(BadInput):  # without a relevant document
        queries = training_queries(inputs, config)
        num, order = config.training.negatives, int(rng.integers(2**32))
        groups = training_groups(queries, num, order_seed=order, negatives_seed=0)
        return list(islice(groups, SAMPLE // 2))
    return []


def _speed(config: TrialConfig) -> Speed:
    reset_peak_memory()
    loaded = load_inputs(config.collection, config.model.backbone)
    inputs, device = parts_of(config, loaded)[0], trial_device()
    before = time.perf_counter()
    make_deterministic(config.training.deterministic)
    model = build_model(config, inputs.backbone, init_seed=STREAMS.init).to(device)
    scorer = Scorer(config, inputs, model, autocast_type(config.training.precision, device))
    built = time.perf_counter() - before
    sample = draw(config, inputs)
    scoring = _rate(_scorings(scorer, sample)) if sample.scored else Rate(0.0, 0.0)
    training = _rate(_steps(scorer, sample.trained)) if sample.trained else Rate(0.0, 0.0)
    if device.type == "cuda":
        _work_in_little_memory(scorer, sample)
    return Speed(
        scoring=scoring,
        training=training,
        start_seconds=built,
        evaluation_seconds=_evaluation_seconds(scorer),
        peak_bytes=peak_memory(device),
        device_bytes=torch.cuda.mem_get_info(device)[1] if device.type == "cuda" else 0,
        device=versions()["device"],
    )


def _rate(work_done: Iterator[tuple[int, int]]) -> Rate:
    """Times an endless iterator over (tokens of the documents, tokens that were read): the last of
    several batches, because the first one takes longer (memory, kernels), or one long batch."""
    spent = 0.0
    while True:
        start = time.perf_counter()
        tokens, read = next(work_done)
        seconds = time.perf_counter() - start
        if (spent and spent + seconds >= ENOUGH_SECONDS) or seconds >= ENOUGH_SECONDS:
            return Rate(seconds / tokens, read / tokens)
        spent += seconds


def _scorings(scorer: Scorer, sample: Sample) -> Iterator[tuple[int, int]]:
    """Score the same documents repeatedly: a full batch, or all documents."""
    limit, tokens, queries = scorer.batch_tokens, 0, sample.queries
    chosen: dict[str, dict[str, float]] = {}
    for query_id, doc_id in sample.scored:
        chosen.setdefault(query_id, {})[doc_id] = 0.0
        tokens += sum(map(len, scorer.pairs.chunks(queries[query_id], doc_id)))
        if tokens >= limit:
            break
    while True:
        work = Work()
        rerank(
            scorer.model,
            scorer.pairs,
            queries={query_id: queries[query_id] for query_id in chosen},
            candidates=chosen,
            depth=len(sample.scored),
            batch_tokens=limit,
            autocast=scorer.autocast,
            work=work,
        )
        yield tokens, work.tokens


def _work_in_little_memory(scorer: Scorer, sample: Sample) -> None:
    """Score a batch and train a step in micro-batches of `FEW_TOKENS`, for the peak of small
    ones."""
    reset_peak_memory()
    if sample.scored:
        next(_scorings(scorer, sample))
    if sample.trained:
        next(_steps(scorer, sample.trained, micro_batch_tokens=FEW_TOKENS))


def _steps(
    scorer: Scorer, groups: list[TrainingGroup], micro_batch_tokens: int = 0
) -> Iterator[tuple[int, int]]:
    """Training steps, the optimiser's part included, as a trial takes them, or in micro-batches of
    so many tokens."""
    settings, on_cpu = scorer.config.training, scorer.model.device.type == "cpu"
    reader = TrainingReader.of(scorer.pairs, settings, STREAMS.dropout)
    sizes = [sum(row.tokens for row in reader.rows(group)) for group in groups]
    fits = STEP_TOKENS * len(sizes) // max(1, sum(sizes)) if on_cpu else len(sizes)
    batch = min(max(1, fits), settings.batch_size)
    endless = replace(
        settings,
        batch_size=batch,
        num_epochs=ENDLESS,
        epoch_steps=1,
        validate_every=1,
        max_steps=0,
        micro_batch_tokens=micro_batch_tokens or settings.micro_batch_tokens,
    )
    queries = [_query(group, number) for number, group in enumerate(groups)]
    work = Work()
    records = train(
        scorer.model,
        scorer.pairs,
        queries,
        endless,
        streams=STREAMS,
        autocast=scorer.autocast,
        work=work,
    )
    tokens_before = 0
    for _ in records:
        yield round(batch * sum(sizes) / len(sizes)), work.tokens - tokens_before
        tokens_before = work.tokens


def _query(group: TrainingGroup, number: int) -> TrainingQuery:
    """A training query with this group alone."""
    teacher = (
        None if group.teacher is None else dict(zip(group.documents, group.teacher, strict=True))
    )
    return TrainingQuery(
        f"{group.query_id}-{number}",
        group.query,
        (group.positive,),
        (group.grade,),
        (group.negatives,),
        teacher,
    )


def _evaluation_seconds(scorer: Scorer) -> float:
    """The seconds of a validation beside the scoring."""
    before = time.perf_counter()
    candidates = scorer.inputs.collection.splits["dev"].candidates
    depth = scorer.config.evaluation.depth
    run = {
        query_id: ordered(dict(islice(candidates.get(query_id, {}).items(), depth)))
        for query_id in scorer.own_queries("dev")
    }
    if run:
        scorer.table("dev", run)
    return time.perf_counter() - before


def _sample(items: Sequence[T], number: int, rng: np.random.Generator) -> list[T]:
    """So many random items, in a random order."""
    return [items[i] for i in rng.permutation(len(items))[:number]]
