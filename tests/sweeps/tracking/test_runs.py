"""The runs of a sweep in MLflow: each trial has one, with everything in it, however often it is
sent."""

import json
import logging
import sqlite3

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from rank_core.errors import BadInput
from sweeps.tracking.client import connect, ensure_experiment, find_experiment
from sweeps.tracking.thread import sync
from tests.sweeps.tracking.made_sweep import BEGAN, EXPERIMENT, SHOWN, MadeSweep, report

TABLES = ("runs", "metrics", "latest_metrics", "params", "tags", "datasets", "inputs", "input_tags")
TABLES += ("experiments", "experiment_tags")


@pytest.fixture
def sweep(tmp_path) -> MadeSweep:
    return MadeSweep(tmp_path)


@pytest.fixture
def send(sweep, uri):
    """Sends the sweep; returns {name of a run: run}."""

    def send(number: int | None = None) -> dict:
        sent = sync(sweep.reader, uri, EXPERIMENT)
        assert number in (None, sent)
        return runs_in(uri)

    return send


def runs_in(uri: str) -> dict:
    client = connect(uri)
    found = client.search_runs([find_experiment(client, EXPERIMENT).experiment_id])
    assert len({run.info.run_name for run in found}) == len(found), "one run per trial"
    return {run.info.run_name: run for run in found}


def stored(uri: str) -> dict[str, list]:
    """Every row that sending writes."""
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        return {
            table: sorted(database.execute(f"SELECT * FROM {table}").fetchall(), key=repr)
            for table in TABLES
        }


def losses(uri: str, run) -> list[tuple[int, float]]:
    points = connect(uri).get_metric_history(run.info.run_id, "train/loss")
    return sorted((point.step, point.value) for point in points)


def test_a_trial_arrives_as_one_run_with_everything_in_it(sweep, send, uri):
    sweep.whole("c2-seed1")
    run = send(1)["MaxP 48/32 #1"]
    assert run.info.status == "FINISHED" and run.info.end_time > 0
    assert run.data.params["chunking.window"] == "96" and run.data.params["seed"] == "1"
    assert run.data.metrics["test/p_5"] == 0.5 and run.data.metrics["hp/window"] == 96
    assert run.data.tags["rank.trial_key"] == "ws-woods-0a1b2c/c2-seed1"
    assert run.data.tags["mlflow.source.name"] == "/here/ws.py"
    client = connect(uri)
    points = client.get_metric_history(run.info.run_id, "train/loss")
    assert [(p.step, p.timestamp - 1000 * BEGAN) for p in points] == [(1, 1), (2, 2), (3, 3)]
    [table] = json.loads(run.data.tags["mlflow.loggedArtifacts"])
    assert table == {"path": "eval/per_query.json", "type": "table"}
    paths = {
        item.path
        for folder in ("eval", "config")
        for item in client.list_artifacts(run.info.run_id, folder)
    }
    assert paths == {"eval/per_query.json", "eval/per_query.parquet", "config/config.json"}
    data = {(item.tags[0].value, item.dataset.digest) for item in run.inputs.dataset_inputs}
    assert data == {(split, f"{split}-{'a' * 16}") for split in ("train", "dev", "test")}


def test_sending_everything_again_changes_nothing(sweep, send, uri):
    sweep.whole("c1-seed1", "c2-seed1")
    sweep.begin("c1-seed2")
    sweep.end("c1-seed2")
    send(3)
    before = stored(uri)
    send(0)
    assert stored(uri) == before
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        database.execute("UPDATE runs SET status = 'RUNNING'")  # as a killed driver leaves them
    send(3)
    assert stored(uri) == before


def test_a_trial_that_runs_again_keeps_its_run_and_the_first_value_of_a_step(sweep, send, uri):
    """A resumed attempt repeats the steps since its checkpoint with other times."""
    sweep.begin()
    sweep.records.progress("c1-seed1", report(2, dev={"P@5": 0.1}, loss=0.5))
    run = send(1)["FirstP 48 #1"]
    assert run.info.status == "KILLED", "its driver is not here"
    sweep.end(status="failed")
    assert send(1)["FirstP 48 #1"].info.status == "FAILED"
    curve = [report(step, 4, loss=7.0, seconds=BEGAN + 9) for step in (1, 2, 3, 4)]
    curve[0]["dev"] = {"P@5": 0.1}  # the latest in the progress of step 2
    sweep.publish(sweep.begin(), reports=curve)
    again = send(1)["FirstP 48 #1"]
    assert (again.info.run_id, again.info.status) == (run.info.run_id, "FINISHED")
    assert losses(uri, again) == [(2, 0.5), (3, 7.0), (4, 7.0)]
    dev = connect(uri).get_metric_history(run.info.run_id, "dev/p_5")
    assert [point.step for point in dev] == [1]
    assert again.data.tags["attempts"] == "2" and again.data.tags["host"] == "node-1"


def test_of_two_runs_of_a_trial_the_oldest_counts(sweep, send, uri):
    """The second was made when the answer to the creation of the first was lost."""
    sweep.whole("c1-seed1")
    run = send(1)["FirstP 48 #1"]
    client, tags = connect(uri), {"rank.trial_key": run.data.tags["rank.trial_key"]}
    own = client.create_run(run.info.experiment_id, run_name="a user's own")
    for later in (1, 2):
        client.create_run(run.info.experiment_id, run.info.start_time + later, tags)
    assert set(send(0)) == {"FirstP 48 #1", own.info.run_name}
    assert runs_in(uri)["FirstP 48 #1"].info.run_id == run.info.run_id


def test_numbers_that_are_not_finite_are_left_out(sweep, send):
    """A step of fp16 whose gradients overflow is no divergence."""
    points = [report(step, 3, loss=1.0, gradient_norm=float("inf")) for step in (1, 2, 3)]
    sweep.publish(sweep.begin(), reports=points)
    run = send(1)["FirstP 48 #1"]
    assert "train/gradient_norm" not in run.data.metrics and run.data.metrics["train/loss"] == 1
    assert "diverged" not in run.data.tags


def test_what_mlflow_refuses_costs_a_line_and_the_rest_arrives(sweep, send, monkeypatch, caplog):
    """A file that is damaged, and a request that it cannot take."""
    sweep.whole("c1-seed1", "c1-seed2")
    table = sweep.records.storage.root + "/trials/c1-seed1/per_query.parquet"
    with open(table, "ab") as file:
        file.write(b"x")

    def refuse(*_, **__):
        raise MlflowException("no such data\nand more", 1000)

    monkeypatch.setattr(MlflowClient, "log_inputs", refuse)
    with caplog.at_level(logging.WARNING, "sweeps.tracking"):
        runs = send(2)
    assert {run.info.status for run in runs.values()} == {"FINISHED"} and len(runs) == 2
    refused, damaged = (record.message for record in caplog.records)
    assert "no such data" in refused and "and more" not in refused
    assert "c1-seed1" in damaged and "per_query.parquet" in damaged


def test_the_experiment_shows_the_answer_and_the_report(sweep, send, uri):
    def note() -> str:
        return find_experiment(connect(uri), EXPERIMENT).tags["mlflow.note.content"]

    sweep.whole("c1-seed1")
    send(1)
    assert note().startswith("Question: Which window?") and "No answer yet" in note()
    answer = "On P@5, 48/32 is better."
    files = {"results.json": json.dumps({"conclusions": [answer]}), "table.md": "| a | b |"}
    for name, text in (files | {"plots/forest.svg": "<svg/>"}).items():
        sweep.records.write_file(f"report/{name}", text.encode())
    run = send(0)["report"]
    assert note().startswith(f"{answer}\n\nQuestion: Which window?") and "| a | b |" in note()
    client = connect(uri)
    assert f"/runs/{run.info.run_id}/artifacts" in note() and run.info.status == "FINISHED"
    plots = client.list_artifacts(run.info.run_id, "report/plots")
    assert [item.path for item in plots] == ["report/plots/forest.svg"]
    assert "config.id" not in run.data.tags, "or the view would show it"
    before = stored(uri)
    send(0)
    assert stored(uri) == before
    experiment = find_experiment(client, EXPERIMENT).experiment_id
    client.set_experiment_tag(experiment, "mlflow.note.content", "See the wiki.")
    sweep.records.write_file("report/table.md", b"| c |")
    send(0)
    assert note() == "See the wiki."


def test_an_experiment_has_the_name_of_its_sweep_unless_another_has_it(uri):
    client = connect(uri)
    first = ensure_experiment(client, EXPERIMENT, None)
    assert client.get_experiment(first).name == SHOWN
    client.rename_experiment(first, "the paper's")
    assert ensure_experiment(client, EXPERIMENT, None) == first, "found by its tag"
    client.rename_experiment(first, SHOWN)
    other = ensure_experiment(client, f"{SHOWN}-ffffff", None)
    assert client.get_experiment(other).name == f"{SHOWN}-ffffff"
    client.delete_experiment(first)
    with pytest.raises(BadInput, match=SHOWN):
        ensure_experiment(client, EXPERIMENT, None)


def test_sync_refuses_a_place_that_does_not_answer(sweep, tmp_path):
    sweep.whole("c1-seed1")
    (tmp_path / "garbage.db").write_text("no database\n" * 100)
    for uri in ("none", "http://127.0.0.1:9", f"sqlite:///{tmp_path}/garbage.db"):
        with pytest.raises(BadInput, match=uri):
            sync(sweep.reader, uri, EXPERIMENT)
