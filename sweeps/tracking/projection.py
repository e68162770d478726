"""Outbox records as MLflow calls, each of which may be repeated without a second effect."""

import getpass
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.tracking.query_table import PER_QUERY, log_query_table

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

Call = tuple[str, Callable[[], object]]
"""(what is sent, the call that sends it)."""

MAX_METRICS, MAX_PARAMS, MAX_TAGS = 1000, 100, 100  # of one log_batch


class Projection:
    """The runs of one experiment, one per trial, found by the tag `rank.trial_key`."""

    def __init__(self, client: "MlflowClient", experiment_id: str) -> None:
        self.client = client
        self.experiment_id = experiment_id

    def find_or_create(self, header: Mapping[str, Any]) -> str:
        """The run id of a trial: its oldest run, or a new one.

        A lost reply to an earlier creation must not become a second run, hence the search.
        """
        found = self.runs_of(header["trial_key"])
        if found:
            return str(found[0].info.run_id)
        tags = {"mlflow.user": _user()} | header["tags"]
        run = self.client.create_run(
            self.experiment_id, start_time=header["time"], tags=tags, run_name=header["name"]
        )
        return str(run.info.run_id)

    def runs_of(self, trial_key: str) -> list["Run"]:
        """The runs with this key, oldest first."""
        found = self.client.search_runs(
            [self.experiment_id], filter_string=f"tags.`rank.trial_key` = '{trial_key}'"
        )
        return sorted(found, key=age)

    def calls(
        self, run_id: str, records: Sequence[Mapping[str, Any]], *, one_by_one: bool
    ) -> list[Call]:
        """The calls for records of one trial: one lifecycle record, or any number of others."""
        kind = records[0]["kind"]
        if kind == "trial":
            return self._params(run_id, records[0]["params"], one_by_one=one_by_one)
        if kind == "attempt":
            return [
                ("tags", lambda: self._log_tags(run_id, records[0]["tags"])),
                ("status", lambda: self.client.update_run(run_id, status="RUNNING")),
            ]
        if kind == "finish":
            return self._finish(run_id, records[0], one_by_one=one_by_one)
        return self._points(run_id, records, one_by_one=one_by_one)

    def _params(self, run_id: str, params: Mapping[str, str], *, one_by_one: bool) -> list[Call]:
        # On their own: one refused param would take the metrics of its batch with it.
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
        self, run_id: str, records: Sequence[Mapping[str, Any]], *, one_by_one: bool
    ) -> list[Call]:
        tags: dict[str, str] = {}
        points: list[Metric] = []
        for record in records:
            if record["kind"] == "tags":
                tags |= record["tags"]
            elif record["kind"] == "metrics":
                points += _metrics(record["values"], record["time"], record["step"])
            else:
                raise ValueError(f"unknown record kind {record['kind']!r}")
        calls = self._metrics(run_id, points, one_by_one=one_by_one)
        if tags:
            calls.append(("tags", lambda: self._log_tags(run_id, tags)))
        return calls

    def _finish(self, run_id: str, record: Mapping[str, Any], *, one_by_one: bool) -> list[Call]:
        points = _metrics(record["metrics"], record["time"], 0)
        calls = self._metrics(run_id, points, one_by_one=one_by_one)
        calls.append(("tags", lambda: self._log_tags(run_id, record["tags"])))
        for file, where in record["artifacts"]:
            log_file = partial(self.client.log_artifact, run_id, file, where)
            calls.append((f"artifact {file}", log_file))
            if Path(file).name == PER_QUERY:
                log_table = partial(log_query_table, self.client, run_id, Path(file))
                calls.append((f"table of {file}", log_table))
        calls.append(("status", lambda: self.end(run_id, record["status"], record["time"])))
        return calls

    def end(self, run_id: str, status: str, time_ms: int) -> None:
        """Set the final status of a run."""
        self.client.set_terminated(run_id, status, end_time=time_ms)

    def _metrics(self, run_id: str, points: list["Metric"], *, one_by_one: bool) -> list[Call]:
        size = 1 if one_by_one else MAX_METRICS
        return [
            (
                f"metric {part[0].key}" if one_by_one else "metrics",
                partial(self.client.log_batch, run_id, metrics=part),
            )
            for part in (points[start : start + size] for start in range(0, len(points), size))
        ]

    def _log_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        from mlflow.entities import RunTag

        items = [RunTag(name, value) for name, value in tags.items()]
        for start in range(0, len(items), MAX_TAGS):
            self.client.log_batch(run_id, tags=items[start : start + MAX_TAGS])


def age(run: "Run") -> tuple[int, str]:
    """Sorts the runs of a trial: the first is the one that counts."""
    return (run.info.start_time, run.info.run_id)


def _metrics(values: Mapping[str, float], time_ms: int, step: int) -> list["Metric"]:
    from mlflow.entities import Metric

    return [Metric(name, float(value), int(time_ms), int(step)) for name, value in values.items()]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"  # a container without an entry for this user id
