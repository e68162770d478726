"""The runs of a sweep in MLflow: one per trial, found by a tag, brought up to date."""

import hashlib
import io
import json
import logging
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rank_core.bounds import check_parquet
from rank_core.secrets import redact_text
from sweeps.store.lock import user_name
from sweeps.store.records import DamagedTrial, Records, State
from sweeps.store.sweep_file import Cell, SweepFile, read_sweep_file
from sweeps.tracking.client import (
    artifact_location,
    artifact_root,
    connect,
    ensure_experiment,
    every_page,
    follow_storage,
)
from sweeps.tracking.trial_run import (
    EVIDENCE,
    GROUP,
    Point,
    final_points,
    number_points,
    report_points,
    run_name,
    run_params,
    run_status,
    run_tags,
    times,
)

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput

KEY = "rank.trial_key"
_log = logging.getLogger(__name__)
_BATCH = {"metrics": 1000, "params": 100, "tags": 100}  # most of one log_batch
_MAX_DATASET_NAME, _MAX_DIGEST = 500, 36  # characters
_PER_QUERY, _TABLE = "per_query.parquet", "eval/per_query.json"
_TABLES_TAG = "mlflow.loggedArtifacts"  # what MLflowClient.log_table sets, too


@dataclass
class _Sent:
    """What MLflow has of a trial."""

    run_id: str
    status: str = "RUNNING"
    tags: dict[str, str] = field(default_factory=dict)
    steps: dict[str, int] | None = None
    """{curve: its last step}; None until this connection has sent the trial's settings."""


class Runs:
    """The runs of one experiment, over one connection. Every call may be repeated: MLflow is asked
    for what it has, and points have the times of their steps."""

    def __init__(
        self, records: Records, tracking_uri: str, experiment: str, *, create: bool = True
    ) -> None:
        self.records = records
        self.read_sweep()
        self.client = connect(tracking_uri, create=create)
        root = artifact_root(tracking_uri, records.folder)
        self.experiment_id = ensure_experiment(self.client, experiment, root)
        follow_storage(tracking_uri, self.experiment_id, artifact_location(experiment, root))
        self._key = f"{experiment.rpartition('/')[2]}/"
        self._sent: dict[str, _Sent] = {}
        self._told: set[str] = set()  # kinds of refusals
        self.find()

    def read_sweep(self) -> None:
        """Reads `sweep.json`, which changes when a search proposes cells."""
        self.sweep = read_sweep_file(self.records)
        self._cells = {cell.cell: cell for cell in self.sweep.cells}

    def find(self) -> None:
        """Finds the runs by their tag. Of a trial's runs the oldest counts: the others, made when
        an answer of MLflow was lost, go to its trash."""
        search = partial(self.client.search_runs, [self.experiment_id], max_results=1000)
        found: dict[str, _Sent] = {}
        for run in sorted(every_page(search), key=lambda r: (r.info.start_time, r.info.run_id)):
            key = run.data.tags.get(KEY, "")
            name = key.removeprefix(self._key)
            if name == key:
                continue  # a user's own
            if name in found:
                what = "the removal of a second run"
                self.part(name, what, self.client.delete_run, run.info.run_id)
            else:
                found[name] = _Sent(run.info.run_id, run.info.status, dict(run.data.tags))
        self._sent = found

    def lacking(self) -> list[State]:
        """The trials of the sweep whose run is missing or unfinished."""
        self.read_sweep()
        states = self.records.states(self.sweep.trials).values()
        return [s for s in states if s.cell in self._cells and not self._is_complete(s)]

    def write(self, state: State, reports: Sequence[Mapping[str, Any]] = ()) -> None:
        """Brings the run of a trial up to date; `reports` are those of a trial that runs."""
        name, begun, end, status = state.name, *times(state), run_status(state)
        if state.cell not in self._cells:
            self.read_sweep()
        if (cell := self._cells.get(state.cell)) is None:
            return  # of a plan that `sweep.json` no longer describes
        # `find` has searched for a run whose creation was not confirmed.
        sent = self._sent.get(name) or self._create(name, run_name(cell.label, state.seed), begun)
        tags = run_tags(self.sweep, cell, state)
        # Only what differs: a sweep of a thousand trials would send tens of thousands of equal
        # tags.
        new = {tag: text for tag, text in tags.items() if sent.tags.get(tag) != text}
        self.part(name, "tags", self._log, sent, tags=new)
        if sent.steps is None:
            sent.steps = self._send_settings(sent, state, cell)
        if state.status.used:
            reports = self.records.history(name)
        elif not reports and state.progress:
            # The curve is whole; of the dev values it has the last alone.
            reports = [{**state.progress, "dev": None}]
        self.report(name, reports, begun)
        if status != "RUNNING":
            finals = list(final_points(self.sweep, state))
            self.part(name, "measures", self._log, sent, finals)
            for file in (file for file in EVIDENCE if file in state.files and state.status.used):
                self.part(name, file, self._send_file, sent, name, file)
            self.client.set_terminated(sent.run_id, status, end_time=end)
        elif sent.status != status:
            self.client.update_run(sent.run_id, status=status)
        sent.status = status

    def report(self, name: str, reports: Iterable[Mapping[str, Any]], begun: int = 0) -> None:
        """Sends the points of a trial's reports that MLflow lacks. A resumed attempt repeats the
        steps since its last checkpoint: the first value of a step stays, because MLflow cannot
        delete a point."""
        sent = self._sent.get(name)
        if sent is None or sent.steps is None:
            return  # of a plan that `sweep.json` no longer describes
        last, new = dict(sent.steps), []
        for point in (point for report in reports for point in report_points(report, begun)):
            if point[2] > last.get(point[0], -1):
                last[point[0]] = point[2]
                new.append(point)
        self.part(name, "points", self._log, sent, new)
        sent.steps = last

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
        self, name: str, shown: str, tags: Mapping[str, str], values: Mapping[str, float]
    ) -> None:
        """Brings a run that is not a trial up to date: its tags, and one value of each metric."""
        digest = hashlib.sha256(json.dumps([tags, values], sort_keys=True).encode()).hexdigest()
        sent = self._sent.get(name) or self._create(name, shown)
        if sent.tags.get("content") != digest[:16]:
            now = int(1000 * time.time())
            self._log(sent, [(metric, value, 0, now) for metric, value in values.items()])
            self.client.set_terminated(sent.run_id, "FINISHED")
            self._log(sent, tags={**tags, "content": digest[:16]})

    def _is_complete(self, state: State) -> bool:
        sent = self._sent.get(state.name)
        if sent is None:
            return not state.num_attempts
        attempts = sent.tags.get("attempts") == str(state.num_attempts)
        grouped = GROUP in sent.tags  # runs of earlier versions get it
        return grouped and attempts and sent.status == run_status(state) != "RUNNING"

    def _create(self, name: str, shown: str, begun: int | None = None) -> _Sent:
        # As in MLflow's clients.
        user = os.environ.get("MLFLOW_TRACKING_USERNAME") or user_name()
        tags = {KEY: f"{self._key}{name}", "mlflow.user": user}
        run = self.client.create_run(self.experiment_id, begun, tags, run_name=shown)
        self._sent[name] = _Sent(run.info.run_id)
        return self._sent[name]

    def _send_settings(self, sent: _Sent, state: State, cell: Cell) -> dict[str, int]:
        """Sends the settings and data that a run lacks; returns {curve: its last step}."""
        run = self.client.get_run(sent.run_id)
        params = run_params(cell, state.seed)
        new = {name: text for name, text in params.items() if name not in run.data.params}
        self.part(state.name, "params", self._log, sent, params=new)
        numbers = list(number_points(self.sweep, cell, times(state)[0]))
        self.part(state.name, "numbers", self._log, sent, numbers)
        data = datasets(self.sweep, cell)
        if data and not (run.inputs and run.inputs.dataset_inputs):
            self.part(state.name, "data", self.client.log_inputs, sent.run_id, data)
        curves = (name for name in run.data.metrics if name.startswith(("train/", "dev/")))
        history = self.client.get_metric_history
        return {name: max(point.step for point in history(sent.run_id, name)) for name in curves}

    def _log(
        self,
        sent: _Sent,
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

    def _send_file(self, sent: _Sent, name: str, file: str) -> None:
        content = self.records.read(name, file)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / file
            path.write_bytes(content)
            self.client.log_artifact(sent.run_id, str(path), EVIDENCE[file])
        if file == _PER_QUERY:
            # `MlflowClient.log_table` would append to an existing table.
            self.client.log_dict(sent.run_id, query_table(content), _TABLE)
            tables = json.dumps([{"path": _TABLE, "type": "table"}])
            self.client.set_tag(sent.run_id, _TABLES_TAG, tables)

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


def query_table(parquet: bytes) -> dict[str, Any]:
    """The test values of a `per_query.parquet` as a table that MLflow's pages show and join over
    runs: a row per query, a column per measure."""
    from pyarrow.parquet import ParquetFile

    file = check_parquet(ParquetFile(io.BytesIO(parquet)), "the values", len(parquet))
    values = file.read().to_pandas()
    test = values[values["split"] == "test"]
    wide = test.pivot_table("value", "query_id", "measure", sort=False, observed=True).sort_index()
    rows = wide.reset_index().itertuples(index=False, name=None)
    return {"columns": ["query_id", *wide.columns], "data": [list(row) for row in rows]}


def datasets(sweep: SweepFile, cell: Cell) -> list["DatasetInput"]:
    """The splits of a collection that a trial reads, shown with its run. Each split has a digest of
    its own, because MLflow keeps one context of a dataset."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    about, source = sweep.collection, str(cell.config.get("collection", ""))
    folder = os.path.isabs(source)
    where = {"uri": source} if folder else {"tags": {"collection": source}}
    trained = "training.batch_size" in cell.config
    return [
        DatasetInput(
            Dataset(
                name=about["name"][:_MAX_DATASET_NAME],
                digest=f"{split}-{about['content_hash']}"[:_MAX_DIGEST],
                source_type="local" if folder else "code",
                source=json.dumps(where),
                profile=json.dumps({"num_queries": n, "num_documents": about["num_documents"]}),
            ),
            [InputTag("mlflow.data.context", split)],
        )
        for split, n in about.get("num_queries", {}).items()
        if trained or split != "train"
    ]
