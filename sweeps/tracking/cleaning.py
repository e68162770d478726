"""The runs in a storage's own MLflow database whose trials were removed."""

import shutil
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

from sweeps.store.records import TRIALS
from sweeps.store.storage import Storage
from sweeps.store.sweep_file import FIRST_STAGE
from sweeps.tracking.client import EXPERIMENT, connect, every_page, shown_name, sqlite_uri
from sweeps.tracking.experiment_runs import GROUP_RUN, KEY
from sweeps.tracking.view import REPORT

OWN = (REPORT, FIRST_STAGE)  # runs that are not trials


class Leftover(NamedTuple):
    """A run without its trial."""

    run_id: str
    name: str
    artifacts: Path
    num_bytes: int


def own_database(storage: Storage) -> str:
    """The URI of the database in a storage; "" where it has none."""
    file = Path(storage.root, "mlflow.db")
    return sqlite_uri(file) if storage.is_local and file.is_file() else ""


def leftovers(storage: Storage, without: Collection[str] = ()) -> list[Leftover]:
    """The runs of trials that the storage no longer has, or will lack without some."""
    if not (uri := own_database(storage)):
        return []
    client, found = connect(uri), list[Leftover]()
    there = {*storage.folders(TRIALS)} - {*without}
    for experiment in every_page(client.search_experiments):
        if EXPERIMENT not in experiment.tags:
            continue  # a user's own
        search = partial(client.search_runs, [experiment.experiment_id], max_results=1000)
        for run in every_page(search):
            trial = run.data.tags.get(KEY, "").rpartition("/")[2]
            kept = trial in OWN or trial in there or trial.startswith(GROUP_RUN)
            if trial and not kept:
                folder = Path(url2pathname(urlsplit(run.info.artifact_uri).path)).parent
                size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
                found.append(Leftover(run.info.run_id, run.info.run_name, folder, size))
    return found


def remove_leftovers(storage: Storage) -> int:
    """Moves the runs of removed trials to MLflow's trash and removes their artifacts; returns
    their number."""
    client, root = connect(own_database(storage)), Path(storage.root, "artifacts")
    found = leftovers(storage)
    for run in found:
        client.delete_run(run.run_id)
        if run.artifacts.is_relative_to(root) and run.artifacts != root:
            shutil.rmtree(run.artifacts, ignore_errors=True)
    return len(found)


def forget_sweep(storage: Storage, sweep: str) -> None:
    """Moves the experiment of a removed sweep to MLflow's trash, under a name that leaves its own
    to a new one, and removes its artifacts."""
    if not (uri := own_database(storage)):
        return
    client = connect(uri)
    name = sweep.replace("/", "-")
    for experiment in every_page(client.search_experiments):
        identity = experiment.tags.get(EXPERIMENT, "")
        if shown_name(identity).rpartition("/")[2] == name:
            number = experiment.experiment_id
            client.set_experiment_tag(number, EXPERIMENT, f"removed {number}: {identity}")
            client.rename_experiment(number, f"{experiment.name} (removed, {number})")
            client.delete_experiment(number)
            folder = Path(url2pathname(urlsplit(experiment.artifact_location).path))
            if folder.is_relative_to(Path(storage.root, "artifacts")):
                shutil.rmtree(folder, ignore_errors=True)
