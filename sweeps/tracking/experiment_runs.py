"""The runs of one experiment of MLflow: found by a tag, sent in parts."""

import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

from rank_core.secrets import redact_text
from sweeps.store.lock import user_name
from sweeps.store.records import DamagedTrial, Records
from sweeps.tracking.client import (
    artifact_location,
    artifact_root,
    connect,
    ensure_experiment,
    every_page,
    follow_storage,
)
from sweeps.tracking.trial_run import Point

KEY = "rank.trial_key"
GROUP_RUN = "group-"
"""How the keys of measurements of groups of workers begin, which are no trials."""
_log = logging.getLogger(__name__)
_BATCH = {"metrics": 1000, "params": 100, "tags": 100}  # most of one log_batch


@dataclass
class Sent:
    """What MLflow has of a trial."""

    run_id: str
    status: str = "RUNNING"
    tags: dict[str, str] = field(default_factory=dict)
    steps: dict[str, int] | None = None
    """{curve: its last step}; None until this connection has sent the trial's settings."""


class ExperimentRuns:
    """The runs of one experiment, over one connection. Every call may be repeated: MLflow is asked
    for what it has."""

    noun = "trial"
    """What a run is of, in messages."""

    def __init__(
        self, records: Records, tracking_uri: str, experiment: str, *, create: bool = True
    ) -> None:
        self.records = records
        self.client = connect(tracking_uri, create=create)
        root = artifact_root(tracking_uri, records.folder)
        self.experiment_id = ensure_experiment(self.client, experiment, root)
        follow_storage(tracking_uri, self.experiment_id, artifact_location(experiment, root))
        self._key = f"{experiment.rpartition('/')[2]}/"
        self._sent: dict[str, Sent] = {}
        self._told: set[str] = set()  # kinds of refusals
        self.find()

    def find(self) -> None:
        """Finds the runs by their tag. Of a trial's runs the oldest counts: the others, made when
        an answer of MLflow was lost, go to its trash."""
        search = partial(self.client.search_runs, [self.experiment_id], max_results=1000)
        found: dict[str, Sent] = {}
        for run in sorted(every_page(search), key=lambda r: (r.info.start_time, r.info.run_id)):
            key = run.data.tags.get(KEY, "")
            name = key.removeprefix(self._key)
            if name == key:
                continue  # a user's own
            if name in found:
                what = "the removal of a second run"
                self.part(name, what, self.client.delete_run, run.info.run_id)
            else:
                found[name] = Sent(run.info.run_id, run.info.status, dict(run.data.tags))
        self._sent = found

    def unsent(self) -> list[str]:
        """The names of runs that an earlier command did not send."""
        return []

    def send(self, name: str, reports: Sequence[Mapping[str, Any]], *, changed: bool) -> None:
        """Brings a run up to date with `reports`, and where it `changed` with its begin or end."""
        raise NotImplementedError

    def describe(self) -> None:
        """Brings up to date what MLflow shows beside the runs."""
        raise NotImplementedError

    def files_run(self, name: str, folder: Path, digest: str) -> str:
        """The id of a run that is not a trial, with the files of a folder; `digest` names their
        content."""
        sent = self._sent.get(name) or self._create(name, name)
        if sent.tags.get("content") != digest:
            self.client.log_artifacts(sent.run_id, str(folder), name)
            self._log(sent, tags={"content": digest})
            self.client.set_terminated(sent.run_id, "FINISHED")
        return sent.run_id

    def values_run(
        self,
        name: str,
        shown: str,
        tags: Mapping[str, str],
        values: Mapping[str, float],
        params: Mapping[str, str] | None = None,
    ) -> None:
        """Brings a run that is not a trial up to date: its tags, and one value of each metric. Of
        the params it gets those that it lacks: MLflow changes none."""
        digest = hashlib.sha256(json.dumps([tags, values], sort_keys=True).encode()).hexdigest()
        sent = self._sent.get(name) or self._create(name, shown)
        if sent.tags.get("content") == digest[:16]:
            return
        has, now = self.client.get_run(sent.run_id).data, int(1000 * time.time())
        lacking = {param: text for param, text in (params or {}).items() if param not in has.params}
        self.part(name, "params", self._log, sent, params=lacking)
        new = [(n, value, 0, now) for n, value in values.items() if has.metrics.get(n) != value]
        self._log(sent, new)
        self.client.set_terminated(sent.run_id, "FINISHED")
        self._log(sent, tags={**tags, "content": digest[:16]})

    def _create(self, name: str, shown: str, begun: int | None = None) -> Sent:
        # As in MLflow's clients.
        user = os.environ.get("MLFLOW_TRACKING_USERNAME") or user_name()
        tags = {KEY: f"{self._key}{name}", "mlflow.user": user}
        run = self.client.create_run(self.experiment_id, begun, tags, run_name=shown)
        self._sent[name] = Sent(run.info.run_id)
        return self._sent[name]

    def _log(
        self,
        sent: Sent,
        points: Iterable[Point] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Sends points, params and tags in batches. Points that are not finite, such as gradient
        norms of skipped fp16 steps, are left out: MLflow stores infinity as 1.8e308."""
        from mlflow.entities import Metric, Param, RunTag

        items: dict[str, Any] = {
            "metrics": [
                Metric(n, value, t, step) for n, value, step, t in points if isfinite(value)
            ],
            "params": [Param(name, text) for name, text in (params or {}).items()],
            "tags": [RunTag(name, text) for name, text in (tags or {}).items()],
        }
        for kind, several in items.items():
            for start in range(0, len(several), _BATCH[kind]):
                part: Any = {kind: several[start : start + _BATCH[kind]]}
                self.client.log_batch(sent.run_id, **part)
        sent.tags |= tags or {}

    def part(self, name: str, what: str, send: Callable[..., Any], *args: Any, **more: Any) -> None:
        """Sends a part of a run. One that MLflow refuses costs a line, and the rest goes on; while
        MLflow is away, the error is raised."""
        try:
            send(*args, **more)
        except Exception as error:
            if not is_refused(error):
                raise
            reason = redact_text(str(error).partition("\n")[0])[:300]
            if what not in self._told:
                _log.warning("MLflow does not take %s of %s: %s", what, name, reason)
            self._told.add(what)


def is_refused(error: Exception) -> bool:
    """True if a part of a run can never be sent; False while MLflow or the storage is away or
    busy."""
    from mlflow.exceptions import MlflowException

    text = str(error)
    if isinstance(error, MlflowException):
        status = re.search(r"failed with error code (\d{3})", text)
        if status:  # of a proxy; not about authentication or overload
            return status[1] in ("400", "405", "411", "413", "414", "415", "422")
        # A server whose pool is exhausted answers 400. A deleted run is made again.
        again = ("QueuePool limit", "database is locked", "oo many c", "'active' state")
        about_it = error.error_code in ("INVALID_PARAMETER_VALUE", "BAD_REQUEST")
        return about_it and not any(sign in text for sign in again)
    broken = isinstance(error, DamagedTrial | ValueError | TypeError)
    return broken and not isinstance(error, OSError)  # errors of connections may be both
