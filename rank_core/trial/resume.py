"""A trial that goes on where a dead process left it: what is put into a checkpoint, and back.

Seeds, order and dropout need no place in it: they are functions of (seed, step, worker).
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rank_core import distributed
from rank_core.checkpoints.checkpoint import Checkpoints
from rank_core.chunking.inputs import Inputs, cell_of
from rank_core.machine import versions
from rank_core.ranking.encode import Work
from rank_core.ranking.scorer import measured
from rank_core.settings.config import TrialConfig
from rank_core.training.train import CurvePoint, never
from rank_core.trial.trained_model import OneModel
from rank_core.trial.trial_result import Measured, Progress

FORMAT = 1  # raised when an older checkpoint could not be read any more
PLACE = ("device", "threads")  # versions that may change on the way: a trial may move


class SoFar:
    """What a trial has said and finished, and where the model that is in training stands.

    Without `checkpoints` it starts from nothing and keeps nothing. All workers of a trial call its
    methods at the same points; rank 0 decides and writes.
    """

    def __init__(
        self, config: TrialConfig, parts: Sequence[Inputs], checkpoints: Checkpoints | None
    ) -> None:
        self.said: list[Progress] = []
        self.models: list[Measured] = []
        self._in_training: dict[str, Any] | None = None
        self._checkpoints = checkpoints
        self._config, self._parts = config, parts
        self.pause = never
        if checkpoints:
            self._identity = _identity(config, parts[0])
            self.pause = checkpoints.due
            self._take_up(checkpoints)

    def begin(self, model: OneModel) -> OneModel:
        """The next model: as it is, or as the checkpoint left it."""
        if self._in_training is not None:
            model.load(self._in_training)
            self._in_training = None
        return model

    def keep(self, model: OneModel | None = None) -> None:
        """Writes a checkpoint if one is due: of the model in training, or between two models."""
        step = model.loop.step if model else 0
        if self._checkpoints is None or (model and not step):
            return
        # One clock for all workers.
        if not distributed.gather(self._checkpoints.due(step))[0]:
            return
        own: dict[str, Any] = {"models": [_own(done) for done in self.models]}
        content: dict[str, Any] = {}
        facts: dict[str, Any] = {
            "identity": self._identity,
            "said": [asdict(progress) for progress in self.said],
            "models": [_shared(done) for done in self.models],
        }
        if model:
            content, facts["model"], own["model"] = model.state()
        facts["workers"] = distributed.gather(own)
        if distributed.world()[0] == 0:
            # As JSON: a file of tensors and texts can be read without running any code of its own.
            content["facts"] = json.dumps(facts)
            self._checkpoints.save(content, (len(self.models), step))

    def _take_up(self, checkpoints: Checkpoints) -> None:
        """Goes back to the last checkpoint that every worker can read and that is of this trial."""
        rank = distributed.world()[0]
        for name in distributed.gather(checkpoints.names())[0]:
            content = checkpoints.load(name)
            facts = json.loads(content.pop("facts")) if content else {}
            if not all(distributed.gather(facts.get("identity") == self._identity)):
                continue
            assert content is not None
            own = facts["workers"][rank]
            self.said = [_progress(said) for said in facts["said"]]
            self.models = [
                self._measured(number, shared, own["models"][number])
                for number, shared in enumerate(facts["models"])
            ]
            if "model" in facts:
                self._in_training = content | {"shared": facts["model"], "own": own["model"]}
            return

    def _measured(self, number: int, shared: dict[str, Any], own: dict[str, Any]) -> Measured:
        collection, evaluation = self._parts[number].collection, self._config.evaluation
        tables = {
            split: measured(collection, split, run, evaluation)
            for split, run in shared["runs"].items()
        }
        return Measured(
            tables=tables,
            training=Work(**own["training"]),
            evaluation=Work(**own["evaluation"]),
            ties=own["ties"],
            **shared,
        )


def _identity(config: TrialConfig, inputs: Inputs) -> dict[str, Any]:
    """What must be equal for the end to be that of an undisturbed trial."""
    return {
        "format": FORMAT,
        "cell": cell_of(config, inputs),
        "seed": config.seed,
        "workers": distributed.world()[1],
        "versions": {name: text for name, text in versions().items() if name not in PLACE},
    }


def _shared(done: Measured) -> dict[str, Any]:
    """What is the same on all workers, without the tables: they follow from the runs."""
    names = ("runs", "collapsed", "best_step", "train_seconds", "eval_seconds", "notes")
    return {name: getattr(done, name) for name in names}


def _own(done: Measured) -> dict[str, Any]:
    """What each worker has counted for itself."""
    counted = {"training": asdict(done.training), "evaluation": asdict(done.evaluation)}
    return counted | {"ties": done.ties}


def _progress(said: dict[str, Any]) -> Progress:
    curve = tuple(CurvePoint(**point) for point in said["curve"])
    return Progress(said["step"], said["num_steps"], curve, said["dev"])
