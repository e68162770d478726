"""The cost of scoring and training on this device: a batch of documents for each configuration.
Imports no ray, mlflow or optuna."""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar

import numpy as np

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
from rank_core.models.build import build_model
from rank_core.ranking.encode import Work
from rank_core.ranking.rerank import rerank
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
MOST_SECONDS = 60.0
ENOUGH_SECONDS = 0.2  # of a batch; a shorter one is repeated
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


def probe(
    settings: Sequence[dict[str, Any]], threads: int, *, gpu_share: float = 1.0
) -> list[Speed]:
    """The speeds of configurations in turn, of the first and of all that begin within
    `MOST_SECONDS`. Memory of a GPU is limited as for trials."""
    begin_on_device(gpu_share)
    start, speeds = time.perf_counter(), list[Speed]()
    with settings_restored(threads):
        for changes in settings:
            if speeds and time.perf_counter() - start >= MOST_SECONDS:
                break
            speeds.append(_speed(TrialConfig().override(changes)))
    return speeds


def _speed(config: TrialConfig) -> Speed:
    reset_peak_memory()
    loaded = load_inputs(config.collection, config.model.backbone)
    inputs, device = parts_of(config, loaded)[0], trial_device()
    before = time.perf_counter()
    make_deterministic(config.training.deterministic)
    model = build_model(config, inputs.backbone, init_seed=STREAMS.init).to(device)
    scorer = Scorer(config, inputs, model, autocast_type(config.training.precision, device))
    built = time.perf_counter() - before
    rng = generator(0, "probe")
    pairs, groups = _scored(config, inputs, rng), _trained(config, inputs, rng)
    return Speed(
        scoring=_seconds_each(_scorings(scorer, pairs)) if pairs else 0.0,
        training=_seconds_each(_steps(scorer, groups)) if groups else 0.0,
        start_seconds=built,
        peak_bytes=peak_memory(device),
        device=versions()["device"],
    )


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
    endless = replace(
        settings,
        batch_size=batch,
        num_epochs=ENDLESS,
        epoch_steps=1,
        validate_every=1,
        max_steps=0,
    )
    queries = [_query(group, number) for number, group in enumerate(groups)]
    records = train(
        scorer.model,
        scorer.pairs,
        queries,
        endless,
        streams=STREAMS,
        autocast=scorer.autocast,
        work=Work(),
    )
    for _ in records:
        yield batch * (1 + settings.negatives)


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
