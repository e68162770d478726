import json
import logging
import shutil
import sqlite3
from pathlib import Path

import pandas as pd
import pytest

from rank_core.errors import BadInput
from sweeps.store.trial_events import CommandBegan, Reported, append_lines
from sweeps.tracking import upload
from sweeps.tracking.client import connect
from sweeps.tracking.cursor import Cursor, pending
from sweeps.tracking.summary import SummaryRow, log_summary
from sweeps.tracking.uploader import Uploader, sync
from tests.sweeps.made_log import MadeLog


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "ws"


@pytest.fixture
def log(folder) -> MadeLog:
    return MadeLog(folder)


def _upload(folder: Path, uri: str, timeout_s: float = 30) -> int:
    uploader = Uploader(folder, uri, "rank/ws")
    uploader.start()
    return uploader.close(timeout_s)


def _runs(uri: str) -> list:
    client = connect(uri)
    experiment = client.get_experiment_by_name("rank/ws")
    return client.search_runs([experiment.experiment_id])


def _stored(uri: str) -> dict[str, list]:
    """Every row of the tables that an upload writes."""
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        return {
            table: sorted(database.execute(f"SELECT * FROM {table}").fetchall(), key=repr)
            for table in ("runs", "metrics", "latest_metrics", "params", "tags", *INPUTS)
        }


INPUTS = ("datasets", "inputs", "input_tags")


def _forget(folder: Path) -> None:
    (folder / "mlflow" / "cursor.json").unlink()


def _letters(folder: Path) -> list[dict]:
    lines = (folder / "mlflow" / "refused.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def _leave(folder: Path, trial: str) -> None:
    """The files of a trial's folder."""
    (folder / "runs" / trial).mkdir(parents=True)
    (folder / "runs" / trial / "config.json").write_text("{}")
    rows = [("test", "q1", "P@5", 0.5), ("dev", "q2", "P@5", 0.4)]
    table = pd.DataFrame(rows, columns=["split", "query_id", "measure", "value"])
    table.to_parquet(folder / "runs" / trial / "per_query.parquet")


def test_a_trial_arrives_as_one_run_with_everything_in_it(folder, log, uri):
    _leave(folder, "c1-seed1")
    log.start("c1-seed1", swept={"chunking.window": 48})
    for step in (1, 2, 3):
        log.report("c1-seed1", step, loss=1 / step)
    log.end("c1-seed1", files=["config.json", "per_query.parquet", "result.json"])
    assert pending(folder) == 5
    assert _upload(folder, uri) == 0 == pending(folder)

    [run] = _runs(uri)
    assert (run.info.run_name, run.info.status) == ("c1 #1", "FINISHED")
    assert run.data.params == {"seed": "1", "model.name": "maxp", "chunking.window": "48"}
    assert run.data.metrics["test/p_5"] == 0.5 and run.data.metrics["hp/window"] == 48
    assert run.data.tags["rank.trial_key"] == "ws/c1-seed1"
    assert run.data.tags["stop.reason"] == "completed"
    client = connect(uri)
    points = client.get_metric_history(run.info.run_id, "train/loss")
    assert [(p.step, p.value) for p in points] == [(1, 1.0), (2, 0.5), (3, pytest.approx(1 / 3))]
    found = {where: [item.path for item in client.list_artifacts(run.info.run_id, where)]
             for where in ("eval", "config", "runs")}  # fmt: skip
    assert found == {
        "eval": ["eval/per_query.json", "eval/per_query.parquet"],
        "config": ["config/config.json"],
        "runs": [],
    }


DATA = {
    "name": "woods",
    "hash": "0123456789abcdef",
    "documents": 9,
    "queries": {"dev": 2, "test": 3},
}


def test_a_run_names_the_splits_that_it_reads(folder, log, uri):
    """With the collection's expression, or where its folder is."""
    log.whole("c1-seed1", data=DATA, swept={"collection": "python-docs|sample(n=5)"})
    log.whole(
        "c2-seed1", data=DATA | {"name": "own", "hash": "f" * 64}, swept={"collection": "/own"}
    )
    assert _upload(folder, uri) == 0 == pending(folder)
    runs = {run.data.tags["rank.trial_key"]: run for run in _runs(uri)}
    woods, own = (runs[f"ws/{trial}"].inputs.dataset_inputs for trial in ("c1-seed1", "c2-seed1"))
    found = {(item.dataset.name, item.dataset.digest, item.tags[0].value) for item in woods}
    assert found == {
        ("woods", "dev-0123456789abcdef", "dev"),
        ("woods", "test-0123456789abcdef", "test"),
    }
    assert {item.tags[0].key for item in woods} == {"mlflow.data.context"}
    assert json.loads(woods[0].dataset.source) == {
        "tags": {"collection": "python-docs|sample(n=5)"}
    }
    assert json.loads(own[0].dataset.source) == {"uri": "/own"}
    assert sorted(len(item.dataset.digest) for item in own) == [36, 36]


def test_uploading_everything_again_changes_nothing(folder, log, uri):
    log.whole("c1-seed1", data=DATA)
    log.whole("c1-seed2", status="failed")
    log.whole("c1-seed2", attempt=2)
    assert _upload(folder, uri) == 0
    before = _stored(uri)
    losses = [row for row in before["metrics"] if "train/loss" in row]
    assert len(before["runs"]) == 2 and len(losses) == 6
    for _ in range(2):
        _forget(folder)
        assert _upload(folder, uri) == 0
        assert _stored(uri) == before


def test_events_that_arrive_during_the_upload_arrive_in_mlflow(folder, log, uri):
    uploader = Uploader(folder, uri, "rank/ws")
    uploader.start()
    for seed in range(1, 6):
        log.whole(f"c1-seed{seed}", steps=20)
    assert uploader.close(30) == 0
    assert sorted(run.info.run_name for run in _runs(uri)) == [f"c1 #{n}" for n in range(1, 6)]
    losses = [row for row in _stored(uri)["metrics"] if "train/loss" in row]
    assert len(losses) == 5 * 20


def test_a_trial_of_a_lost_driver_is_killed_and_reopened_when_it_runs_again(folder, log, uri):
    gone = {"host": "elsewhere", "pid": 1, "started": "1"}
    log.add(CommandBegan(writer=gone, model="maxp", model_label="MaxP", tags={}))
    log.start("c1-seed1")
    for step in (1, 2, 3):
        log.report("c1-seed1", step, loss=1 / step)
    _upload(folder, uri)
    [run] = _runs(uri)
    assert run.info.status == "KILLED"
    again = MadeLog(folder)  # a second command
    again.start("c1-seed1", attempt=2)
    _upload(folder, uri)
    [run] = _runs(uri)
    assert run.info.status == "RUNNING"
    for step in (3, 4):
        again.report("c1-seed1", step, loss=1 / step)
    again.end("c1-seed1")
    _upload(folder, uri)
    [run] = _runs(uri)
    assert run.info.status == "FINISHED" and run.data.tags["attempts"] == "2"
    points = connect(uri).get_metric_history(run.info.run_id, "train/loss")
    assert [p.step for p in points] == [1, 2, 3, 4]


def test_a_second_run_of_a_trial_is_tagged_as_duplicate_and_the_oldest_counts(folder, log, uri):
    log.start("c1-seed1")
    _upload(folder, uri)
    [first] = _runs(uri)
    client = connect(uri)
    second = client.create_run(
        first.info.experiment_id,
        start_time=first.info.start_time + 1,
        tags={"rank.trial_key": "ws/c1-seed1"},
    )
    _forget(folder)
    log.end("c1-seed1")
    assert _upload(folder, uri) == 0
    runs = {run.info.run_id: run for run in _runs(uri)}
    assert len(runs) == 2
    duplicate = runs[second.info.run_id]
    assert duplicate.data.tags["rank.duplicate_of"] == first.info.run_id
    assert (duplicate.info.status, runs[first.info.run_id].info.status) == ("KILLED", "FINISHED")


def test_what_is_refused_is_set_aside_and_the_rest_goes_on(folder, log, uri, caplog):
    """A metric's name that MLflow does not take, and a file that is gone."""
    log.start("c1-seed1", swept={"model.a%b": 1.0})
    log.report("c1-seed1", 4, dev={"P@5": 0.4}, loss=0.25)
    log.end("c1-seed1", files=["config.json"])
    log.whole("c1-seed2")
    with caplog.at_level(logging.WARNING, "sweeps.tracking"):
        assert _upload(folder, uri) == 0
    runs = {run.data.tags["rank.trial_key"]: run for run in _runs(uri)}
    assert {run.info.status for run in runs.values()} == {"FINISHED"} and len(runs) == 2
    metrics = runs["ws/c1-seed1"].data.metrics
    assert (metrics["train/loss"], metrics["dev/p_5"], metrics["test/p_5"]) == (0.25, 0.4, 0.5)
    letters = _letters(folder)
    missing = folder / "runs" / "c1-seed1" / "config.json"
    assert [letter["refused"] for letter in letters] == [
        "params model.a%b",
        "metric hp/a%b",
        f"artifact {missing}",
    ]
    assert "ames may only contain" in letters[1]["reason"]
    assert str(folder / "mlflow" / "refused.jsonl") in caplog.text


def test_a_changed_param_does_not_take_the_metrics_with_it(folder, log, uri):
    log.whole("c1-seed1")
    _upload(folder, uri)
    text = log.path.read_text()
    log.path.write_text(text.replace('"model.name": "maxp"', '"model.name": "sump", "new": "x"'))
    assert _upload(folder, uri) == 0, "another log is sent from its beginning"
    [run] = _runs(uri)
    assert run.data.params == {"seed": "1", "model.name": "maxp", "new": "x"}
    [letter] = _letters(folder)
    assert letter["refused"] == "params model.name"


def test_a_damaged_line_in_the_middle_is_set_aside(folder, log, uri):
    log.start("c1-seed1")
    append_lines(log.path, b"\x00\xff not json\n")
    append_lines(log.path, b'{"event": "novelty"}\n')
    log.report("c2-seed1", 1, loss=1.0)  # whose start is nowhere
    log.end("c1-seed1")
    for _ in range(2):
        assert _upload(folder, uri) == 0
    [run] = _runs(uri)
    assert run.info.status == "FINISHED"
    assert len(_letters(folder)) == 3


def test_a_run_deleted_for_good_is_made_again(folder, log, uri):
    log.whole("c1-seed2", steps=1)
    log.start("c1-seed1")
    log.report("c1-seed1", 1, loss=1.0)
    _upload(folder, uri)
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        for table in ("metrics", "latest_metrics", "params", "tags"):
            database.execute(
                f"DELETE FROM {table} WHERE run_uuid IN (SELECT run_uuid FROM runs "
                "WHERE status != 'FINISHED')"
            )
        database.execute("DELETE FROM runs WHERE status != 'FINISHED'")
    log.report("c1-seed1", 2, loss=0.5)
    log.end("c1-seed1")
    assert _upload(folder, uri) == 0
    runs = {run.data.tags["rank.trial_key"]: run for run in _runs(uri)}
    assert len(runs) == 2
    run = runs["ws/c1-seed1"]
    assert run.data.params["seed"] == "1" and run.info.status == "FINISHED"
    points = connect(uri).get_metric_history(run.info.run_id, "train/loss")
    assert [point.step for point in points] == [1, 2]


def test_a_trial_that_waits_holds_no_other_one_up_and_is_sent_on_later(
    folder, log, uri, monkeypatch
):
    """The cursor stands before the first event that is not sent, and knows those beyond it."""
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    log.start("c1-seed1", swept={"model.x": 7.0})
    log.report("c1-seed1", 1, loss=7.0)
    log.whole("c1-seed2")
    log_batch = MlflowClient.log_batch

    def chokes(self, run_id, metrics=(), **rest):
        if any(metric.value == 7.0 for metric in metrics):
            raise MlflowException("x failed with error code 503 != 200")
        log_batch(self, run_id, metrics=metrics, **rest)

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "log_batch", chokes)
        assert _upload(folder, uri, 3) == 2
    cursor = Cursor.load(folder)
    assert list(cursor.ahead) == ["c1-seed2"] and cursor.offset < cursor.ahead["c1-seed2"]
    assert (cursor.progress_offset, cursor.steps) == (0, {"c1-seed2": 3})
    assert sorted(run.info.status for run in _runs(uri)) == ["FINISHED", "RUNNING"]
    assert _upload(folder, uri) == 0
    cursor = Cursor.load(folder)
    assert cursor.offset == log.path.stat().st_size
    assert cursor.progress_offset == log.progress.stat().st_size
    assert 7.0 in [run.data.metrics["train/loss"] for run in _runs(uri)]


def test_a_result_brings_the_reports_that_nobody_heard_and_each_of_them_once(folder, log, uri):
    """Their driver was killed before it could write them, or ran on another machine."""
    log.start("c1-seed1")
    log.report("c1-seed1", 1, loss=1.0, seconds=1.0)
    curves = [[{"step": step, "loss": 1 / step, "seconds": float(step)}] for step in range(1, 5)]
    news = [
        {"step": step, "num_steps": 4, "curve": curve, "dev": {"P@5": 0.1} if step == 4 else None}
        for step, curve in enumerate(curves, 1)
    ]
    (folder / "runs" / "c1-seed1").mkdir(parents=True)
    history = folder / "runs" / "c1-seed1" / "history.jsonl"
    history.write_text("\n".join(map(json.dumps, news)))
    log.end("c1-seed1", files=["history.jsonl"])
    assert _upload(folder, uri) == 0
    before = _stored(uri)
    [run] = _runs(uri)
    points = connect(uri).get_metric_history(run.info.run_id, "train/loss")
    assert [(p.step, p.timestamp) for p in points] == [(s, 1000 * s) for s in (1, 2, 3, 4)]
    assert run.data.metrics["dev/p_5"] == 0.1
    _forget(folder)
    log.progress.unlink()  # as on another machine
    assert _upload(folder, uri) == 0
    assert _stored(uri) == before


def test_an_uploader_that_starts_again_reads_no_report_twice(folder, log, uri, monkeypatch):
    """And a resumed attempt, which tells all steps until its checkpoint, brings no second point."""
    log.start("c1-seed1")
    for step in (1, 2, 3):
        log.report("c1-seed1", step, loss=1 / step, seconds=float(step))
    assert _upload(folder, uri) == 0
    sent = log.progress.stat().st_size
    MadeLog(folder).start("c1-seed1", attempt=2)
    curve = [{"step": step, "loss": 7.0, "seconds": 10.0 + step} for step in range(1, 5)]
    facts = {"step": 4, "num_steps": 9, "curve": curve, "dev": {"P@5": 0.1}}
    log.tell(Reported.of("c1-seed1", facts))
    read, lines = [], upload.read_lines

    def counted(path, offset=0, end=None):
        read.append((path.name, offset))
        return lines(path, offset, end)

    monkeypatch.setattr(upload, "read_lines", counted)
    assert _upload(folder, uri) == 0
    assert min(offset for name, offset in read if name == log.progress.name) == sent
    [run] = _runs(uri)
    points = connect(uri).get_metric_history(run.info.run_id, "train/loss")
    assert [(p.step, p.value) for p in points][2:] == [(3, pytest.approx(1 / 3)), (4, 7.0)]
    assert len(points) == 4


def test_an_absent_server_costs_one_warning_that_names_the_log(folder, log, caplog):
    uploader = Uploader(folder, "http://127.0.0.1:9", "rank/ws")
    with caplog.at_level(logging.WARNING, "sweeps.tracking"):
        uploader.start()
        log.whole("c1-seed1")
        assert uploader.close(1.2) == 5
    assert len(caplog.records) == 1
    assert str(log.path) in caplog.text


def test_tracking_none_keeps_the_log_and_owes_nothing(folder, log):
    uploader = Uploader(folder, "none", "rank/ws")
    uploader.start()
    log.whole("c1-seed1")
    assert uploader.close() == 0
    assert pending(folder) == 5


def test_sync_uploads_what_is_pending_and_only_that(folder, log, uri):
    log.whole("c1-seed1")
    assert sync(folder, uri, "rank/ws") == 5
    assert sync(folder, uri, "rank/ws") == 0
    log.whole("c1-seed2", steps=0)
    assert sync(folder, uri, "rank/ws") == 2
    assert len(_runs(uri)) == 2


def test_sync_refuses_what_it_cannot_upload(tmp_path, folder, log, uri):
    with pytest.raises(BadInput, match=r"events\.jsonl, found none"):
        sync(tmp_path, uri, "rank/ws")
    log.whole("c1-seed1")
    with pytest.raises(BadInput, match="5 of 5 events"):
        sync(folder, "http://127.0.0.1:9", "rank/ws", timeout_s=0.6)


def test_another_target_gets_everything_again(folder, log, uri, empty_database, tmp_path):
    log.whole("c1-seed1")
    assert _upload(folder, uri) == 0
    shutil.copy(empty_database, tmp_path / "other.db")
    other = f"sqlite:///{tmp_path / 'other.db'}"
    assert sync(folder, other, "rank/ws") == 5
    assert _stored(other)["metrics"][0][0] == _stored(uri)["metrics"][0][0]
    assert len(_runs(other)) == 1


def test_secrets_are_absent_from_the_summary(folder, uri, tmp_path):
    folder.mkdir()
    row = SummaryRow("c1", "h1", {"agg/p_5_mean": 0.5}, {"token": "hunter2"})
    assert log_summary(uri, "rank/ws", [row], folder) == 1
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 1
    assert [path for path in files if b"hunter2" in path.read_bytes()] == []
