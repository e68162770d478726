"""The thread of a driver that writes MLflow: what it sends, and what it says of an outage."""

import logging
import sqlite3
import threading
import time
from contextlib import suppress

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from sweeps.tracking import experiment_runs
from sweeps.tracking import thread as threads
from sweeps.tracking.client import create_database, default_tracking_uri
from sweeps.tracking.runs import Runs
from sweeps.tracking.thread import MlflowThread, sync
from tests.sweeps.tracking.made_sweep import EXPERIMENT, MadeSweep, report
from tests.sweeps.tracking.test_runs import losses, runs_in


@pytest.fixture
def sweep(tmp_path) -> MadeSweep:
    return MadeSweep(tmp_path)


@pytest.fixture
def mlflow(sweep, uri) -> MlflowThread:
    return MlflowThread(sweep.records, uri, EXPERIMENT)


def wait_for(condition, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_sweep_arrives_while_it_runs(sweep, mlflow, uri):
    """With the trials of earlier commands."""
    sweep.whole("c2-seed1")
    mlflow.start()
    mlflow.changed(sweep.begin())
    mlflow.reported("c1-seed1", report(1, loss=1.0))
    wait_for(lambda: mlflow._ever and len(runs_in(uri)) == 2)
    run = runs_in(uri)["FirstP 48 #1"]
    wait_for(lambda: losses(uri, run) == [(1, 1.0)])
    assert runs_in(uri)["FirstP 48 #1"].info.status == "RUNNING"
    sweep.publish()
    mlflow.changed("c1-seed1")
    mlflow.changed(sweep.begin("c1-seed2"))
    sweep.end("c1-seed2")
    mlflow.changed("c1-seed2")
    sweep.records.write_file("report/results.json", b'{"conclusions": ["Yes."]}')
    assert mlflow.close(30) == ""
    runs = runs_in(uri)
    assert {name: run.info.status for name, run in runs.items()} == {
        "FirstP 48 #1": "FINISHED",
        "FirstP 48 #2": "FAILED",
        "MaxP 48/32 #1": "FINISHED",
        "report": "FINISHED",
    }
    assert [step for step, _ in losses(uri, run)] == [1, 2, 3]


def test_a_trial_of_a_killed_driver_is_taken_up_by_the_next_one(sweep, mlflow, uri):
    mlflow.start()
    mlflow.changed(sweep.begin())
    assert mlflow.close(30) == ""
    assert runs_in(uri)["FirstP 48 #1"].info.status == "RUNNING"
    sweep.records.command = "the next driver"
    again = MlflowThread(sweep.records, uri, EXPERIMENT)
    again.start()
    assert again.close(30) == ""
    assert runs_in(uri)["FirstP 48 #1"].info.status == "KILLED"


def test_a_storage_that_is_away_is_left_to_the_driver(sweep, mlflow, tmp_path, caplog):
    sweep.whole("c1-seed1")
    (tmp_path / "results").rename(tmp_path / "away")
    mlflow.start()
    mlflow.close(0.5)
    assert not (tmp_path / "results").exists()
    assert {record.name for record in caplog.records} <= {"sweeps.storage"}


@pytest.mark.parametrize("moment", ["connect", "follow_storage"])
def test_no_file_is_made_where_a_storage_was_a_moment_ago(moment, sweep, tmp_path, monkeypatch):
    """The folder goes away after the check of the storage, before a call that opens the database;
    at its place is then an empty one, as below a mount point."""
    sweep.whole("c1-seed1")
    uri = default_tracking_uri(sweep.records)
    create_database(uri)
    call = getattr(experiment_runs, moment)

    def gone(*args, **rest):
        (tmp_path / "results").rename(tmp_path / "away")
        (tmp_path / "results").mkdir()
        return call(*args, **rest)

    monkeypatch.setattr(experiment_runs, moment, gone)
    mlflow = MlflowThread(sweep.records, uri, EXPERIMENT)
    with suppress(Exception):  # whatever the thread would try again
        mlflow._pass()
    assert (tmp_path / "away").exists()
    assert not [path for path in (tmp_path / "results").rglob("*") if "artifacts" not in str(path)]


class Clock:
    """Time for the thread, whose passes are made here one after the other."""

    def __init__(self, mlflow: MlflowThread, monkeypatch) -> None:
        self.mlflow, self.now = mlflow, 1000.0
        monkeypatch.setattr(threads.time, "monotonic", lambda: self.now)

    def passes(self, *seconds: float) -> None:
        for second in seconds:
            self.now = 1000.0 + second
            try:
                self.mlflow._pass()
                self.mlflow._back()
            except Exception as error:
                self.mlflow._runs = None
                self.mlflow._away(error)


def test_a_trial_that_cannot_be_sent_holds_no_other_one_up(sweep, mlflow, uri, monkeypatch):
    sweep.whole("c1-seed1", "c1-seed2", "c2-seed1")
    create_run = MlflowClient.create_run

    def choke(self, *args, run_name, **rest):
        if run_name == "FirstP 48 #1":
            raise MlflowException("x failed with error code 503 != 200")
        return create_run(self, *args, run_name=run_name, **rest)

    monkeypatch.setattr(MlflowClient, "create_run", choke)
    Clock(mlflow, monkeypatch).passes(0, 1, 2)
    assert sorted(runs_in(uri)) == ["FirstP 48 #2", "MaxP 48/32 #1"]
    assert list(mlflow._reports) == ["c1-seed1"]


def test_a_locked_database_has_a_line_a_minute(sweep, uri, tmp_path, monkeypatch, caplog):
    sweep.whole("c1-seed1")
    mlflow = MlflowThread(sweep.records, f"{uri}?timeout=0.01", EXPERIMENT)
    clock = Clock(mlflow, monkeypatch)
    holder = sqlite3.connect(tmp_path / "mlflow.db")
    holder.execute("BEGIN EXCLUSIVE")
    with caplog.at_level(logging.WARNING, "sweeps.tracking"):
        clock.passes(0, 1, 2, 59, 61)
        assert "database is locked" in mlflow.trouble
        holder.rollback()
        holder.close()
        clock.passes(70)
    said = [record.message for record in caplog.records]
    assert ["now" in said[0], "1 min 1 s" in said[1], "back after" in said[2]] == [True] * 3
    assert len(said) == 3 and "Nothing is lost" in said[0] and not mlflow.trouble


@pytest.mark.parametrize(
    "uri, why",
    [
        ("http://127.0.0.1:9", "Connection refused"),
        ("sqlite:////proc/x.db", "No such file or directory"),
    ],
)
def test_why_mlflow_is_away_is_said_in_a_line(uri, why, sweep, monkeypatch, caplog):
    sweep.whole("c1-seed1", "c1-seed2")
    mlflow = MlflowThread(sweep.records, uri, EXPERIMENT)
    Clock(mlflow, monkeypatch).passes(0, 1, 2)
    [line] = [record.message for record in caplog.records]
    assert why in line and uri in line


def test_a_server_that_stays_away_lacks_every_trial(sweep):
    sweep.whole("c1-seed1", "c1-seed2")
    mlflow = MlflowThread(sweep.records, "http://127.0.0.1:9", EXPERIMENT)
    mlflow.start()
    assert mlflow.close(0.5) == "2 trials and the report"


@pytest.mark.parametrize(
    "slow, missing",
    [
        ("write", "1 trial and the report"),
        ("report", "1 trial and the report"),
        ("describe", "the report"),
    ],
)
def test_what_is_on_its_way_at_the_end_counts_as_missing_until_it_is_sent(
    slow, missing, sweep, mlflow, uri, monkeypatch
):
    """The last trial ends, and a request takes longer than the time that is left."""
    mlflow.start()
    wait_for(lambda: mlflow._ever)
    over = threading.Event()
    monkeypatch.setattr(Runs, slow, lambda *args, **rest: over.wait(60))
    if slow == "report":  # of a trial that runs
        sweep.begin()
        mlflow.reported("c1-seed1", report(1, loss=1.0))
    elif slow == "write":
        sweep.whole("c1-seed1")
        mlflow.changed("c1-seed1")
    assert mlflow.close(0.5) == missing
    monkeypatch.undo()
    over.set()
    sync(sweep.records, uri, EXPERIMENT)
    again = MlflowThread(sweep.records, uri, EXPERIMENT)
    again.start()
    assert again.close(30) == ""
