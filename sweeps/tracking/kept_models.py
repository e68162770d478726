"""The trials whose weights a sweep keeps, as models that MLflow links with their runs. The weights
themselves stay in the sweep's storage: `export --register` registers a model that MLflow can
load."""

import logging
import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.plan.secrets import redact_text
from sweeps.tracking.client import artifact_root, connect, ensure_experiment, every_page
from sweeps.tracking.mlflow_writer import RunWriter, age
from sweeps.tracking.uri import NONE

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel, Metric, Run

_log = logging.getLogger("sweeps.tracking")
_KEY, _NOTE = "rank.trial_key", "mlflow.note.content"
SPLITS = {"test/": "test", "best/dev_": "dev"}
"""{beginning of a final measure's name: its split}"""
_SIGNS = re.compile(r"[/:.%\"']")  # not allowed in the name of a model


def log_models(
    tracking_uri: str, experiment: str, kept: Mapping[str, Iterable[str]], storage: str
) -> int:
    """Writes a model for each trial of `kept` ({trial: names of its swept settings}) whose run is
    in `experiment`, and deletes those of trials whose weights are gone; returns the number of
    models. A complete model needs no request. An unavailable store causes a warning.
    """
    if tracking_uri == NONE:
        return 0
    number = 0
    try:
        client = connect(tracking_uri)
        experiment_id = ensure_experiment(
            client, experiment, artifact_root(tracking_uri, Path.cwd())
        )
        models = every_page(partial(client.search_logged_models, [experiment_id]))
        existing = {model.tags[_KEY]: model for model in models if _KEY in model.tags}  # ours
        runs = _runs(client, experiment_id) if kept or existing else {}
        prefix = experiment.rpartition("/")[2]
        for trial, swept in kept.items():
            key = f"{prefix}/{trial}"
            run = runs.get(key)
            if run and run.info.status == "FINISHED":
                model = existing.get(key) or _create(client, run, trial, swept, storage)
                if str(model.status) != "READY":
                    _complete(client, run, model)
                number += 1
        for key, model in existing.items():
            if key.removeprefix(f"{prefix}/") not in kept:
                client.delete_logged_model(model.model_id)
    except Exception as error:
        _log.warning(
            "MLflow has %d of %d models of this sweep (%s); the same command again writes the rest",
            number,
            len(kept),
            redact_text(str(error))[:300],
        )
    return number


def _runs(client: "MlflowClient", experiment_id: str) -> dict[str, "Run"]:
    """{trial key: its run}, of duplicates the oldest."""
    runs = sorted(RunWriter(client, experiment_id, Path()).all_runs(), key=age, reverse=True)
    return {run.data.tags[_KEY]: run for run in runs if _KEY in run.data.tags}


def _create(
    client: "MlflowClient", run: "Run", trial: str, swept: Iterable[str], storage: str
) -> "LoggedModel":
    params, tags = run.data.params, run.data.tags
    cell = trial.rpartition("-seed")[0]
    register = f"ranksweep export {storage} --cell {cell} --to FOLDER --register NAME"
    note = f"The weights are in {storage}/runs/{trial}. A model that MLflow loads: `{register}`"
    return client.create_logged_model(
        run.info.experiment_id,
        name=_SIGNS.sub("-", tags.get(_NOTE) or trial),
        source_run_id=run.info.run_id,
        tags={
            _KEY: tags[_KEY],
            _NOTE: redact_text(note),
            "mlflow.model.isExternal": "true",  # as `mlflow.create_external_model` sets
        },
        params={name: params[name] for name in swept if name in params},
        model_type=params.get("model.name"),
    )


def _complete(client: "MlflowClient", run: "Run", model: "LoggedModel") -> None:
    """Links the model with its run and its measures. Last it becomes READY, so that the next
    command completes an interrupted one."""
    from mlflow.entities import LoggedModelOutput

    linked = run.outputs.model_outputs if run.outputs else []
    if model.model_id not in {output.model_id for output in linked}:
        client.log_outputs(run.info.run_id, [LoggedModelOutput(model.model_id, step=0)])
    client.log_batch(run.info.run_id, metrics=_finals(run, model.model_id))
    client.finalize_logged_model(model.model_id, "READY")


def _finals(run: "Run", model_id: str) -> "list[Metric]":
    """The run's measures as the model's, on their split. They have the times of the run's points,
    so no point is repeated."""
    from mlflow.entities import Metric

    inputs = run.inputs.dataset_inputs if run.inputs else []
    data = {tag.value: item.dataset for item in inputs for tag in item.tags}
    finals = []
    for name, value in run.data.metrics.items():
        split = next((split for start, split in SPLITS.items() if name.startswith(start)), None)
        if split:
            finals.append(
                Metric(
                    name,
                    value,
                    run.info.end_time,
                    0,
                    model_id=model_id,
                    dataset_name=data[split].name if split in data else None,
                    dataset_digest=data[split].digest if split in data else None,
                )
            )
    return finals
