"""Per-query tables among the artifacts of MLflow runs."""

import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from rank_core.errors import BadInput, unknown
from sweeps.plan.secrets import redact_text
from sweeps.store.storage import reason
from sweeps.tracking.client import connect, every_page
from sweeps.tracking.uri import check_tracking_uri, sqlite_file

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

EXPERIMENT, RUN = "mlflow:", "runs:/"
TABLES = tuple(
    f"{folder}per_query.{kind}" for folder in ("eval/", "") for kind in ("parquet", "json", "csv")
)
"""The possible paths of a run's table, unless its path follows the run's id."""


def is_mlflow(source: str) -> bool:
    """True for `mlflow:EXPERIMENT`, `runs:/ID` and `runs:/ID/path/of/the/table.csv`."""
    return source.startswith((EXPERIMENT, RUN))


def run_tables(
    source: str, tracking_uri: str | None, folder: Path
) -> Iterator[tuple[str, Path, str]]:
    """(place, downloaded table, system) of all finished runs of an experiment that have a table,
    oldest first, or of one run. Runs whose names differ only in a number at the end (`#2`) are of
    one system."""
    uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI", "")
    if not uri:
        raise BadInput(f"{source} needs --tracking-uri, or MLFLOW_TRACKING_URI")
    check_tracking_uri(uri)
    if uri.startswith("sqlite:") and not sqlite_file(uri).is_file():
        raise BadInput(f"--tracking-uri must name a database, {redact_text(uri)} does not exist")
    try:
        client = connect(uri)
        if source.startswith(RUN):
            run_id, _, artifact = source.removeprefix(RUN).partition("/")
            run = client.get_run(run_id)
            if not (artifact := artifact or _table_of(client, run)):
                raise BadInput(
                    f"{source} has no {', '.join(TABLES)}; name its table: {source}/PATH"
                )
            yield _downloaded(client, run, artifact, folder)
            return
        yield from _of_experiment(client, source.removeprefix(EXPERIMENT), folder)
    except BadInput:
        raise
    except Exception as error:  # MLflow, its database and the network have many kinds
        raise BadInput(
            f"{source}: MLflow does not have it or does not answer: {reason(error)}"
        ) from None


def _of_experiment(
    client: "MlflowClient", name: str, folder: Path
) -> Iterator[tuple[str, Path, str]]:
    experiment, system = client.get_experiment_by_name(name), ""
    if experiment is None and ":" in name:
        base, _, system = name.rpartition(":")
        experiment = client.get_experiment_by_name(base)
    if experiment is None:
        known = [experiment.name for experiment in client.search_experiments()]
        raise unknown("experiment", name, known)
    systems: set[str] = set()
    finished = partial(
        client.search_runs,
        [experiment.experiment_id],
        filter_string="attributes.status = 'FINISHED'",
        order_by=["attributes.start_time"],
    )
    for run in every_page(finished):
        if artifact := _table_of(client, run):
            systems.add(_system_of(run))
            if system in ("", _system_of(run)):
                yield _downloaded(client, run, artifact, folder)
    if not systems:
        raise BadInput(f"{EXPERIMENT}{name}: none of its finished runs has {', '.join(TABLES)}")
    if system and system not in systems:
        raise unknown(f"system of {EXPERIMENT}{experiment.name}", system, systems)


def _system_of(run: "Run") -> str:
    name = run.data.tags.get("config.id") or re.sub(r"\s*#\d+$", "", run.info.run_name or "")
    return name or str(run.info.run_id)


def _table_of(client: "MlflowClient", run: "Run") -> str:
    """The path of a run's table; "" where it has none."""
    folders = {str(PurePosixPath(name).parent) for name in TABLES}
    paths = {
        artifact.path
        for folder in folders
        for artifact in client.list_artifacts(run.info.run_id, None if folder == "." else folder)
    }
    return next((name for name in TABLES if name in paths), "")


def _downloaded(
    client: "MlflowClient", run: "Run", artifact: str, folder: Path
) -> tuple[str, Path, str]:
    own = folder / run.info.run_id
    own.mkdir(exist_ok=True)
    path = Path(client.download_artifacts(run.info.run_id, artifact, str(own)))
    return f"{RUN}{run.info.run_id}/{artifact}", path, _system_of(run)
