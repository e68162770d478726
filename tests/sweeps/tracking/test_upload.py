import json
import logging
import shutil
import sqlite3
from pathlib import Path

import pytest

from rank_core.errors import BadInput
from sweeps.tracking.client import connect
from sweeps.tracking.outbox import Outbox, pending
from sweeps.tracking.summary import MeasureSummary, SummaryRow, log_summary
from sweeps.tracking.sync import sync
from sweeps.tracking.trial_file import append, file_name
from sweeps.tracking.uploader import Uploader


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "outbox"


def _trial(box: Outbox, key: str, *, steps: int = 3, status="FINISHED", artifacts=()) -> None:
    config, _, seed = key.partition("/")
    box.open_trial(key, name=f"{config} #{seed}", params={"seed": seed}, tags={"config.id": config})
    for step in range(1, steps + 1):
        box.metrics(key, {"train/loss": 1 / step}, step)
    if status:
        box.finish(key, status, {"test/p_5": 0.5}, {"stop.reason": "completed"}, artifacts)


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
            for table in ("runs", "metrics", "latest_metrics", "params", "tags")
        }


def test_a_trial_arrives_as_one_run_with_everything_in_it(folder, uri, tmp_path):
    evidence = tmp_path / "per_query.json"
    evidence.write_text("[1]")
    box = Outbox(folder, "ws")
    _trial(box, "c1/1", artifacts=[(evidence, "eval")])
    assert pending(folder) == 5
    assert _upload(folder, uri) == 0 == pending(folder)

    [run] = _runs(uri)
    assert (run.info.run_name, run.info.status) == ("c1 #1", "FINISHED")
    assert run.data.params == {"seed": "1"}
    assert run.data.metrics == {"train/loss": pytest.approx(1 / 3), "test/p_5": 0.5}
    assert run.data.tags["rank.trial_key"] == "ws/c1/1"
    assert run.data.tags["stop.reason"] == "completed"
    client = connect(uri)
    points = client.get_metric_history(run.info.run_id, "train/loss")
    assert [(p.step, p.value) for p in points] == [(1, 1.0), (2, 0.5), (3, pytest.approx(1 / 3))]
    assert [item.path for item in client.list_artifacts(run.info.run_id, "eval")] == [
        "eval/per_query.json"
    ]


def test_uploading_everything_again_changes_nothing(folder, uri):
    box = Outbox(folder, "ws")
    _trial(box, "c1/1")
    _trial(box, "c1/2", status="FAILED")
    _trial(box, "c1/2")
    assert _upload(folder, uri) == 0
    before = _stored(uri)
    assert len(before["runs"]) == 2 and len(before["metrics"]) == 8
    for _ in range(2):
        (folder / "state.json").unlink()
        assert _upload(folder, uri) == 0
        assert _stored(uri) == before


def test_records_that_arrive_during_the_upload_arrive_in_mlflow(folder, uri):
    box = Outbox(folder, "ws")
    uploader = Uploader(folder, uri, "rank/ws")
    uploader.start()
    for seed in range(1, 6):
        _trial(box, f"c1/{seed}", steps=20)
    assert uploader.close(30) == 0
    assert sorted(run.info.run_name for run in _runs(uri)) == [f"c1 #{n}" for n in range(1, 6)]
    assert len(_stored(uri)["metrics"]) == 5 * 21


def test_a_trial_of_a_lost_driver_is_killed_and_reopened_when_it_runs_again(folder, uri):
    box = Outbox(folder, "ws")
    _trial(box, "c1/1", status=None)
    _trial(box, "c1/2", status=None)
    lost = folder / file_name("ws/c1/1")
    lost.write_text(lost.read_text().replace('"pid": ', '"pid": 4'))
    _upload(folder, uri)
    assert {r.info.run_name: r.info.status for r in _runs(uri)} == {
        "c1 #1": "KILLED",
        "c1 #2": "RUNNING",
    }
    again = Outbox(folder, "ws")
    _trial(again, "c1/1", steps=4, status=None)
    _upload(folder, uri)
    assert {r.info.status for r in _runs(uri)} == {"RUNNING"}
    again.finish("c1/1", "FINISHED", {"test/p_5": 0.5}, {}, [])
    _upload(folder, uri)
    [run] = [r for r in _runs(uri) if r.info.run_name == "c1 #1"]
    assert run.info.status == "FINISHED" and run.data.tags["attempts"] == "2"
    points = connect(uri).get_metric_history(run.info.run_id, "train/loss")
    assert [p.step for p in points] == [1, 2, 3, 4]


def test_a_second_run_of_a_trial_is_tagged_as_duplicate_and_the_oldest_counts(folder, uri):
    box = Outbox(folder, "ws")
    _trial(box, "c1/1", status=None)
    _upload(folder, uri)
    [first] = _runs(uri)
    client = connect(uri)
    second = client.create_run(
        first.info.experiment_id,
        start_time=first.info.start_time + 1,
        tags={"rank.trial_key": "ws/c1/1"},
    )
    (folder / "state.json").unlink()
    box.finish("c1/1", "FINISHED", {"test/p_5": 0.5}, {}, [])
    assert _upload(folder, uri) == 0
    runs = {run.info.run_id: run for run in _runs(uri)}
    assert len(runs) == 2
    duplicate = runs[second.info.run_id]
    assert duplicate.data.tags["rank.duplicate_of"] == first.info.run_id
    assert (duplicate.info.status, runs[first.info.run_id].info.status) == ("KILLED", "FINISHED")


def test_refused_records_go_to_the_dead_letters_and_the_rest_goes_on(folder, uri, caplog):
    box = Outbox(folder, "ws")
    _trial(box, "c1/1", status=None)
    box.metrics("c1/1", {"nDCG@10": 0.5, "dev/p_5": 0.4}, 4)
    box.finish("c1/1", "FINISHED", {"test/p_5": 0.5}, {}, [(folder / "missing.json", "eval")])
    _trial(box, "c1/2")
    with caplog.at_level(logging.WARNING, "sweeps.tracking"):
        assert _upload(folder, uri) == 0
    runs = {run.info.run_name: run for run in _runs(uri)}
    assert runs["c1 #1"].info.status == runs["c1 #2"].info.status == "FINISHED"
    assert runs["c1 #1"].data.metrics == {
        "train/loss": pytest.approx(1 / 3),
        "dev/p_5": 0.4,
        "test/p_5": 0.5,
    }
    letters = [
        json.loads(line)
        for path in (folder / "dead").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert [letter["refused"] for letter in letters] == [
        "metric nDCG@10",
        f"artifact {folder / 'missing.json'}",
    ]
    assert "Names may only contain" in letters[0]["reason"]
    assert str(folder / "dead") in caplog.text


def test_a_changed_param_does_not_take_the_metrics_with_it(folder, uri):
    box = Outbox(folder, "ws")
    _trial(box, "c1/1")
    _upload(folder, uri)
    path = folder / file_name("ws/c1/1")
    path.write_text(path.read_text().replace('"seed": "1"', '"seed": "2", "new": "x"'))
    (folder / "state.json").unlink()
    assert _upload(folder, uri) == 0
    [run] = _runs(uri)
    assert run.data.params == {"seed": "1", "new": "x"}
    [letter] = (folder / "dead" / path.name).read_text().splitlines()
    assert json.loads(letter)["refused"] == "params seed"


def test_a_damaged_line_in_the_middle_is_set_aside(folder, uri):
    box = Outbox(folder, "ws")
    _trial(box, "c1/1", status=None)
    path = folder / file_name("ws/c1/1")
    with path.open("ab") as file:
        file.write(b"\x00\xff not json\n")
    append(path, {"kind": "novelty"})
    box.finish("c1/1", "FINISHED", {"test/p_5": 0.5}, {}, [])
    assert _upload(folder, uri) == 0
    [run] = _runs(uri)
    assert run.info.status == "FINISHED"
    assert len((folder / "dead" / path.name).read_text().splitlines()) == 2


def test_a_run_deleted_for_good_is_made_again(folder, uri):
    box = Outbox(folder, "ws")
    _trial(box, "c1/1", status=None)
    _upload(folder, uri)
    state = json.loads((folder / "state.json").read_text())
    state["run_ids"] = {file_name("ws/c1/1"): "0" * 32}
    (folder / "state.json").write_text(json.dumps(state))
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        for table in ("metrics", "latest_metrics", "params", "tags", "runs"):
            database.execute(f"DELETE FROM {table}")
    box.finish("c1/1", "FINISHED", {"test/p_5": 0.5}, {}, [])
    assert _upload(folder, uri) == 0
    [run] = _runs(uri)
    assert run.data.params == {"seed": "1"} and run.info.status == "FINISHED"
    assert len(_stored(uri)["metrics"]) == 4


def test_an_absent_server_costs_one_warning_that_names_the_outbox(folder, caplog):
    box = Outbox(folder, "ws")
    uploader = Uploader(folder, "http://127.0.0.1:9", "rank/ws")
    with caplog.at_level(logging.WARNING, "sweeps.tracking"):
        uploader.start()
        _trial(box, "c1/1")
        assert uploader.close(1.2) == 5
    assert len(caplog.records) == 1
    assert str(folder) in caplog.text


def test_tracking_none_keeps_the_outbox_and_owes_nothing(folder):
    box = Outbox(folder, "ws")
    uploader = Uploader(folder, "none", "rank/ws")
    uploader.start()
    _trial(box, "c1/1")
    assert uploader.close() == 0
    assert pending(folder) == 5


def test_sync_uploads_what_is_pending_and_only_that(folder, uri):
    box = Outbox(folder, "ws")
    _trial(box, "c1/1")
    assert sync(folder.parent, uri, "rank/ws") == 5
    assert sync(folder, uri, "rank/ws") == 0
    _trial(box, "c1/2", steps=0)
    assert sync(folder, uri, "rank/ws") == 2
    assert len(_runs(uri)) == 2


def test_sync_refuses_what_it_cannot_upload(tmp_path, folder, uri):
    with pytest.raises(BadInput, match=r"outbox/\*\.jsonl"):
        sync(tmp_path, uri, "rank/ws")
    _trial(Outbox(folder, "ws"), "c1/1")
    with pytest.raises(BadInput, match="5 of 5 records"):
        sync(folder, "http://127.0.0.1:9", "rank/ws", timeout_s=0.6)


def test_another_target_gets_everything_again(folder, uri, empty_database, tmp_path):
    _trial(Outbox(folder, "ws"), "c1/1")
    assert _upload(folder, uri) == 0
    shutil.copy(empty_database, tmp_path / "other.db")
    other = f"sqlite:///{tmp_path / 'other.db'}"
    assert sync(folder, other, "rank/ws") == 5
    assert _stored(other)["metrics"][0][0] == _stored(uri)["metrics"][0][0]
    assert len(_runs(other)) == 1


def test_secrets_are_absent_from_everything_stored(folder, uri, tmp_path):
    box = Outbox(folder, "ws")
    box.open_trial(
        "c1/1",
        name="n",
        params={"api_key": "hunter2", "url": "https://u:hunter2@h/x"},
        tags={"git.remote": "https://hunter2@github.com/x", "config.id": "c1"},
    )
    box.finish("c1/1", "FINISHED", {"test/p_5": 0.5}, {"note": "--token hunter2"}, [])
    assert _upload(folder, uri) == 0
    row = SummaryRow("c1", "h1", {"p_5": MeasureSummary(0.5, 0.1, 3)}, {"token": "hunter2"})
    assert log_summary(uri, "rank/ws/summary", [row]) == 1
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 3
    assert [path for path in files if b"hunter2" in path.read_bytes()] == []
