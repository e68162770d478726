"""What scoring and training cost on this device: batches of real documents, for each length.

Runs in a process of its own, as a trial does. Imports no ray, mlflow or optuna.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from statistics import fmean
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from rank_core.chunking.batches import tokenize_queries
from rank_core.chunking.inputs import Inputs, load_inputs
from rank_core.encoders.backbones import load_tokenizer
from rank_core.errors import BadInput
from rank_core.machine import (
    make_deterministic,
    peak_memory,
    reset_peak_memory,
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

BUCKETS = 3  # of document length, equally full
SAMPLE = 240  # documents, and half as many training groups
SAMPLED_QUERIES = 512
REPEATS = 2  # at least
STEP_TOKENS = 8192  # of a measured training step on a CPU; a GPU takes the whole batch
ENDLESS = 10**6  # epochs of a step each
STREAMS = Streams(init=0, order=0, negatives=0, dropout=0)
T = TypeVar("T")


@dataclass(frozen=True)
class Rate:
    """The mean of repeated measurements over documents of one bucket."""

    seconds: float  # per encoder token of the documents
    read: float  # tokens that the encoder was given for each of them: MaxP reads some twice


@dataclass(frozen=True)
class Speed:
    """What was measured of one configuration; rates by bucket, from short documents to long."""

    scoring: tuple[Rate, ...]
    training: tuple[Rate, ...]  # empty without training
    start_seconds: float  # once a trial: building the model, tokenizing the training queries
    evaluation_seconds: float  # once a validation: tokenizing its queries, measuring its run
    peak_bytes: int
    device_bytes: int  # memory of the GPU; 0 on a CPU
    device: str  # as trials note it
    threads: int


@dataclass(frozen=True)
class Sample:
    """What a trial reads, drawn at random, by bucket of length."""

    queries: dict[str, NDArray[np.int32]]  # token ids of the scored documents' queries
    scored: tuple[tuple[tuple[str, str], ...], ...]  # (query_id, doc_id)
    trained: tuple[tuple[TrainingGroup, ...], ...]


@dataclass(frozen=True)
class Planned:
    """Encoder tokens of the mean scored document and the mean training group, by bucket: the sum
    over buckets is the mean."""

    scoring: tuple[float, ...]
    training: tuple[float, ...]


def probe(settings: Sequence[dict[str, Any]], threads: int, seconds: float) -> list[Speed]:
    """The speeds of configurations, one after the other, with about `seconds` for each rate."""
    torch.set_num_threads(threads)
    return [_speed(TrialConfig().override(one), seconds) for one in settings]


def draw(config: TrialConfig, inputs: Inputs) -> Sample:
    """The same sample in every process, and for all configurations that draw alike."""
    rng = generator(0, "probe")
    split, evaluation = inputs.collection.splits["test"], config.evaluation
    evaluated = evaluated_queries(inputs.collection, "test", evaluation)
    chosen = _some(evaluated, SAMPLED_QUERIES, rng)
    listed = {q: list(split.candidates.get(q, ()))[: evaluation.depth] for q in chosen}
    pairs = _some([(q, doc_id) for q, docs in listed.items() for doc_id in docs], SAMPLE, rng)
    tokens, groups = inputs.tokens, _groups(config, inputs, rng)
    return Sample(
        _tokenized(config, inputs, {q: split.queries[q] for q, _ in pairs}),
        _bucketed(pairs, [len(tokens[doc_id]) for _, doc_id in pairs]),
        _bucketed(groups, [sum(len(tokens[d]) for d in group.documents) for group in groups]),
    )


def planned_tokens(config: TrialConfig, inputs: Inputs, sample: Sample) -> Planned:
    """What a configuration reads of a sample, in encoder tokens; no model is built for it."""
    kind = model_class(config.model.name)
    assert issubclass(kind, Ranker)
    pairs = kind.reader(config, inputs.backbone, inputs.tokens)
    reader = TrainingReader.of(pairs, config.training, STREAMS.dropout)

    def of_document(pair: tuple[str, str]) -> int:
        return sum(map(len, pairs.chunks(sample.queries[pair[0]], pair[1])))

    def of_group(group: TrainingGroup) -> int:
        return sum(row.tokens for row in reader.rows(group))

    return Planned(
        _shares([[of_document(pair) for pair in bucket] for bucket in sample.scored]),
        _shares([[of_group(group) for group in bucket] for bucket in sample.trained]),
    )


def _groups(config: TrialConfig, inputs: Inputs, rng: np.random.Generator) -> list[TrainingGroup]:
    if config.training.num_epochs == 0:
        return []
    split = inputs.collection.splits["train"]
    judged = sorted(split.queries.keys() & split.qrels.keys()) or sorted(split.queries)
    for names in (_some(judged, SAMPLED_QUERIES, rng), sorted(split.queries)):
        tokens = _tokenized(config, inputs, {name: split.queries[name] for name in names})
        with suppress(BadInput):  # none of a sample can be trained on: look at all
            queries = training_queries(split, tokens, config.evaluation.depth, config.training)
            num, seeds = config.training.negatives, {"order_seed": 0, "negatives_seed": 0}
            return list(islice(training_groups(queries, num, **seeds), SAMPLE // 2))
    return []


def _speed(config: TrialConfig, seconds: float) -> Speed:
    reset_peak_memory()
    whole = load_inputs(config.collection, config.model.backbone)
    inputs, device = parts_of(config, whole)[0], trial_device()
    before = time.perf_counter()
    make_deterministic(config.training.deterministic)
    model = build_model(config, inputs.backbone, init_seed=STREAMS.init).to(device)
    scorer = Scorer(config, inputs, model, autocast_type(config.training.precision, device))
    train_split = inputs.collection.splits["train"]
    scorer.tokenize(train_split, sorted(train_split.queries))
    start_seconds = time.perf_counter() - before
    sample = draw(config, inputs)
    scorings = [_scorings(scorer, sample.queries, bucket) for bucket in sample.scored]
    steps = [_steps(scorer, bucket) for bucket in sample.trained]
    for first in (*scorings[:1], *steps[:1]):
        next(first)  # the first time takes longer: memory, kernels
    scoring = tuple(_rate(done, seconds) for done in scorings)
    training = tuple(_rate(done, seconds) for done in steps)
    return Speed(
        scoring=scoring,
        training=training,
        start_seconds=start_seconds,
        evaluation_seconds=_evaluation_seconds(scorer),
        peak_bytes=peak_memory(device),
        device_bytes=torch.cuda.mem_get_info(device)[1] if device.type == "cuda" else 0,
        device=versions()["device"],
        threads=torch.get_num_threads(),
    )


def _rate(work_done: Iterator[tuple[int, int]], seconds: float) -> Rate:
    """Times an endless iterator over (tokens of the documents, tokens that were read)."""
    times: list[float] = []
    tokens, read = 1, 0
    start = last = time.perf_counter()
    while len(times) < REPEATS or last - start < seconds:
        tokens, read = next(work_done)
        now = time.perf_counter()
        times.append((now - last) / tokens)
        last = now
    return Rate(fmean(times), read / tokens)


def _scorings(
    scorer: Scorer, queries: dict[str, NDArray[np.int32]], bucket: tuple[tuple[str, str], ...]
) -> Iterator[tuple[int, int]]:
    """Scores the same documents again and again: a full batch, or all that there are."""
    limit, tokens = scorer.batch_tokens, 0
    chosen: dict[str, dict[str, float]] = {}
    for query_id, doc_id in bucket:
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
            depth=len(bucket),
            batch_tokens=scorer.batch_tokens,
            autocast=scorer.autocast,
            work=work,
        )
        yield tokens, work.tokens


def _steps(scorer: Scorer, bucket: tuple[TrainingGroup, ...]) -> Iterator[tuple[int, int]]:
    """Training steps, the optimiser's part included, as a trial takes them."""
    settings, on_cpu = scorer.config.training, scorer.model.device.type == "cpu"
    reader = TrainingReader.of(scorer.pairs, settings, STREAMS.dropout)
    sizes = [sum(row.tokens for row in reader.rows(group)) for group in bucket]
    fits = STEP_TOKENS * len(sizes) // max(1, sum(sizes)) if on_cpu else len(sizes)
    batch = min(max(1, fits), settings.batch_size)
    endless = replace(
        settings, batch_size=batch, num_epochs=ENDLESS, epoch_steps=1, validate_every=1, max_steps=0
    )
    queries = [_query(group, number) for number, group in enumerate(bucket)]
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
    """A training query whose only group is this one."""
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
    """What a validation takes beside the scoring."""
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


def _tokenized(
    config: TrialConfig, inputs: Inputs, texts: dict[str, str]
) -> dict[str, NDArray[np.int32]]:
    tokenizer, limit = load_tokenizer(inputs.backbone.folder), config.chunking.max_query_tokens
    ids = tokenize_queries(tokenizer, list(texts.values()), limit)
    return dict(zip(texts, ids, strict=True))


def _some(items: Sequence[T], number: int, rng: np.random.Generator) -> list[T]:
    """As many of the items at random, in their order; all where there are no more."""
    if len(items) <= number:
        return list(items)
    return [items[i] for i in sorted(rng.choice(len(items), number, replace=False))]


def _bucketed(items: Sequence[T], lengths: Sequence[int]) -> tuple[tuple[T, ...], ...]:
    """The items by length, from short to long, in buckets that are about equally full."""
    if not items:
        return ()
    edges = np.quantile(lengths, np.arange(1, BUCKETS) / BUCKETS)
    bucket_of = np.searchsorted(edges, lengths)
    buckets = (
        tuple(item for item, b in zip(items, bucket_of, strict=True) if b == number)
        for number in range(BUCKETS)
    )
    return tuple(bucket for bucket in buckets if bucket)


def _shares(buckets: Sequence[Sequence[int]]) -> tuple[float, ...]:
    """Each bucket's part in the mean over all."""
    number = sum(map(len, buckets))
    return tuple(sum(bucket) / number for bucket in buckets)
