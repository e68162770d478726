"""The report's files (page, tables, plots) as artifacts of one run in an experiment of its own.

Neither the trials' experiment nor the summary may hold it: there a row is a trial, or a
configuration, and a run that is neither would be drawn and averaged with them.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.tracking.client import ensure_experiment
from sweeps.tracking.projection import age
from sweeps.tracking.views import EXPERIMENT_TAGS

if TYPE_CHECKING:
    from mlflow import MlflowClient

MAX_NOTE = 8000  # characters that MLflow keeps of a tag


def log_report(
    client: "MlflowClient", experiment: str, artifacts: Path | None, folder: Path
) -> None:
    """Write the files below `folder` to the run of `experiment`; files of the same name are
    replaced. The table is the run's description."""
    experiment_id = ensure_experiment(client, experiment, artifacts)
    for name, value in EXPERIMENT_TAGS.items():
        client.set_experiment_tag(experiment_id, name, value)
    runs = client.search_runs([experiment_id])
    run = min(runs, key=age) if runs else client.create_run(experiment_id, run_name="report")
    client.log_artifacts(run.info.run_id, str(folder), "report")
    table = folder / "table.md"
    if table.exists() and len(text := table.read_text(encoding="utf-8")) <= MAX_NOTE:
        client.set_tag(run.info.run_id, "mlflow.note.content", text)
    if run.info.status != "FINISHED":
        client.set_terminated(run.info.run_id, "FINISHED")
