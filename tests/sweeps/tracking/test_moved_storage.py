"""A storage that was moved or copied: its experiment goes on, with its artifacts."""

import shutil
from pathlib import Path

import pytest

from sweeps.launch.sweep import _experiment, _with_secrets
from sweeps.store.records import Records
from sweeps.store.storage import Storage
from sweeps.tracking.client import connect, default_tracking_uri, reason_of
from sweeps.tracking.thread import sync
from tests.sweeps.tracking.made_sweep import MadeSweep


@pytest.mark.parametrize("how", [shutil.copytree, shutil.move])
def test_a_copy_made_while_a_trial_runs_ends_its_run_in_the_same_experiment(how, tmp_path):
    sweep = MadeSweep(tmp_path / "a")
    name = f"ws-woods-{sweep.records.identity}"
    sweep.describe(experiment=name)
    sweep.whole("c1-seed1")
    sweep.begin("c1-seed2")
    uri = default_tracking_uri(sweep.records)
    sync(sweep.records, uri, name)  # as its driver does: the second run is RUNNING
    other = tmp_path / "b" / "results"
    other.parent.mkdir()
    how(tmp_path / "a" / "results", other)
    moved = Records(Storage(str(other)), "ws/woods")
    uri = default_tracking_uri(moved)
    assert moved.identity != sweep.records.identity
    assert _experiment(moved, "", uri) == name, "one experiment"
    assert _experiment(moved, "team", uri) != name, "another prefix was asked for"
    assert _experiment(moved, "", "http://server") != name, "a server tells storages apart"
    sync(moved, uri, name)
    client = connect(uri)
    [experiment] = [one for one in client.search_experiments() if one.name != "Default"]
    runs = client.search_runs([experiment.experiment_id])
    assert sorted(run.info.status for run in runs) == ["FINISHED", "KILLED"]
    places = [experiment.artifact_location, *(run.info.artifact_uri for run in runs)]
    assert all(place.startswith((other / "artifacts").as_uri()) for place in places)
    [done] = [run for run in runs if run.info.status == "FINISHED"]
    copy = Path(client.download_artifacts(done.info.run_id, "config", str(tmp_path)))
    assert list(copy.iterdir())


def test_sync_is_advised_with_the_uri_that_it_needs():
    assert _with_secrets("sqlite:////s/mlflow.db") == []
    flag, uri = _with_secrets("postgresql://me:secret-word@h/db")
    assert flag == "--tracking-uri" and "secret-word" not in uri and uri.endswith("@h/db")


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("Can't locate revision identified by 'abc'", "schema of another program"),
        ("(sqlite3.DatabaseError) file is not a database\n[SQL: PRAGMA", "no SQLite database"),
        ("API request to endpoint failed with error code 401 != 200", "a user and a password"),
        ("Expecting value: line 1 column 1 (char 0)", "not as an MLflow server"),
        ("something else", "something else"),
    ],
)
def test_what_mlflow_says_is_said_in_plain_words(said, meant):
    assert meant in reason_of(RuntimeError(said))
