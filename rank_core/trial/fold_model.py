"""The model of a fold, or of a trial without folds: trained on train, its best checkpoint selected
on dev, tested once."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rank_core import distributed
from rank_core.checkpoints.checkpoint import Best
from rank_core.checkpoints.weights import (
    load_weights,
    require_base,
    require_encoder,
    save_weights,
    saved_shapes,
    weights_file,
)
from rank_core.chunking.inputs import Inputs
from rank_core.data.trec import write_run
from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.backbones import num_parameters
from rank_core.encoders.checkpoint import check_finite
from rank_core.encoders.lora import thin_base
from rank_core.machine import autocast_type, make_deterministic, trial_device
from rank_core.models import model_class
from rank_core.models.build import build_model
from rank_core.models.ranker import Ranker
from rank_core.models.runtimes import use_runtime
from rank_core.parsing import parsed_json
from rank_core.ranking.chunk_scores import write_chunk_scores
from rank_core.ranking.encode import Work
from rank_core.ranking.final_runs import final_runs
from rank_core.ranking.rerank import KeptScores
from rank_core.ranking.scorer import Scorer, evaluated_queries
from rank_core.records import Run, evaluated_splits
from rank_core.settings.config import TrialConfig
from rank_core.training.examples import num_training_queries, training_queries
from rank_core.training.step_times import StepTimes
from rank_core.training.train import Streams, initial_state, no_pause, num_training_steps, train
from rank_core.trial.trial_result import ModelResult, Progress, is_constant

LARGE = 2**31
"""Bytes of an encoder in fp32 above which `check_start` does not build it."""


@dataclass
class _Best:
    """The checkpoint with the best dev value so far, the earlier one on ties."""

    value: float = float("-inf")
    step: int = 0
    run: Run | None = None
    weights: dict[str, torch.Tensor] | None = None
    kept: KeptScores | None = None  # chunk scores of dev; not in checkpoints
    waited: int = 0  # validations since

    def content(self) -> dict[str, Any]:
        """What a checkpoint keeps of it."""
        return {"weights": self.weights, "run": json.dumps(self.run)}


class FoldModel:
    """A model from its first training step to its final runs."""

    def __init__(
        self, config: TrialConfig, inputs: Inputs, streams: Streams, start: Path | None = None
    ) -> None:
        """`start` has the weights that `training.init_from` names where that is no path."""
        device = trial_device()
        make_deterministic(config.training.deterministic)
        self.config, self.streams = config, streams
        self.autocast = autocast_type(config.training.precision, device)
        self.model = _start(config, inputs, streams, start).to(device)
        thin_base(self.model.encoder, self.autocast)
        use_runtime(self.model, config, inputs.backbone, self.autocast, inputs=inputs)
        if device.type == "cuda":
            self.model.compile_layers(planned_tokens(config, inputs))
        self.scorer = Scorer(config, inputs, self.model, self.autocast)
        self.loop = initial_state(self.model, config.training, self.autocast)
        self.best, self.work = _Best(), Work()
        self.times = StepTimes(device)
        self.train_seconds = self.eval_seconds = 0.0

    def run(
        self, workdir: Path, pause: Callable[[int], bool] = no_pause
    ) -> Iterator[Progress | ModelResult]:
        """Yields progress, also whenever training is to `pause`, and last the result. Weights and
        runs for later trials are written to `workdir` if the settings ask for them."""
        before = time.perf_counter()
        records = train(
            self.model,
            self.scorer.pairs,
            training_queries(self.scorer.inputs, self.config),
            self.config.training,
            streams=self.streams,
            autocast=self.autocast,
            work=self.work,
            state=self.loop,
            pause=pause,
            times=self.times,
        )
        # Checked before each part: a model resumed after its last validation has nothing to train.
        patience = self.config.training.patience
        while not 0 < patience <= self.best.waited and (record := next(records, None)):
            trained = time.perf_counter()
            dev = _validate(self.scorer, self.best, record.step) if record.validate else None
            self.train_seconds += trained - before
            self.eval_seconds += time.perf_counter() - trained
            yield Progress(record.step, record.num_steps, record.curve, dev)
            before = time.perf_counter()
        yield self._result(workdir)

    def _result(self, workdir: Path) -> ModelResult:
        before, scorer, best = time.perf_counter(), self.scorer, self.best
        if best.weights is None:  # nothing is trained and nothing is chosen: there is no dev
            best.weights = on_host(self.model.learned_state())
        self.model.load_learned(best.weights)
        _save_for_later(workdir, scorer, best.weights)
        ties_before = scorer.work.ties
        final = final_runs(scorer, best.run)
        if self.config.evaluation.keep_chunk_scores:
            kept = {}
            if best.run is not None:
                # A resumed model has no chunk scores of its best checkpoint; its weights give the
                # same.
                kept["dev"] = best.kept or scorer.chunk_scores("dev", scorer.pairs)
            write_chunk_scores(workdir, scorer, kept | {"test": scorer.kept["test"]})
        return ModelResult(
            runs=final.runs,
            tables={split: scorer.table(split, run) for split, run in final.runs.items()},
            collapsed=is_constant(final.runs["test"]),
            best_step=best.step,
            train_seconds=self.train_seconds,
            eval_seconds=self.eval_seconds + time.perf_counter() - before,
            training=self.work,
            evaluation=scorer.work,
            ties=scorer.work.ties - ties_before,
            notes=final.notes,
            layers=(
                self.model.compiled.described
                if self.model.compiled
                else getattr(self.model.encoder, "layers_read", "")
            ),
        )

    def state(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], Best | None]:
        """The state that `load` reads, between two steps: tensors and torch's own state; plain
        values shared by all workers; values of this worker; the best checkpoint. Nothing is copied.
        """
        best, loop = self.best, self.loop
        tensors = {
            "weights": self.model.learned_state(),
            "optimizer": loop.optimizer.state_dict(),
            "scaler": loop.scaler.state_dict(),
        }
        shared = {
            "step": loop.step,
            "best": {"value": best.value, "step": best.step, "waited": best.waited},
            "seconds": [self.train_seconds, self.eval_seconds],
        }
        counted = {"training": asdict(self.work), "evaluation": asdict(self.scorer.work)}
        chosen = Best(best.step, best.content) if best.weights is not None else None
        return tensors, shared, counted | {"tokens": loop.tokens}, chosen

    def load(self, state: Mapping[str, Any]) -> None:
        """Restores a `state`: its tensors by name, the plain values as `shared` and `own`."""
        shared, own = state["shared"], state["own"]
        self.model.load_learned(state["weights"])
        self.loop.optimizer.load_state_dict(state["optimizer"])
        self.loop.scaler.load_state_dict(state["scaler"])
        self.loop.step, self.loop.tokens = shared["step"], own["tokens"]
        self.best = _Best(**shared["best"])
        if best := state.get("best"):
            self.best.weights, self.best.run = best["weights"], parsed_json(best["run"])
        self.train_seconds, self.eval_seconds = shared["seconds"]
        self.work = Work(**own["training"])
        self.scorer.work = Work(**own["evaluation"])


def planned_steps(config: TrialConfig, inputs: Inputs) -> int:
    """The number of optimizer steps of a model."""
    return num_training_steps(config.training, num_training_queries(inputs, config))


def planned_tokens(config: TrialConfig, inputs: Inputs) -> int:
    """About the number of document tokens that a model reads: of training, dev once, and test."""
    training, evaluation = config.training, config.evaluation
    documents = planned_steps(config, inputs) * training.batch_size * (1 + training.negatives)
    for split in evaluated_splits(inputs.collection):
        queries = evaluated_queries(inputs.collection, split, evaluation)
        documents += len(queries) * evaluation.depth
    lengths = np.minimum(inputs.tokens.lengths(), config.chunking.max_document_tokens)
    return int(documents * lengths.mean())


def _start(config: TrialConfig, inputs: Inputs, streams: Streams, start: Path | None) -> Ranker:
    model = build_model(config, inputs.backbone, init_seed=streams.init)
    if config.training.init_from:
        path = start or weights_file(config.training.init_from, config.seed)
        require_base(path, inputs.backbone.content_hash)
        load_weights(model, path, model.learned_state())
    return model


def check_start(config: TrialConfig, backbone: Backbone, seeds: Iterable[int]) -> tuple[str, ...]:
    """The parts of the model that the weights from which trials of these seeds start lack, so that
    they are drawn. Raises `BadInput` where weights are missing, damaged, no numbers or of another
    encoder. The model is built for that, unless it is large: then the trial alone finds them."""
    paths = sorted({weights_file(config.training.init_from, seed) for seed in seeds})
    if not issubclass(model_class(config.model.name), Ranker):
        return ()
    saved = {}
    for path in paths:
        require_base(path, backbone.content_hash)
        saved[path] = saved_shapes(path)
        check_finite(path)
    if 4 * num_parameters(backbone.folder) > LARGE:
        return ()
    learned = build_model(config, backbone, init_seed=0).learned_state()
    own = {name: tuple(weight.shape) for name, weight in learned.items()}
    lacking = dict[str, None]()
    for path, shapes in saved.items():
        require_encoder(path, own, shapes)
        drawn = (name for name, shape in own.items() if shapes.get(name) != shape)
        lacking |= dict.fromkeys(name.partition(".")[0] for name in drawn)
    return tuple(lacking)


def _validate(scorer: Scorer, best: _Best, step: int) -> dict[str, float] | None:
    """The current dev measures; keeps the checkpoint if the primary measure is the best so far.
    None where nothing is trained and there is no dev."""
    if not scorer.config.training.num_epochs and "dev" not in scorer.inputs.collection.splits:
        return None
    # Each worker ranks its share; the whole run is gathered only where it is kept.
    share = scorer.share("dev")
    dev = scorer.means("dev", share)
    value = dev[scorer.config.evaluation.measures[0]]
    best.waited += 1
    # Strictly: the earlier of equal checkpoints, which has seen less.
    if value > best.value:
        best.value, best.step, best.run, best.waited = value, step, scorer.whole("dev", share), 0
        best.kept = scorer.kept.get("dev")
        # On the host: a second copy of the weights would take memory from the batches.
        best.weights = on_host(scorer.model.learned_state())
    return dev


def on_host(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copies of weights in memory of the host, page-locked beside a GPU: for faster copies."""
    return {
        name: torch.empty_like(weight, device="cpu", pin_memory=weight.is_cuda).copy_(weight)
        for name, weight in weights.items()
    }


def _save_for_later(workdir: Path, scorer: Scorer, weights: dict[str, torch.Tensor]) -> None:
    """Writes the weights and the train run that later trials may use."""
    config = scorer.config
    run = scorer.run("train", config.training.depth) if config.training.keep_run else None
    if distributed.world()[0] != 0:
        return
    workdir.mkdir(parents=True, exist_ok=True)
    if config.training.keep_weights != "none" and not config.evaluation.folds:
        base = scorer.inputs.backbone.content_hash if config.training.lora_rank else ""
        save_weights(workdir, weights, base)
    if run is not None:
        write_run(workdir / "train.run.gz", run, tag=config.model.name)
