import json
import math
import multiprocessing
import os
import pickle
import signal
import time
from pathlib import Path

import pytest

from rank_core.errors import BadInput
from sweeps.tracking.outbox import Outbox, pending
from sweeps.tracking.reconcile import recorded_status
from sweeps.tracking.trial_file import file_name, read_lines
from sweeps.tracking.writer import is_alive, this_writer


def _records(folder: Path) -> list[dict]:
    [path] = folder.glob("*.jsonl")
    return [line.record for line in read_lines(path)]


def _open(box: Outbox, key: str = "c1/1") -> None:
    box.open_trial(key, name="512/256 #1", params={"seed": 1}, tags={"config.id": "512/256"})


def test_a_repeated_attempt_adds_no_second_point_even_in_another_process(tmp_path):
    first = Outbox(tmp_path, "ws")
    _open(first)
    first.metrics("c1/1", {"train/loss": 1.0}, step=5)
    first.metrics("c1/1", {"train/loss": 0.5}, step=10)
    second = Outbox(tmp_path, "ws")
    _open(second)
    second.metrics("c1/1", {"train/loss": 7.0, "dev/p_5": 0.1}, step=10)
    second.metrics("c1/1", {"train/loss": 0.2}, step=15)

    points = [(r["step"], r["values"]) for r in _records(tmp_path) if r["kind"] == "metrics"]
    assert points == [
        (5, {"train/loss": 1.0}),
        (10, {"train/loss": 0.5}),
        (10, {"dev/p_5": 0.1}),
        (15, {"train/loss": 0.2}),
    ]


def test_a_second_opening_counts_an_attempt_and_writes_no_second_header(tmp_path):
    box = Outbox(tmp_path, "ws")
    _open(box)
    _open(box)
    records = _records(tmp_path)
    assert [r["kind"] for r in records] == ["trial", "attempt"]
    assert [r["tags"]["attempts"] for r in records] == ["1", "2"]
    assert records[0]["tags"]["rank.trial_key"] == "ws/c1/1"


def test_a_torn_last_line_is_ignored_and_cut_before_the_next_append(tmp_path):
    box = Outbox(tmp_path, "ws")
    _open(box)
    [path] = tmp_path.glob("*.jsonl")
    with path.open("ab") as file:
        file.write(b'{"kind": "metrics", "step": 5, "val')
    assert pending(tmp_path) == 1

    again = Outbox(tmp_path, "ws")
    again.metrics("c1/1", {"train/loss": 1.0}, step=5)
    assert [line.record["kind"] for line in read_lines(path)] == ["trial", "metrics"]
    assert path.read_bytes().count(b"\n") == 2


def test_a_file_that_holds_only_a_torn_header_starts_again(tmp_path):
    path = tmp_path / file_name("ws/c1/1")
    path.write_bytes(b'{"kind": "tri' + b"x" * 200_000)
    box = Outbox(tmp_path, "ws")
    _open(box)
    assert [r["kind"] for r in _records(tmp_path)] == ["trial"]


def test_values_that_are_no_numbers_become_tags_once(tmp_path):
    box = Outbox(tmp_path, "ws")
    _open(box)
    for step in (1, 2):
        box.metrics("c1/1", {"train/loss": math.nan, "train/lr": 0.1}, step)
    records = _records(tmp_path)
    assert [r["values"] for r in records if r["kind"] == "metrics"] == [{"train/lr": 0.1}] * 2
    assert [r["tags"] for r in records if r["kind"] == "tags"] == [
        {"nonfinite.train/loss": "nan at step 1", "diverged": "true"}
    ]


def test_finals_of_a_finished_trial_replace_only_those_of_a_failed_attempt(tmp_path):
    box = Outbox(tmp_path, "ws")
    _open(box)
    box.finish("c1/1", "FAILED", {"cost/train_s": 3.0})
    _open(box)
    box.finish("c1/1", "FINISHED", {"cost/train_s": 90.0, "test/p_5": 0.5})
    _open(box)
    box.finish("c1/1", "FINISHED", {"cost/train_s": 91.0, "test/p_5": 0.6})
    finals = [r["metrics"] for r in _records(tmp_path) if r["kind"] == "finish"]
    assert finals == [{"cost/train_s": 3.0}, {"cost/train_s": 90.0, "test/p_5": 0.5}, {}]


def test_keys_that_differ_have_files_that_differ(tmp_path):
    keys = ["a/1", "a_1", "a//1", "A/1", "a/1 ", "x" * 200, "x" * 201, "../1"]
    names = {file_name(key) for key in keys}
    assert len({name.lower() for name in names}) == len(keys)
    assert all("/" not in name and len(name) < 120 for name in names)


def test_a_pickled_outbox_goes_on_where_it_was(tmp_path):
    box = Outbox(tmp_path, "ws")
    _open(box)
    box.metrics("c1/1", {"train/loss": 1.0}, 1)
    copy = pickle.loads(pickle.dumps(box))
    copy.metrics("c1/1", {"train/loss": 2.0}, 1)
    assert [r["kind"] for r in _records(tmp_path)] == ["trial", "metrics"]


def test_a_trial_that_was_never_opened_is_refused(tmp_path):
    with pytest.raises(KeyError, match="never opened"):
        Outbox(tmp_path, "ws").metrics("c1/1", {"train/loss": 1.0}, 1)


def test_a_key_with_quotes_is_refused(tmp_path):
    with pytest.raises(BadInput, match="quotes"):
        _open(Outbox(tmp_path, "ws"), "it's")


def test_secrets_do_not_reach_the_disk(tmp_path):
    box = Outbox(tmp_path, "ws")
    box.open_trial(
        "c1/1",
        name="n",
        params={"hf_token": "hunter2", "store": "s3://me:hunter2@host/x", "max_tokens": 7},
        tags={"mlflow.note.content": "run --api-key hunter2 --seed 1"},
    )
    box.tags("c1/1", {"password": "hunter2"})
    box.finish("c1/1", "FINISHED", {}, {"aws_secret_access_key": "hunter2"})
    text = "".join(path.read_text() for path in tmp_path.glob("*.jsonl"))
    assert "hunter2" not in text
    assert json.loads(text.splitlines()[0])["params"]["max_tokens"] == "7"


def _open_and_wait(folder: str) -> None:
    _open(Outbox(Path(folder), "ws"))
    time.sleep(60)


def test_an_attempt_is_running_only_while_its_writer_lives(tmp_path):
    process = multiprocessing.get_context("fork").Process(
        target=_open_and_wait, args=(str(tmp_path),)
    )
    process.start()
    path = tmp_path / file_name("ws/c1/1")
    deadline = time.monotonic() + 300
    while not (path.exists() and path.read_bytes().endswith(b"\n")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert recorded_status(path) == "RUNNING"
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert recorded_status(path) == "KILLED"


def test_a_reused_pid_is_not_mistaken_for_the_writer():
    me = this_writer()
    assert is_alive(me)
    assert not is_alive(me | {"started": "1"})
    assert not is_alive(me | {"host": "elsewhere"})
