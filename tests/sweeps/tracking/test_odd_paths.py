"""A storage at any path: its database and artifacts are in it, and nothing is beside it."""

from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from sweeps.tracking.client import (
    connect,
    create_database,
    default_tracking_uri,
    find_experiment,
    mlflow_uri,
    sqlite_file,
    sqlite_uri,
)
from sweeps.tracking.thread import sync
from tests.sweeps.tracking.made_sweep import EXPERIMENT, MadeSweep

ODD = ["a?b", "a%41", "a%20b", "a#b", "a b", "100%", "a&b=c;d", "a+b", "a'b\"c", "\u00fc\u20ac",
       "a?timeout=1", "%", "a@b", "[a]", "~a", "a\\b"]  # fmt: skip


@pytest.fixture
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("name", ODD)
def test_a_path_and_its_uri_are_the_same_file(name, tmp_path):
    sweep = MadeSweep(tmp_path / name)
    folder = Path(sweep.records.storage.root)
    assert folder == tmp_path / name / "results"
    uri = default_tracking_uri(sweep.records)
    assert sqlite_file(uri) == folder / "mlflow.db"
    create_database(uri)
    with create_engine(mlflow_uri(uri)).connect() as opened:
        [(*_, file)] = opened.execute(text("PRAGMA database_list"))
    assert file == str(folder / "mlflow.db")


@pytest.mark.parametrize("name", ["a?b", "a%41", "a%20b #c"])
def test_runs_and_artifacts_of_a_sweep_are_in_its_storage_alone(name, tmp_path, _elsewhere):
    sweep = MadeSweep(tmp_path / name)
    sweep.whole("c1-seed1")
    uri = default_tracking_uri(sweep.records)
    assert sync(sweep.reader, uri, EXPERIMENT) == 1
    client = connect(uri)
    experiment = find_experiment(client, EXPERIMENT)
    [run] = client.search_runs([experiment.experiment_id])
    assert {file.path for file in client.list_artifacts(run.info.run_id)} >= {"config", "eval"}
    assert list((tmp_path / name / "results" / "artifacts").rglob("config.json"))
    assert {path.name for path in tmp_path.iterdir()} == {name, _elsewhere.name}
    assert not list(_elsewhere.iterdir())


@pytest.mark.slow
def test_a_database_whose_making_was_interrupted_is_made_again(tmp_path):
    from mlflow.store.tracking.dbmodels.initial_models import Base

    uri = sqlite_uri(tmp_path / "mlflow.db")
    engine = create_engine(uri)
    Base.metadata.create_all(engine)
    with engine.begin() as opened:  # half of a step
        opened.execute(text("CREATE TABLE registered_models (name TEXT)"))
    assert connect(uri).search_experiments()
