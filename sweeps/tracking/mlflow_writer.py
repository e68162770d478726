"""Records as repeatable MLflow calls; per-query tables and the report's files."""

import getpass
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.tracking.client import every_page
from sweeps.tracking.records import EVIDENCE, Point, Record

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput, Run

Call = tuple[str, Callable[[], object]]
"""(description, the call that sends it)."""

MAX_METRICS, MAX_PARAMS, MAX_TAGS = 1000, 100, 100  # of one log_batch
MAX_DATASET_NAME, MAX_DIGEST = 500, 36  # characters
MAX_NOTE = 8000  # characters that MLflow keeps of a tag
PER_QUERY = "per_query.parquet"
_TABLE = "eval/per_query.json"
_TABLES_TAG = "mlflow.loggedArtifacts"  # what MLflowClient.log_table sets, too


class RunWriter:
    """The runs of one experiment, one per trial, found by the tag `rank.trial_key`. `trials` is the
    folder with a folder of files per trial."""

    def __init__(self, client: "MlflowClient", experiment_id: str, trials: Path) -> None:
        self.client = client
        self.experiment_id = experiment_id
        self.trials = trials

    def find_or_create(self, created: Record) -> str:
        """The run id of a trial: its oldest run, or a new one. The search finds a run whose
        creation was not confirmed.
        """
        runs = self.runs_of(created.tags["rank.trial_key"])
        if runs:
            return str(runs[0].info.run_id)
        tags = {"mlflow.user": _user(), **created.tags}
        run = self.client.create_run(
            self.experiment_id, start_time=created.time, tags=tags, run_name=created.name
        )
        return str(run.info.run_id)

    def runs_of(self, trial_key: str) -> list["Run"]:
        """The runs with this key, oldest first."""
        runs = self.client.search_runs(
            [self.experiment_id], filter_string=f"tags.`rank.trial_key` = '{trial_key}'"
        )
        return sorted(runs, key=age)

    def all_runs(self) -> Iterator["Run"]:
        """Every run of the experiment."""
        search = partial(self.client.search_runs, [self.experiment_id], max_results=1000)
        return every_page(search)

    def calls(self, run_id: str, records: Sequence[Record], *, one_by_one: bool) -> list[Call]:
        """The calls for records of one trial: any number of points, or one of another kind."""
        first = records[0]
        calls: list[Call] = []
        if first.kind == "created":
            calls += self._params(run_id, first.params, one_by_one=one_by_one)
            if first.data:
                log = partial(self.client.log_inputs, run_id, dataset_inputs(first.data))
                calls.append(("datasets", log))
        points = [(point, record.time) for record in records for point in record.points]
        calls += self._points(run_id, points, one_by_one=one_by_one)
        tags = {name: text for record in records for name, text in record.tags.items()}
        if tags and first.kind != "created":  # whose tags came with the run
            calls.append(("tags", lambda: self._log_tags(run_id, tags)))
        if first.kind == "reopened":
            calls.append(("status", lambda: self.client.update_run(run_id, status="RUNNING")))
        if first.kind == "ended":
            calls += self._files(run_id, first)
            calls.append(("status", lambda: self.end(run_id, first.status, first.time)))
        return calls

    def end(self, run_id: str, status: str, time_ms: int) -> None:
        """Sets the final status of a run."""
        self.client.set_terminated(run_id, status, end_time=time_ms)

    def _params(self, run_id: str, params: Mapping[str, str], *, one_by_one: bool) -> list[Call]:
        # Separate, since a refused param would reject the metrics of its batch.
        from mlflow.entities import Param

        items = [Param(name, value) for name, value in params.items()]
        size = 1 if one_by_one else MAX_PARAMS
        return [
            (
                "params " + ", ".join(param.key for param in part),
                partial(self.client.log_batch, run_id, params=part),
            )
            for part in (items[start : start + size] for start in range(0, len(items), size))
        ]

    def _points(
        self, run_id: str, points: Sequence[tuple[Point, int]], *, one_by_one: bool
    ) -> list[Call]:
        from mlflow.entities import Metric

        items = [Metric(name, value, time, step) for (name, value, step), time in points]
        size = 1 if one_by_one else MAX_METRICS
        return [
            (
                f"metric {part[0].key}" if one_by_one else "metrics",
                partial(self.client.log_batch, run_id, metrics=part),
            )
            for part in (items[start : start + size] for start in range(0, len(items), size))
        ]

    def _files(self, run_id: str, record: Record) -> list[Call]:
        calls: list[Call] = []
        for name in record.files:
            path = self.trials / record.trial / name
            log_file = partial(self.client.log_artifact, run_id, str(path), EVIDENCE[name])
            calls.append((f"artifact {path}", log_file))
            if name == PER_QUERY:
                log_table = partial(log_query_table, self.client, run_id, path)
                calls.append((f"table of {path}", log_table))
        return calls

    def _log_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        from mlflow.entities import RunTag

        items = [RunTag(name, value) for name, value in tags.items()]
        for start in range(0, len(items), MAX_TAGS):
            self.client.log_batch(run_id, tags=items[start : start + MAX_TAGS])


def dataset_inputs(data: Mapping[str, Any]) -> list["DatasetInput"]:
    """The splits of a collection that a trial reads, shown with its run. Each split has a digest of
    its own, because MLflow keeps one context of a dataset."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    source = str(data["source"])
    folder = os.path.isabs(source)
    about = {"uri": source} if folder else {"tags": {"collection": source}}
    return [
        DatasetInput(
            Dataset(
                name=data["name"][:MAX_DATASET_NAME],
                digest=f"{split}-{data['hash']}"[:MAX_DIGEST],
                source_type="local" if folder else "code",
                source=json.dumps(about),
                profile=json.dumps({"num_queries": number, "num_documents": data["documents"]}),
            ),
            [InputTag("mlflow.data.context", split)],
        )
        for split, number in data["queries"].items()
    ]


def age(run: "Run") -> tuple[int, str]:
    """The sort key of the runs of a trial; the first one counts."""
    return (run.info.start_time, run.info.run_id)


def log_query_table(client: "MlflowClient", run_id: str, parquet: Path) -> None:
    """The test values of a trial's `per_query.parquet` as a table of its run, which MLflow's pages
    show and join over runs, query by query.

    It replaces an existing table, to which `MlflowClient.log_table` would append.
    """
    import pandas as pd

    put_query_table(client, run_id, pd.read_parquet(parquet))


def put_query_table(client: "MlflowClient", run_id: str, values: "pd.DataFrame") -> None:
    """The test values of one configuration, several seeds averaged, as a table of a run: a row per
    query, a column per measure."""
    client.log_dict(run_id, query_table(values), _TABLE)
    client.set_tag(run_id, _TABLES_TAG, json.dumps([{"path": _TABLE, "type": "table"}]))


def query_table(values: "pd.DataFrame") -> dict[str, Any]:
    """{columns, data} with the rows of split test, one per query, measures in order."""
    test = values[values["split"] == "test"]
    wide = test.pivot_table("value", "query_id", "measure", sort=False).sort_index()
    rows = wide.reset_index().itertuples(index=False, name=None)
    return {"columns": ["query_id", *wide.columns], "data": [list(row) for row in rows]}


def log_report(client: "MlflowClient", experiment_id: str, folder: Path) -> None:
    """Writes the report's files (page, tables, plots) below `folder` to the one run of an
    experiment; files of the same name are replaced. The table is the run's description.

    It has an experiment of its own: in the others every run is drawn and averaged as a trial or a
    configuration.
    """
    runs = client.search_runs([experiment_id])
    run = min(runs, key=age) if runs else client.create_run(experiment_id, run_name="report")
    client.log_artifacts(run.info.run_id, str(folder), "report")
    table = folder / "table.md"
    if table.exists() and len(text := table.read_text(encoding="utf-8")) <= MAX_NOTE:
        client.set_tag(run.info.run_id, "mlflow.note.content", text)
    if run.info.status != "FINISHED":
        client.set_terminated(run.info.run_id, "FINISHED")


def _user() -> str:
    """The user's name at the server, as in MLflow's clients, or on this machine."""
    try:
        return os.environ.get("MLFLOW_TRACKING_USERNAME") or getpass.getuser()
    except (KeyError, OSError):
        return "unknown"  # a container without an entry for this user id
