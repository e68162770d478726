"""A trial from start to end: data, chunks, a model or one per fold, runs, measures."""

import itertools
import time
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path

from rank_core import distributed
from rank_core.arguments import instance, optional, path, takes
from rank_core.checkpoints.checkpoint import Checkpoints
from rank_core.chunking.inputs import Inputs, cell_of, content_hashes, load_inputs, own_names
from rank_core.data.ir_collections import PREFIX
from rank_core.data.load import portable_collection
from rank_core.data.transforms.expression import parse_collection_expression
from rank_core.data.trec import in_rank_order
from rank_core.evaluate import mean_values, untied
from rank_core.machine import peak_memory, precision_name, reset_peak_memory, trial_device, versions
from rank_core.models import MODELS, model_class
from rank_core.models.checks import check_model
from rank_core.models.list_rankers import ListRanker
from rank_core.models.reading import with_encoder
from rank_core.own_code import is_reference, portable
from rank_core.process_state import each_step_kept
from rank_core.ranking.encode import Work
from rank_core.ranking.scorer import evaluated_queries, per_query_table
from rank_core.records import evaluated_splits
from rank_core.seeding import derive
from rank_core.settings.config import TrialConfig
from rank_core.training.examples import training_queries
from rank_core.training.train import Streams
from rank_core.trial.cross_validation import parts_of
from rank_core.trial.fold_model import FoldModel, planned_steps
from rank_core.trial.trial_result import (
    ModelResult,
    Progress,
    TrialResult,
    values_of,
    write_trial,
)
from rank_core.trial.trial_state import TrialState

__all__ = ["Progress", "TrialResult", "run_trial"]


@takes(
    config=instance(TrialConfig, "a TrialConfig"),
    workdir=path,
    checkpoints=optional(instance(Checkpoints, "a Checkpoints")),
    start=optional(path),
)
@each_step_kept
def run_trial(
    config: TrialConfig,
    workdir: Path | str,
    *,
    checkpoints: Checkpoints | None = None,
    start: Path | str | None = None,
) -> Generator[Progress | TrialResult]:
    """Runs a trial and yields its progress and, last, its `TrialResult`.

    With `checkpoints`, a trial whose process died resumes from the last checkpoint: it yields the
    earlier progress again and ends as if undisturbed (in fp32 bit for bit on the same model of CPU
    with the same threads).

    Writes `config.json`, `dev.run.gz`, `test.run.gz`, `per_query.parquet` and, last, `result.json`
    to `workdir` (no `dev.run.gz` where nothing is trained and the collection has no dev split);
    with `evaluation.folds` also `folds.parquet`, and with
    `evaluation.keep_chunk_scores` also `chunk_scores.parquet`. `start` is the file of the weights
    that `training.init_from` names where that is no path. In a process group, workers share the
    work and rank 0 writes. Raises `BadInput` for invalid settings and data, and `Diverged`.

    Examples:
        >>> import ranksweep
        >>> config = ranksweep.TrialConfig("own_collection:notes").override({"model.name": "bm25"})
        >>> *_, result = ranksweep.run_trial(config, "one-trial")
        >>> round(result.test["nDCG@10"], 3)
        0.449
    """
    workdir = Path(workdir)
    reset_peak_memory()
    config = portable_config(config)
    inputs = load_inputs(config.collection, config.model.backbone)
    check_model(config, inputs.backbone)
    lists = not model_class(config.model.name).trains
    parts = parts_of(config, inputs)
    state = TrialState(config, parts, None if lists else checkpoints)
    yield from state.progress
    if lists:
        yield from _rank_lists(config, parts, workdir, state)
    else:
        yield from _train_models(config, parts, workdir, state, Path(start) if start else None)
    result = _result(config, inputs, state)
    if distributed.world()[0] == 0:
        write_trial(workdir, config, result, state.models)
    yield result


def _train_models(
    config: TrialConfig,
    parts: tuple[Inputs, ...],
    workdir: Path,
    state: TrialState,
    start: Path | None,
) -> Iterator[Progress]:
    """Trains a model per remaining part, one after the other; steps are counted over all parts."""
    several = len(parts) > 1
    steps = [planned_steps(config, part) for part in parts] if several else []
    for number in range(len(state.models), len(parts)):
        part = parts[number]
        streams = trial_streams(config, part.backbone.content_hash, fold=several * (number + 1))
        model = state.restored(FoldModel(config, part, streams, start))
        for item in model.run(workdir, state.pause):
            if isinstance(item, ModelResult):
                state.models.append(item)
                continue
            progress = item.after(sum(steps[:number]), sum(steps)) if several else item
            state.progress.append(progress)
            # After the report is kept: a resumed trial repeats all reports up to its checkpoint.
            state.save(model)
            yield progress
        if number + 1 < len(parts):
            state.save()


def _rank_lists(
    config: TrialConfig, parts: tuple[Inputs, ...], workdir: Path, state: TrialState
) -> Iterator[Progress]:
    """Ranks dev and test of each part by a system without trained weights."""
    kind = model_class(config.model.name)
    assert issubclass(kind, ListRanker)
    ranker = kind(config, workdir)
    for number, part in enumerate(parts):
        start, runs, tables = time.perf_counter(), {}, {}
        ranker.inputs, ranker.language = part, part.collection.language
        for step, name in enumerate(evaluated_splits(part.collection), start=2 * number + 1):
            split, queries = part.collection.splits[name], {}
            for query_id in evaluated_queries(part.collection, name, config.evaluation):
                queries[query_id] = split.queries[query_id]
            ranked = ranker.rank(queries, part.collection.documents, split.candidates)
            runs[name] = {query_id: untied(in_rank_order(scores)) for query_id, scores in ranked}
            tables[name] = per_query_table(part.collection, name, runs[name], config.evaluation)
            dev = mean_values(tables["dev"]) if name == "dev" else None
            yield Progress(step, 2 * len(parts), (), dev)
        seconds = time.perf_counter() - start
        # The same on every worker: counted once.
        read = ranker.encoder_tokens if not number and distributed.world()[0] == 0 else 0
        state.models.append(
            ModelResult(
                runs,
                tables,
                eval_seconds=seconds,
                evaluation=Work(tokens=read, padded_tokens=read),
                notes=ranker.notes,
            )
        )


def trial_streams(config: TrialConfig, backbone_hash: str, *, fold: int = 0) -> Streams:
    """The random streams of a trial, or of the model of one of its folds, counted from 1.

    With paired seeds, all cells share a seed's order and negatives. Otherwise the streams of
    different cells are independent.
    """
    # Over what determines the trained model, and nothing of evaluation: two cells that differ in
    # evaluation alone train the same model.
    of_trial = config.training_hash(backbone_hash=backbone_hash, contents=content_hashes(config))
    shared = "" if config.training.paired_seeds else of_trial
    of_fold = (f"fold {fold}",) if fold else ()
    return Streams(
        init=derive(config.seed, "init", of_trial, *of_fold),
        order=derive(config.seed, "order", shared, *of_fold),
        negatives=derive(config.seed, "negatives", shared, *of_fold),
        dropout=derive(config.seed, "dropout", of_trial, *of_fold),
    )


def _result(config: TrialConfig, inputs: Inputs, state: TrialState) -> TrialResult:
    """The result of a trial over all its models and workers."""
    models = state.models
    training_tokens, training_padding = _encoder_tokens([model.training for model in models])
    tokens, padding = _encoder_tokens([model.evaluation for model in models])
    return TrialResult(
        cell=cell_of(config, inputs),
        seed=config.seed,
        status="collapsed" if any(model.collapsed for model in models) else "done",
        best_step=round(sum(model.best_step for model in models) / len(models)),
        dev=values_of(models, "dev"),
        test=values_of(models, "test"),
        train_seconds=sum(model.train_seconds for model in models),
        eval_seconds=sum(model.eval_seconds for model in models),
        peak_memory_bytes=peak_memory(trial_device()),
        encoder_tokens=tokens + training_tokens,
        padding_share=padding,
        training_padding_share=training_padding,
        ties=int(distributed.sum_numbers([sum(model.ties for model in models)])[0]),
        versions=versions() | _computed_by(config, models[0], encodes=tokens + training_tokens > 0),
        workers=tuple(state.workers),
    )


def _computed_by(config: TrialConfig, model: ModelResult, *, encodes: bool) -> dict[str, str]:
    """The precision of a trial's products and its layers, where an encoder has computed."""
    precision = precision_name(config.training.precision, trial_device())
    facts = {"precision": precision * encodes, "layers": model.layers}
    return {name: text for name, text in facts.items() if text}


def _encoder_tokens(works: list[Work]) -> tuple[int, float]:
    """(real tokens, fraction of padding) of the encoder inputs of all workers."""
    counts = [
        float(sum(work.tokens for work in works)),
        float(sum(work.padded_tokens for work in works)),
    ]
    tokens, padded_tokens = distributed.sum_numbers(counts)
    return int(tokens), 1 - tokens / padded_tokens if padded_tokens else 0.0


def prepare(config: TrialConfig) -> None:
    """Builds the collection, the tokens of documents and queries, and the training rows, unless the
    cache has them. Long steps report progress on standard error.

    A killed preparation begins its file again. Memory is bounded by a batch of documents, 12 bytes
    per candidate and, without a run file, the BM25 index.
    """
    kind = model_class(config.model.name)
    for part in parts_of(config, load_inputs(config.collection, config.model.backbone)):
        for split in part.collection.splits:
            part.query_tokens(split)
        if kind.trains and config.training.num_epochs:
            training_queries(part, config)


def portable_config(config: TrialConfig) -> TrialConfig:
    """The settings with entry points, and names that a program added to `MODELS`, as `module:name`,
    because workers know only those, and with the encoder that `auto` stands for."""
    model = replace(config.model, name=portable("model", config.model.name, MODELS))
    named = replace(config, collection=portable_collection(config.collection), model=model)
    return with_encoder(named)


def own_paths(config: TrialConfig) -> tuple[str, ...]:
    """`module:name` of each of the user's models, losses, measures, collections, transforms."""
    base, steps = parse_collection_expression(config.collection)
    names = [name for name in (base, *(name for name, _ in steps)) if is_reference(name)]
    names = [name for name in names if not name.startswith(PREFIX)]
    return tuple(itertools.chain(*own_names(config).values(), names))
