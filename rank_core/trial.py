"""One trial, start to end: data, chunks, training, the best checkpoint on dev, runs, measures."""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from rank_core import distributed
from rank_core.config import TrialConfig
from rank_core.data import Run
from rank_core.data.trec import write_run
from rank_core.encode import Work
from rank_core.evaluate import mean_values
from rank_core.examples import TrainingQuery, training_queries
from rank_core.inputs import cell_of, load_inputs
from rank_core.machine import peak_memory, reset_peak_memory, trial_device, versions
from rank_core.models import build_model, check_model
from rank_core.optimise import autocast_type
from rank_core.scorer import Scorer
from rank_core.seeding import derive
from rank_core.train import CurvePoint, Streams, train


@dataclass(frozen=True)
class Progress:
    """News of a running trial: curve points since the last news, dev measures when validated."""

    step: int
    num_steps: int
    curve: tuple[CurvePoint, ...]
    dev: dict[str, float] | None


@dataclass(frozen=True)
class TrialResult:
    """The end of a trial; the same facts are in `result.json` in its folder."""

    cell: str
    seed: int
    status: str  # done, or collapsed: the model gives all candidates of a query the same score
    best_step: int
    dev: dict[str, float]
    test: dict[str, float]
    train_seconds: float
    eval_seconds: float
    peak_memory_bytes: int
    encoder_tokens: int  # real ones, read in training and evaluation
    padding_share: float  # of the tokens the encoder was given
    ties: int  # documents of test whose score equals another's, ordered by doc_id
    versions: dict[str, str]


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
    reset_peak_memory()
    inputs = load_inputs(config.collection, config.model.backbone)
    check_model(config, inputs.backbone)
    backbone_hash = inputs.backbone.content_hash
    streams, device = trial_streams(config, backbone_hash), trial_device()
    autocast = autocast_type(config.training.precision, device)
    model = build_model(config, inputs.backbone, init_seed=streams.init).to(device)
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
    ties_on_dev = scorer.work.ties
    test_run = scorer.run("test")
    eval_seconds += time.perf_counter() - before
    tokens, padded_tokens = _encoder_tokens(train_work, scorer.work)
    result = TrialResult(
        cell=cell_of(config, inputs),
        seed=config.seed,
        status="collapsed" if _constant(test_run) else "done",
        best_step=best.step,
        dev=best.dev,
        test=mean_values(scorer.table("test", test_run)),
        train_seconds=train_seconds,
        eval_seconds=eval_seconds,
        peak_memory_bytes=peak_memory(device),
        encoder_tokens=tokens,
        padding_share=1 - tokens / padded_tokens,
        ties=int(distributed.sum_numbers([scorer.work.ties - ties_on_dev])[0]),
        versions=versions(),
    )
    if distributed.world()[0] == 0:
        _write(workdir, config, result, scorer, {"dev": best.run, "test": test_run})
    yield result


def trial_streams(config: TrialConfig, backbone_hash: str) -> Streams:
    """The trial's random streams. Order and negatives are shared by all cells of a seed when the
    seeds are paired; otherwise seed 1 of one cell has nothing in common with seed 1 of another."""
    own = config.training_hash(backbone_hash=backbone_hash)
    shared = "" if config.training.paired_seeds else own
    return Streams(
        init=derive(config.seed, "init", own),
        order=derive(config.seed, "order", shared),
        negatives=derive(config.seed, "negatives", shared),
        dropout=derive(config.seed, "dropout", own),
    )


def _encoder_tokens(*works: Work) -> tuple[int, int]:
    """(real tokens, tokens with padding) that the encoders of all workers were given."""
    counts = [float(sum(w.tokens for w in works)), float(sum(w.padded_tokens for w in works))]
    tokens, padded_tokens = distributed.sum_numbers(counts)
    return int(tokens), int(padded_tokens)


def _examples(config: TrialConfig, scorer: Scorer) -> list[TrainingQuery]:
    split = scorer.inputs.collection.splits["train"]
    tokens = scorer.tokenize(split, sorted(split.queries))
    return training_queries(split, tokens, config.evaluation.depth)


def _validate(scorer: Scorer, best: _Best, step: int) -> dict[str, float]:
    """The dev measures now; keeps the checkpoint if its primary measure is the best so far."""
    run = scorer.run("dev")
    dev = mean_values(scorer.table("dev", run))
    value = dev[scorer.config.evaluation.measures[0]]
    if value > best.value:
        best.value, best.step, best.dev, best.run = value, step, dev, run
        best.weights = {k: v.detach().clone() for k, v in scorer.model.state_dict().items()}
    return dev


def _write(
    workdir: Path, config: TrialConfig, result: TrialResult, scorer: Scorer, runs: dict[str, Run]
) -> None:
    import pandas as pd

    workdir.mkdir(parents=True, exist_ok=True)
    (workdir / "config.json").write_text(json.dumps(config.settings(), indent=1))
    tables = []
    for split, run in runs.items():
        write_run(workdir / f"{split}.run.gz", run, tag=result.cell)
        tables.append(scorer.table(split, run).assign(split=split))
    table = pd.concat(tables, ignore_index=True).assign(cell=result.cell, seed=result.seed)
    columns = ["cell", "seed", "split", "query_id", "measure", "value"]
    table[columns].to_parquet(workdir / "per_query.parquet", index=False)
    unfinished = workdir / "result.json.unfinished"
    unfinished.write_text(json.dumps(asdict(result), indent=1))
    os.replace(unfinished, workdir / "result.json")


def _constant(run: Run) -> bool:
    """True where no query's scores tell its candidates apart (tie breaking aside)."""
    spreads = [
        max(scores.values()) - min(scores.values()) for scores in run.values() if len(scores) > 1
    ]
    return bool(spreads) and max(spreads) < 1e-4
