"""One trial, start to end: data, chunks, training, the best checkpoint on dev, runs, measures."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from rank_core import distributed
from rank_core.config import TrialConfig
from rank_core.data import Run
from rank_core.data.trec import write_run
from rank_core.encode import Work
from rank_core.evaluate import mean_values
from rank_core.examples import TrainingQuery, training_queries
from rank_core.inputs import Inputs, cell_of, content_hashes, load_inputs
from rank_core.machine import peak_memory, reset_peak_memory, trial_device, versions
from rank_core.models import (
    ListRanker,
    Ranker,
    build_model,
    check_model,
    list_ranker,
    model_class,
)
from rank_core.optimise import autocast_type
from rank_core.rerank import ordered
from rank_core.scorer import Scorer, evaluated_queries, measured
from rank_core.seeding import derive
from rank_core.train import Streams, train
from rank_core.trial_result import Progress, TrialResult, constant, write_trial
from rank_core.weights import save_weights, take_over, weights_file

__all__ = ["Progress", "TrialResult", "run_trial", "trial_streams"]


@dataclass
class _Best:
    """The checkpoint with the best dev value so far; the earlier one on a tie."""

    value: float = float("-inf")
    step: int = 0
    dev: dict[str, float] | None = None
    run: Run | None = None
    weights: dict[str, torch.Tensor] | None = None


def run_trial(config: TrialConfig, workdir: Path) -> Iterator[Progress | TrialResult]:
    """Runs one trial and yields its progress; the last item is the `TrialResult`.

    Writes `config.json`, `dev.run.gz`, `test.run.gz`, `per_query.parquet` and, last, `result.json`
    into `workdir`. In a process group the workers share the work and rank 0 writes.
    """
    kind = model_class(config.model.name)
    trained = _run_list_trial if issubclass(kind, ListRanker) else _run_trained_trial
    yield from trained(config, workdir)


def _run_trained_trial(config: TrialConfig, workdir: Path) -> Iterator[Progress | TrialResult]:
    reset_peak_memory()
    inputs = load_inputs(config.collection, config.model.backbone)
    check_model(config, inputs.backbone)
    backbone_hash = inputs.backbone.content_hash
    streams, device = trial_streams(config, backbone_hash), trial_device()
    autocast = autocast_type(config.training.precision, device)
    model = _start(config, inputs, streams).to(device)
    scorer = Scorer(config, inputs, model, autocast)
    best, train_work = _Best(), Work()
    train_seconds = eval_seconds = 0.0
    before = time.perf_counter()
    for record in train(
        model,
        scorer.pairs,
        _examples(config, scorer),
        config.training,
        streams=streams,
        autocast=autocast,
        work=train_work,
    ):
        trained = time.perf_counter()
        dev = _validate(scorer, best, record.step) if record.validate else None
        train_seconds += trained - before
        eval_seconds += time.perf_counter() - trained
        yield Progress(record.step, record.num_steps, record.curve, dev)
        before = time.perf_counter()
    assert best.weights is not None and best.run is not None and best.dev is not None
    model.load_state_dict(best.weights)
    train_run = scorer.run("train", config.training.depth) if config.training.keep_run else None
    ties_on_dev = scorer.work.ties
    test_run = scorer.run("test")
    eval_seconds += time.perf_counter() - before
    tokens, padding = _encoder_tokens(scorer.work)
    training_tokens, training_padding = _encoder_tokens(train_work)
    result = TrialResult(
        cell=cell_of(config, inputs),
        seed=config.seed,
        status="collapsed" if constant(test_run) else "done",
        best_step=best.step,
        dev=best.dev,
        test=mean_values(scorer.table("test", test_run)),
        train_seconds=train_seconds,
        eval_seconds=eval_seconds,
        peak_memory_bytes=peak_memory(device),
        encoder_tokens=tokens + training_tokens,
        padding_share=padding,
        training_padding_share=training_padding,
        ties=int(distributed.sum_numbers([scorer.work.ties - ties_on_dev])[0]),
        versions=versions(),
    )
    if distributed.world()[0] == 0:
        runs = {"dev": best.run, "test": test_run}
        tables = {split: scorer.table(split, run) for split, run in runs.items()}
        _keep_for_others(workdir, config, best, train_run)
        write_trial(workdir, config, result, runs, tables)
    yield result


def _run_list_trial(config: TrialConfig, workdir: Path) -> Iterator[Progress | TrialResult]:
    """A trial of a system without weights: dev, then test, nothing else."""
    inputs = load_inputs(config.collection, config.model.backbone)
    ranker = list_ranker(config, workdir)
    start, runs, tables = time.perf_counter(), {}, {}
    for number, name in enumerate(("dev", "test"), start=1):
        split, queries = inputs.collection.splits[name], {}
        for query_id in evaluated_queries(inputs.collection, name, config.evaluation):
            queries[query_id] = split.queries[query_id]
        ranked = ranker.rank(queries, inputs.collection.documents, split.candidates)
        runs[name] = {query_id: ordered(scores) for query_id, scores in ranked}
        tables[name] = measured(inputs.collection, name, runs[name], config.evaluation)
        yield Progress(number, 2, (), mean_values(tables["dev"]) if name == "dev" else None)
    result = TrialResult(
        cell=cell_of(config, inputs),
        seed=config.seed,
        status="done",
        best_step=0,
        dev=mean_values(tables["dev"]),
        test=mean_values(tables["test"]),
        train_seconds=0.0,
        eval_seconds=time.perf_counter() - start,
        peak_memory_bytes=peak_memory(trial_device()),
        encoder_tokens=0,
        padding_share=0.0,
        training_padding_share=0.0,
        ties=0,
        versions=versions(),
    )
    if distributed.world()[0] == 0:
        write_trial(workdir, config, result, runs, tables)
    yield result


def trial_streams(config: TrialConfig, backbone_hash: str) -> Streams:
    """The trial's random streams. Order and negatives are shared by all cells of a seed when the
    seeds are paired; otherwise seed 1 of one cell has nothing in common with seed 1 of another."""
    own = config.training_hash(backbone_hash=backbone_hash, contents=content_hashes(config))
    shared = "" if config.training.paired_seeds else own
    return Streams(
        init=derive(config.seed, "init", own),
        order=derive(config.seed, "order", shared),
        negatives=derive(config.seed, "negatives", shared),
        dropout=derive(config.seed, "dropout", own),
    )


def _start(config: TrialConfig, inputs: Inputs, streams: Streams) -> Ranker:
    """The model that training starts from."""
    model = build_model(config, inputs.backbone, init_seed=streams.init)
    if config.training.init_from:
        take_over(model, weights_file(config.training.init_from))
    return model


def _keep_for_others(
    workdir: Path, config: TrialConfig, best: _Best, train_run: Run | None
) -> None:
    """What later trials may start from."""
    workdir.mkdir(parents=True, exist_ok=True)
    if config.training.keep_weights and best.weights is not None:
        save_weights(workdir, best.weights)
    if train_run is not None:
        write_run(workdir / "train.run.gz", train_run, tag=config.model.name)


def _encoder_tokens(work: Work) -> tuple[int, float]:
    """(real tokens, share of padding) that the encoders of all workers were given."""
    counts = [float(work.tokens), float(work.padded_tokens)]
    tokens, padded_tokens = distributed.sum_numbers(counts)
    return int(tokens), 1 - tokens / max(1.0, padded_tokens)


def _examples(config: TrialConfig, scorer: Scorer) -> list[TrainingQuery]:
    split = scorer.inputs.collection.splits["train"]
    tokens = scorer.tokenize(split, sorted(split.queries))
    return training_queries(split, tokens, config.evaluation.depth, config.training)


def _validate(scorer: Scorer, best: _Best, step: int) -> dict[str, float]:
    """The dev measures now; keeps the checkpoint if its primary measure is the best so far."""
    run = scorer.run("dev")
    dev = mean_values(scorer.table("dev", run))
    value = dev[scorer.config.evaluation.measures[0]]
    if value > best.value:
        best.value, best.step, best.dev, best.run = value, step, dev, run
        best.weights = {k: v.detach().clone() for k, v in scorer.model.state_dict().items()}
    return dev
