"""The state of a running trial, written to checkpoints and read from them, so that the trial
resumes where its process died.

Seeds, order and dropout are not part of it: they are functions of (seed, step, worker).
"""

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch

from rank_core import distributed
from rank_core.checkpoints.checkpoint import Checkpoints
from rank_core.chunking.inputs import Inputs, cell_of
from rank_core.machine import (
    autocast_type,
    device_class,
    device_name,
    trial_device,
    versions,
)
from rank_core.parsing import parsed_json
from rank_core.ranking.encode import Work
from rank_core.ranking.scorer import per_query_table
from rank_core.settings.config import TrialConfig
from rank_core.training.train import CurvePoint, no_pause
from rank_core.trial.fold_model import FoldModel
from rank_core.trial.trial_result import ModelResult, Progress
from rank_core.trial.workers import Workers

logger = logging.getLogger(__name__)

FORMAT = 5  # incremented when older checkpoints can no longer be read
LEAVING_SECONDS = 600.0  # for the last checkpoint on a node that goes
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
        self.workers: list[Workers] = []
        self._in_training: dict[str, Any] | None = None
        self._checkpoints = checkpoints
        self._config, self._parts = config, parts
        self.pause = no_pause
        if checkpoints:
            self._identity = _identity(config, parts[0])
            self.pause = checkpoints.due
            self._restore(checkpoints)
        self._note_workers()

    def restored(self, model: FoldModel) -> FoldModel:
        """The next model, with its state from the checkpoint if there is one."""
        if self._in_training is not None:
            model.load(self._in_training)
            self._in_training = None
        return model

    def save(self, model: FoldModel | None = None) -> None:
        """Writes a checkpoint if one is due, of the model in training or between two models. After
        the notice of a worker's node all workers are leaving, after a wish if it is written."""
        step, checkpoints = model.loop.step if model else 0, self._checkpoints
        position = len(self.models), step
        if checkpoints is None or (model and not step):
            return
        rank, _ = distributed.world()
        # One clock for all workers; each has its own node.
        due = rank == 0 and checkpoints.due(step)
        asked = distributed.gather((due, checkpoints.noticed, checkpoints.wished))
        noticed = any(noticed for _, noticed, _ in asked)
        leaving = noticed or any(wished for _, _, wished in asked)
        if not (asked[0][0] or leaving):
            return
        own: dict[str, Any] = {"models": [_own(result) for result in self.models]}
        content: dict[str, Any] = {}
        shared, best = None, None
        if model:
            content, shared, own["model"], best = model.state()
        workers = distributed.gather(own)
        if rank == 0:
            facts: dict[str, Any] = {
                "identity": self._identity,
                "progress": [asdict(news) for news in self.progress],
                "models": [_shared(result) for result in self.models],
                "own": workers,
                "workers": [asdict(row) for row in self.workers],
            }
            # As JSON, which can be read without executing code.
            content["facts"] = json.dumps(facts | ({"model": shared} if shared else {}))
            checkpoints.save(content, position, best=best)
            if leaving:
                checkpoints.finish(LEAVING_SECONDS)
        if leaving:
            # Until it is in the storage, all are needed.
            saved = distributed.gather(checkpoints.saved)[0]
            if noticed:
                checkpoints.leave(saved)
            else:
                checkpoints.leave_on_wish(saved, position)

    def _restore(self, checkpoints: Checkpoints) -> None:
        """Reads the checkpoint, if every worker can read it and it is of this trial as it would run
        here; otherwise the log says why the trial starts anew."""
        content = checkpoints.load()
        facts = parsed_json(content.pop("facts")) if content else {}
        # All workers or none: one that resumes beside one that starts anew would wait for it for
        # ever.
        if not all(distributed.gather(bool(facts) and self._continues(facts))):
            if facts and distributed.world()[0] == 0:
                unlike = _unlike(facts, self._identity)
                logger.warning(
                    "the trial restarts from scratch, because its checkpoint differs: %s", unlike
                )
            checkpoints.forget()
            return
        assert content is not None
        own = _own_part(facts["own"])
        self.workers = [Workers(**row) for row in facts["workers"]]
        for saved in facts["progress"]:
            curve = tuple(CurvePoint(**point) for point in saved["curve"])
            self.progress.append(Progress(**saved | {"curve": curve}))
        self.models = [
            self._result(number, shared, own["models"][number])
            for number, shared in enumerate(facts["models"])
        ]
        if "model" in facts:
            self._in_training = content | {"shared": facts["model"], "own": own["model"]}

    def _continues(self, facts: Mapping[str, Any]) -> bool:
        """Whether a checkpoint is of this trial as it would run here. The number of workers may be
        another only where that is `elastic`; then all have what those of before had."""
        before, now = facts["identity"], self._identity
        if any(before.get(name) != now[name] for name in now if name != "workers"):
            return False
        if self._checkpoints and self._checkpoints.elastic:
            return all(own in before["workers"] for own in now["workers"])
        numbers = {row["number"] for row in facts["workers"]}
        return bool(before == now and numbers == {distributed.world()[1]})

    def _note_workers(self) -> None:
        """Notes the workers, where their number or devices are others from here on."""
        # On all workers: the devices of a group may differ.
        devices = dict(sorted(Counter(distributed.gather(device_name())).items()))
        last = self.workers[-1] if self.workers else None
        if last and last.number == distributed.world()[1] and last.devices in ({}, devices):
            self.workers[-1] = replace(last, devices=devices)  # an earlier checkpoint has none
            return
        step = self.progress[-1].step if self.progress else 0
        seconds = sum((one.train_seconds + one.eval_seconds for one in self.models), 0.0)
        if self._in_training is not None:
            seconds += sum(self._in_training["shared"]["seconds"])
        self.workers.append(Workers(step, distributed.world()[1], seconds, devices))

    def _result(self, number: int, shared: dict[str, Any], own: dict[str, Any]) -> ModelResult:
        collection, evaluation = self._parts[number].collection, self._config.evaluation
        tables = {
            # Computed again from the runs, which are smaller and from which nothing else can
            # follow.
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
    """The facts that must agree for a resumed trial to end as if undisturbed. Between GPUs with and
    without bf16, and between them and CPUs, products and precision `auto` differ."""
    own = {name: text for name, text in versions().items() if name not in PLACE}
    device = trial_device()
    own["device class"] = device_class(device)
    own["precision"] = str(autocast_type(config.training.precision, device) or torch.float32)
    facts = {"format": FORMAT, "cell": cell_of(config, inputs), "seed": config.seed}
    return facts | {"workers": distributed.gather(own)}


def _unlike(saved: dict[str, Any], now: dict[str, Any]) -> str:
    """The facts in which a checkpoint differs from an identity."""
    before = saved["identity"]
    numbers = [row["number"] for row in saved["workers"]] if before["format"] == FORMAT else []
    old, new = (
        {name: value for name, value in facts.items() if name != "workers"}
        | {name: value for own in facts["workers"] for name, value in own.items()}
        | {"workers": " then ".join(map(str, counts or [len(facts["workers"])]))}
        for facts, counts in ((before, numbers), (now, []))
    )
    names = [name for name in old | new if old.get(name) != new.get(name)]
    return "; ".join(f"{name} was {old.get(name)}, now {new.get(name)}" for name in names)


def _shared(result: ModelResult) -> dict[str, Any]:
    """The facts that are equal on all workers, without the tables, which follow from the runs."""
    names = ("runs", "collapsed", "best_step", "train_seconds", "eval_seconds", "notes", "layers")
    return {name: getattr(result, name) for name in names}


def _own_part(saved: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What this worker goes on with of the values of each: its own. Where they were more or fewer,
    rank 0 has the sums of all counts, and each the smallest micro-batch that a GPU needed."""
    rank, number = distributed.world()
    if number == len(saved):
        return saved[rank]
    whole: dict[str, Any] = _summed(saved, share=int(rank == 0))
    if "model" in whole:
        whole["model"]["tokens"] = min(own["model"]["tokens"] for own in saved)
    return whole


def _summed(values: Sequence[Any], share: int) -> Any:
    """The `share` (0 or 1) of the sums of numbers at the same places of tables and lists."""
    first = values[0]
    if isinstance(first, dict):
        return {name: _summed([one[name] for one in values], share) for name in first}
    if isinstance(first, list):
        return [_summed(each, share) for each in zip(*values, strict=True)]
    return share * sum(values)


def _own(result: ModelResult) -> dict[str, Any]:
    """The counts of this worker."""
    counts = {"training": asdict(result.training), "evaluation": asdict(result.evaluation)}
    return counts | {"ties": result.ties}
