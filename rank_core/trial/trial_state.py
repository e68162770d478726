"""The state of a running trial, written to checkpoints and read from them, so that the trial
resumes where its process died.

Seeds, order and dropout are not part of it: they are functions of (seed, step, worker).
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from rank_core import distributed
from rank_core.checkpoints.checkpoint import Checkpoints
from rank_core.chunking.inputs import Inputs, cell_of
from rank_core.encoders.cpu.forms import unusual_forms
from rank_core.machine import versions
from rank_core.ranking.encode import Work
from rank_core.ranking.scorer import per_query_table
from rank_core.settings.config import TrialConfig
from rank_core.training.train import CurvePoint, no_pause
from rank_core.trial.fold_model import FoldModel
from rank_core.trial.trial_result import ModelResult, Progress

FORMAT = 3  # incremented when older checkpoints can no longer be read
PLACE = ("device", "threads")  # versions that may change when a trial moves to another machine


class TrialState:
    """The progress and finished models of a trial, and the state of the model in training.

    Without `checkpoints` it starts empty and saves nothing. All workers of a trial call its methods
    at the same points; rank 0 decides and writes.
    """

    def __init__(
        self, config: TrialConfig, parts: Sequence[Inputs], checkpoints: Checkpoints | None
    ) -> None:
        self.progress: list[Progress] = []
        self.models: list[ModelResult] = []
        self._in_training: dict[str, Any] | None = None
        self._checkpoints = checkpoints
        self._config, self._parts = config, parts
        self.pause = no_pause
        if checkpoints:
            self._identity = _identity(config, parts[0])
            self.pause = checkpoints.due
            self._restore(checkpoints)

    def restored(self, model: FoldModel) -> FoldModel:
        """The next model, with its state from the checkpoint if there is one."""
        if self._in_training is not None:
            model.load(self._in_training)
            self._in_training = None
        return model

    def save(self, model: FoldModel | None = None) -> None:
        """Writes a checkpoint if one is due, of the model in training or between two models."""
        step = model.loop.step if model else 0
        if self._checkpoints is None or (model and not step):
            return
        # One clock for all workers.
        if not distributed.gather(self._checkpoints.due(step))[0]:
            return
        own: dict[str, Any] = {"models": [_own(result) for result in self.models]}
        content: dict[str, Any] = {}
        shared, best = None, None
        if model:
            content, shared, own["model"], best = model.state()
        workers = distributed.gather(own)
        if distributed.world()[0] == 0:
            content["facts"] = partial(
                _facts, self._identity, tuple(self.progress), tuple(self.models), shared, workers
            )
            self._checkpoints.save(content, (len(self.models), step), best=best)

    def close(self) -> None:
        """Waits until the current checkpoint is written."""
        if self._checkpoints:
            self._checkpoints.finish()

    def _restore(self, checkpoints: Checkpoints) -> None:
        """Reads the last checkpoint of this trial that every worker can read."""
        rank = distributed.world()[0]
        for name in distributed.gather(checkpoints.names())[0]:
            content = checkpoints.load(name)
            facts = json.loads(content.pop("facts")) if content else {}
            if not all(distributed.gather(facts.get("identity") == self._identity)):
                continue
            assert content is not None
            own = facts["workers"][rank]
            self.progress = [_progress(saved) for saved in facts["progress"]]
            self.models = [
                self._result(number, shared, own["models"][number])
                for number, shared in enumerate(facts["models"])
            ]
            if "model" in facts:
                self._in_training = content | {"shared": facts["model"], "own": own["model"]}
            return

    def _result(self, number: int, shared: dict[str, Any], own: dict[str, Any]) -> ModelResult:
        collection, evaluation = self._parts[number].collection, self._config.evaluation
        tables = {
            split: per_query_table(collection, split, run, evaluation)
            for split, run in shared["runs"].items()
        }
        return ModelResult(
            tables=tables,
            training=Work(**own["training"]),
            evaluation=Work(**own["evaluation"]),
            ties=own["ties"],
            **shared,
        )


def _identity(config: TrialConfig, inputs: Inputs) -> dict[str, Any]:
    """The facts that must agree for a resumed trial to end as if undisturbed."""
    own = {name: text for name, text in trial_versions().items() if name not in PLACE}
    return {
        "format": FORMAT,
        "cell": cell_of(config, inputs),
        "seed": config.seed,
        "workers": distributed.world()[1],
        "versions": own if distributed.world()[1] == 1 else distributed.gather(own),
    }


def trial_versions() -> dict[str, str]:
    """{name: version} of what a trial's numbers may depend on apart from its settings, including
    the forms of computations on its CPU."""
    return versions() | unusual_forms()


def _facts(
    identity: dict[str, Any],
    progress: Sequence[Progress],
    models: Sequence[ModelResult],
    model: dict[str, Any] | None,
    workers: list[dict[str, Any]],
) -> str:
    """The facts as JSON, which can be read without executing code."""
    facts: dict[str, Any] = {
        "identity": identity,
        "progress": [asdict(news) for news in progress],
        "models": [_shared(result) for result in models],
        "workers": workers,
    }
    return json.dumps(facts | ({"model": model} if model else {}))


def _shared(result: ModelResult) -> dict[str, Any]:
    """The facts that are equal on all workers, without the tables, which follow from the runs."""
    names = ("runs", "collapsed", "best_step", "train_seconds", "eval_seconds", "notes")
    return {name: getattr(result, name) for name in names}


def _own(result: ModelResult) -> dict[str, Any]:
    """The counts of this worker."""
    counts = {"training": asdict(result.training), "evaluation": asdict(result.evaluation)}
    return counts | {"ties": result.ties}


def _progress(saved: dict[str, Any]) -> Progress:
    curve = tuple(CurvePoint(**point) for point in saved["curve"])
    return Progress(saved["step"], saved["num_steps"], curve, saved["dev"])
