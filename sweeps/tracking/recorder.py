"""Writes what a sweep's trials report into the tracking outbox, under MLflow's names."""

import json
import logging
import os
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from rank_core.models import model_class
from sweeps.plan.plan import Plan, Trial
from sweeps.plan.secrets import redact_text
from sweeps.store.storage_retry import StorageAway, patiently
from sweeps.store.trial_store import HISTORY, RESULT, Store
from sweeps.tracking.names import metric_name, run_name
from sweeps.tracking.outbox import Outbox

_log = logging.getLogger("sweeps.tracking")

MEBIBYTE = 2**20
EVIDENCE = {
    "config.json": "config",
    "per_query.parquet": "eval",
    "folds.parquet": "eval",
    "dev.run.gz": "runs",
    "test.run.gz": "runs",
}
"""Files of a trial that MLflow gets, and their folder there."""


class Recorder:
    """The driver's hand on the outbox. One MLflow run per trial will come of it."""

    def __init__(self, outbox: Outbox, store: Store, plan: Plan) -> None:
        self.outbox, self.store, self.plan = outbox, store, plan

    def started(self, trial: Trial, attempt: int) -> None:
        """Opens the trial's run, or its next attempt."""
        config, inputs = trial.config, self.plan.inputs
        settings = config.settings()
        values = [settings[name] for name in self.plan.experiment.swept]
        if config.model.name != self.plan.base.model.name:
            values.insert(0, config.model.name)
        tags = {
            "config.id": self._short_label(trial),
            "config.hash": trial.cell.cell,
            "collection": inputs.collection.name,
            "collection.hash": inputs.collection.content_hash,
            "backbone.hash": inputs.backbone.content_hash,
            "stage": "final",
            "attempts": str(attempt),
            **git_state(),
        }
        params = {name: _text(value) for name, value in settings.items()}
        self.outbox.open_trial(
            trial.name, name=run_name(values, trial.seed), params=params, tags=tags
        )
        numbers = {
            f"hp/{name.rpartition('.')[2]}": float(settings[name])
            for name in self.plan.experiment.swept
            if isinstance(settings[name], int | float)
        }
        self.outbox.metrics(trial.name, numbers, step=0)

    def _short_label(self, trial: Trial) -> str:
        """The cell's label without the model that most cells share: MLflow's first column shows
        a group's name in about a dozen letters."""
        return trial.cell.label.removeprefix(f"{model_class(self.plan.base.model.name).label} ")

    def news(self, trial: Trial, news: Mapping[str, Any]) -> None:
        """Curve points, and dev measures where the trial has validated."""
        for point in news["curve"]:
            values = {
                "train/loss": point["loss"],
                "train/learning_rate": point["learning_rate"],
                "train/gradient_norm": point["gradient_norm"],
            }
            self.outbox.metrics(trial.name, values, step=point["step"])
        if news["dev"]:
            dev = {f"dev/{metric_name(name)}": value for name, value in news["dev"].items()}
            self.outbox.metrics(trial.name, dev, step=news["step"])

    def finished(self, trial: Trial, result: Mapping[str, Any]) -> None:
        """Final measures, costs and small artifacts, in one record."""
        # The primary measure first: MLflow's view sorts by the first one.
        measures = trial.config.evaluation.measures
        finals = {f"test/{metric_name(name)}": result["test"][name] for name in measures}
        finals |= {f"best/dev_{metric_name(name)}": result["dev"][name] for name in measures}
        finals |= {
            "best/step": result["best_step"],
            "cost/train_seconds": result["train_seconds"],
            "cost/eval_seconds": result["eval_seconds"],
            "cost/peak_memory_mib": result["peak_memory_bytes"] / MEBIBYTE,
            "cost/encoder_tokens": result["encoder_tokens"],
            "cost/padding_share": result["padding_share"],
            "cost/training_padding_share": result["training_padding_share"],
        }
        tags = {f"version.{name}": text for name, text in result["versions"].items()}
        tags["stop.reason"] = "collapsed" if result["status"] == "collapsed" else "completed"
        self.outbox.finish(trial.name, "FINISHED", finals, tags, self._evidence(trial))

    def _evidence(self, trial: Trial) -> list[tuple[Path | str, str]]:
        """(file, folder in MLflow) of what the trial left; whatever it is worth, it is in the
        store, so that a storage that stays away costs MLflow's copy and nothing else."""
        folder = self.store.folder / "runs" / trial.name

        def pull() -> list[str]:
            self.store.pull({trial.name})
            return os.listdir(folder)

        try:
            names = patiently(pull, f"{self.store.storage} cannot be read")
        except StorageAway as error:
            _log.warning("%s: no files for MLflow: %s", trial.name, redact_text(str(error))[:300])
            names = []
        return [(folder / name, to) for name, to in EVIDENCE.items() if name in names]

    def catch_up(self, trial: Trial) -> None:
        """Records a trial that is in the store but whose end no driver lived to record."""
        if self.outbox.is_finished(trial.name):
            return
        if not self.outbox.knows(trial.name):
            self.started(trial, attempt=1)
        folder = self.store.folder / "runs" / trial.name
        texts = [
            patiently((folder / name).read_text, f"{self.store.storage} cannot be read")
            for name in (HISTORY, RESULT)
        ]
        for line in texts[0].splitlines():
            self.news(trial, json.loads(line))
        self.finished(trial, json.loads(texts[1]))

    def lost(self, trial: Trial, status: Any, reason: str) -> None:
        """Ends the attempt of a trial without a result."""
        if self.outbox.knows(trial.name):  # Ctrl-C may come before its record was begun
            self.outbox.finish(trial.name, status, {}, {"stop.reason": reason[:500]})


@lru_cache(maxsize=1)
def git_state() -> dict[str, str]:
    """Commit and cleanliness of the code, where it runs from a checkout."""
    here = os.path.dirname(__file__)
    try:
        sha = _git(here, "rev-parse", "HEAD")
        return {"git.sha": sha, "git.dirty": str(bool(_git(here, "status", "--porcelain")))}
    except (OSError, subprocess.SubprocessError):
        return {}


def _git(folder: str, *words: str) -> str:
    command = ["git", "-C", folder, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()


def _text(value: Any) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)
