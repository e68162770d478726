"""After a crash: no run stays RUNNING for ever, no trial has two runs that look alike."""

import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.tracking.projection import Projection, age
from sweeps.tracking.trial_file import file_name, read_lines
from sweeps.tracking.writer import is_alive

if TYPE_CHECKING:
    from mlflow.entities import Run


def reconcile(projection: Projection, folder: Path) -> None:
    """Tag duplicates and end the runs whose driver is gone; call it with the outbox uploaded."""
    runs_of_key: dict[str, list[Run]] = defaultdict(list)
    for run in _all_runs(projection):
        key = run.data.tags.get("rank.trial_key")
        if key:
            runs_of_key[key].append(run)
    for key, runs in runs_of_key.items():
        first, *others = sorted(runs, key=age)
        for other in others:
            if other.data.tags.get("rank.duplicate_of") != first.info.run_id:
                projection.client.set_tag(other.info.run_id, "rank.duplicate_of", first.info.run_id)
            if other.info.status == "RUNNING":
                projection.end(other.info.run_id, "KILLED", _now())
        if first.info.status == "RUNNING":
            status = recorded_status(folder / file_name(key))
            if status != "RUNNING":
                projection.end(first.info.run_id, status, _now())


def recorded_status(path: Path) -> str:
    """What the outbox says of a trial: an open attempt is RUNNING only while its driver lives."""
    status = "KILLED"
    if path.exists():
        for line in read_lines(path):
            record = line.record
            if record is None:
                continue
            if record["kind"] in ("trial", "attempt"):
                status = "RUNNING" if is_alive(record["writer"]) else "KILLED"
            elif record["kind"] == "finish":
                status = record["status"]
    return status


def _all_runs(projection: Projection) -> Iterator["Run"]:
    page = None
    while True:
        found = projection.client.search_runs(
            [projection.experiment_id], max_results=1000, page_token=page
        )
        yield from found
        page = found.token
        if not page:
            return


def _now() -> int:
    return time.time_ns() // 1_000_000
