"""Trials that keep their weights, as models that MLflow links with their runs."""

import logging
import sqlite3

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from sweeps.tracking.client import connect
from sweeps.tracking.kept_models import log_models
from sweeps.tracking.uploader import Uploader
from tests.sweeps.made_log import MadeLog

SWEPT = ("model.name", "chunking.window", "chunking.stride")
TABLES = ("metrics", "latest_metrics", "inputs", "logged_models", "logged_model_metrics")


@pytest.fixture
def uri(uri, tmp_path) -> str:
    """A database with the runs of four trials, of which the last has failed."""
    log = MadeLog(tmp_path / "ws")
    data = {"name": "woods", "hash": "a" * 16, "documents": 9, "queries": {"dev": 2, "test": 3}}
    for seed in (1, 2, 3):
        log.whole(f"a.b:C-seed{seed}", data=data, swept={"chunking.window": 48})
    log.whole("a.b:C-seed4", status="failed")
    uploader = Uploader(log.folder, uri, "team/ws")
    uploader.start()
    assert uploader.close(30) == 0
    return uri


def _stored(uri: str) -> dict[str, list]:
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        return {
            table: sorted(database.execute(f"SELECT * FROM {table}").fetchall(), key=repr)
            for table in TABLES
        }


def _models(uri: str) -> dict:
    client = connect(uri)
    experiment = client.get_experiment_by_name("team/ws")
    models = client.search_logged_models([experiment.experiment_id])
    return {model.tags["rank.trial_key"].rpartition("-")[2]: model for model in models}


def _outputs(uri: str) -> dict[str, list[str]]:
    client = connect(uri)
    experiment = client.get_experiment_by_name("team/ws")
    return {
        run.info.run_name: [output.model_id for output in run.outputs.model_outputs]
        for run in client.search_runs([experiment.experiment_id])
        if run.outputs
    }


def _log(uri: str, *seeds: int) -> int:
    kept = {f"a.b:C-seed{seed}": SWEPT for seed in seeds}
    return log_models(uri, "team/ws", kept, "s3://bucket/results/ws/woods")


def test_a_trial_with_weights_has_a_model_with_its_measures_beside_its_run(uri):
    before = _stored(uri)
    assert _log(uri, 1, 3, 4) == 2, "a trial that failed has no model"
    models = _models(uri)
    assert set(models) == {"seed1", "seed3"}
    model = models["seed3"]
    assert (str(model.status), model.model_type) == ("READY", "maxp")
    assert model.params == {"model.name": "maxp", "chunking.window": "48"}
    storage = "s3://bucket/results/ws/woods"
    note = model.tags["mlflow.note.content"]
    assert f"{storage}/runs/a.b:C-seed3" in note and f"export {storage} --cell a.b:C " in note
    assert {metric.key: metric.value for metric in model.metrics}["test/p_5"] == 0.5
    assert {metric.key: metric.dataset_digest for metric in model.metrics} == {
        "test/p_5": "test-" + "a" * 16,
        "best/dev_p_5": "dev-" + "a" * 16,
    }
    assert _outputs(uri)["a.b:C #3"] == [model.model_id]
    after = _stored(uri)
    assert after["metrics"] == before["metrics"], "no point of a run is written twice"


def test_again_changes_nothing_and_writes_nothing(uri, monkeypatch):
    _log(uri, 1, 3)
    before, requests = _stored(uri), []
    for name in ("create_logged_model", "log_outputs", "log_batch", "finalize_logged_model"):
        monkeypatch.setattr(MlflowClient, name, lambda *given, **more: requests.append(given))
    assert _log(uri, 1, 3) == 2
    assert requests == [] and _stored(uri) == before


@pytest.mark.parametrize("broken", ["log_outputs", "log_batch", "finalize_logged_model"])
def test_what_a_killed_command_left_is_completed_and_not_repeated(uri, broken, monkeypatch, caplog):
    def refuse(*given, **more):
        raise MlflowException("down")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "sweeps.tracking"):
        patch.setattr(MlflowClient, broken, refuse)
        assert _log(uri, 1) == 0
    assert "0 of 1 models" in caplog.text
    assert _log(uri, 1) == 1
    [model] = _models(uri).values()
    assert str(model.status) == "READY" and _outputs(uri)["a.b:C #1"] == [model.model_id]


def test_a_model_goes_with_its_weights_and_others_models_stay(uri):
    client = connect(uri)
    experiment = client.get_experiment_by_name("team/ws")
    client.create_logged_model(experiment.experiment_id, name="theirs")
    _log(uri, 1)
    assert _log(uri, 2) == 1
    found = client.search_logged_models([experiment.experiment_id])
    assert sorted(model.name for model in found) == ["a-b-C, seed 2", "theirs"]


def test_a_store_that_is_away_costs_a_warning(caplog):
    with caplog.at_level(logging.WARNING, "sweeps.tracking"):
        assert _log("http://127.0.0.1:9", 1) == 0
    assert "0 of 1 models" in caplog.text
    assert _log("none", 1) == 0
