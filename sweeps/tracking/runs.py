"""The runs of a sweep in MLflow: one per trial, found by a tag, brought up to date."""

import io
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rank_core.bounds import check_parquet
from sweeps.store.records import Records, State
from sweeps.store.sweep_file import Cell, SweepFile, read_sweep_file
from sweeps.tracking.experiment_runs import ExperimentRuns, Sent
from sweeps.tracking.trial_run import (
    EVIDENCE,
    GROUP,
    final_points,
    number_points,
    report_points,
    run_name,
    run_params,
    run_status,
    run_tags,
    times,
)
from sweeps.tracking.view import describe

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput

_MAX_DATASET_NAME, _MAX_DIGEST = 500, 36  # characters
_PER_QUERY, _TABLE = "per_query.parquet", "eval/per_query.json"
_TABLES_TAG = "mlflow.loggedArtifacts"  # what MLflowClient.log_table sets, too


class Runs(ExperimentRuns):
    """The runs of a sweep's trials. Points have the times of their steps."""

    def __init__(
        self, records: Records, tracking_uri: str, experiment: str, *, create: bool = True
    ) -> None:
        self.records = records
        self.read_sweep()
        super().__init__(records, tracking_uri, experiment, create=create)

    def read_sweep(self) -> None:
        """Reads `sweep.json`, which changes when a search proposes cells."""
        self.sweep = read_sweep_file(self.records)
        self._cells = {cell.cell: cell for cell in self.sweep.cells}

    def lacking(self) -> list[State]:
        """The trials of the sweep whose run is missing or unfinished."""
        self.read_sweep()
        states = self.records.states(self.sweep.trials).values()
        return [s for s in states if s.cell in self._cells and not self._is_complete(s)]

    def unsent(self) -> list[str]:
        """The names of the trials whose run is missing or unfinished."""
        return [state.name for state in self.lacking()]

    def send(self, name: str, reports: Sequence[Mapping[str, Any]], *, changed: bool) -> None:
        """Brings the run of a trial up to date with its `reports`, or with all where it
        `changed`."""
        if changed:
            self.write(self.records.state(name), reports)
        else:
            self.report(name, reports)

    def describe(self) -> None:
        """Sets the view, the description and the report of the experiment."""
        self.read_sweep()
        describe(self, self.sweep)

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

    def _is_complete(self, state: State) -> bool:
        sent = self._sent.get(state.name)
        if sent is None:
            return not state.num_attempts
        attempts = sent.tags.get("attempts") == str(state.num_attempts)
        grouped = GROUP in sent.tags  # runs of earlier versions get it
        return grouped and attempts and sent.status == run_status(state) != "RUNNING"

    def _send_settings(self, sent: Sent, state: State, cell: Cell) -> dict[str, int]:
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

    def _send_file(self, sent: Sent, name: str, file: str) -> None:
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
