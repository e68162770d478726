"""Checkpoint files: complete or ignored, few, and never the reason for a trial's end."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import uuid
from collections import namedtuple
from pathlib import Path

import pytest
import torch

from rank_core.checkpoints import COST_SHARE, Cadence, checkpoint
from rank_core.checkpoints.checkpoint import Best, Checkpoints

ROOT = Path(__file__).parents[3]
EVERY_STEP = Cadence(steps=1)
Usage = namedtuple("Usage", "total used free")


@pytest.fixture(params=["folder", "memory"])
def uri(request, tmp_path):
    root = str(tmp_path) if request.param == "folder" else f"memory://{uuid.uuid4().hex}"
    return f"{root}/checkpoints/cell-seed1"


def content(value, size=10):
    return {"weights": {"w": torch.full((size,), float(value))}, "facts": f"step {value}"}


def save(checkpoints, content, position, best=None):
    checkpoints.save(content, position, best=best)
    checkpoints.finish()


def last(uri):
    """The checkpoints in a new process, latest first; None for a broken file."""
    found = Checkpoints(uri, EVERY_STEP)
    return [content and content["facts"] for content in map(found.load, found.names())]


def test_what_was_saved_is_loaded_by_another_process_and_two_are_kept(uri):
    checkpoints = Checkpoints(uri, EVERY_STEP)
    assert last(uri) == []
    for step in range(1, 5):
        save(checkpoints, content(step), (0, step))
    assert last(uri) == ["step 4", "step 3"]
    found = Checkpoints(uri, EVERY_STEP)
    loaded = found.load(found.names()[0])
    assert torch.equal(loaded["weights"]["w"], torch.full((10,), 4.0))


def test_the_second_model_comes_after_the_first_ones_last_step(uri):
    checkpoints = Checkpoints(uri, EVERY_STEP)
    save(checkpoints, content(900), (0, 900))
    save(checkpoints, content(2), (1, 2))
    assert last(uri) == ["step 2", "step 900"]


def test_a_resumed_trial_replaces_what_it_did_not_use(uri):
    first = Checkpoints(uri, EVERY_STEP)
    save(first, content(5), (0, 5))
    save(first, content(6), (0, 6))
    second = Checkpoints(uri, EVERY_STEP)
    assert second.load(second.names()[1])["facts"] == "step 5"  # 6 was of no use to it
    save(second, content(7), (0, 7))
    assert last(uri) == ["step 7", "step 5"]


def test_cleared_checkpoints_are_gone(uri):
    checkpoints = Checkpoints(uri, EVERY_STEP)
    checkpoints.clear()
    save(checkpoints, content(1), (0, 1))
    checkpoints.clear()
    assert last(uri) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data + b"x",
        lambda data: data[:700] + bytes([data[700] ^ 1]) + data[701:],
    ],
    ids=["half", "empty", "longer", "one bit"],
)
def test_a_damaged_file_is_skipped_for_the_previous_one(tmp_path, caplog, damage):
    uri = str(tmp_path / "c")
    checkpoints = Checkpoints(uri, EVERY_STEP)
    save(checkpoints, content(1, size=1000), (0, 1))
    save(checkpoints, content(2, size=1000), (0, 2))
    newest = tmp_path / "c" / checkpoints.names()[0]
    newest.write_bytes(damage(newest.read_bytes()))
    assert last(uri) == [None, "step 1"]
    assert "broken" in caplog.text


def test_a_killed_writers_file_is_no_checkpoint_and_is_removed(tmp_path):
    uri = str(tmp_path / "c")
    checkpoints = Checkpoints(uri, EVERY_STEP)
    save(checkpoints, content(1), (0, 1))
    (tmp_path / "c" / ".unfinished-abc").write_bytes(b"half")
    assert last(uri) == ["step 1"]
    save(checkpoints, content(2), (0, 2))
    assert not (tmp_path / "c" / ".unfinished-abc").exists()


def test_a_file_that_would_run_code_is_not_read(tmp_path, caplog):
    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "ran"),))

    uri = str(tmp_path / "c")
    save(Checkpoints(uri, EVERY_STEP), {"facts": Bomb()}, (0, 1))
    assert last(uri) == [None]
    assert not (tmp_path / "ran").exists()


def test_a_full_disk_and_a_lost_storage_cost_a_warning(tmp_path, monkeypatch, caplog):
    uri = str(tmp_path / "c")
    checkpoints = Checkpoints(uri, EVERY_STEP)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**9, 10**9, 7999))
    save(checkpoints, content(1, size=1000), (0, 1))
    assert last(uri) == [] and "more than half of the free space" in caplog.text
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**9, 10**9, 9000))
    save(checkpoints, content(2, size=1000), (0, 2))
    assert last(uri) == ["step 2"]

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint.torch, "save", full)
    save(checkpoints, content(3), (0, 3))
    assert last(uri) == ["step 2"] and "No space left on device" in caplog.text
    assert [path.suffix for path in (tmp_path / "c").iterdir()] == [".checkpoint"]


def test_unavailable_storage_does_not_count_as_empty(tmp_path, caplog):
    (tmp_path / "share").write_text("the share is not mounted")
    uri = tmp_path / "share" / "sweep" / "checkpoints" / "trial"

    def brought_back(read):
        with pytest.raises(NotADirectoryError):
            read()
        (tmp_path / "share").unlink()
        (tmp_path / "disk" / "checkpoints" / "trial").mkdir(parents=True)
        (tmp_path / "share").mkdir()
        (tmp_path / "share" / "sweep").symlink_to(tmp_path / "disk")
        save(Checkpoints(str(uri), EVERY_STEP), content(1), (0, 1))
        return read()

    assert len(Checkpoints(str(uri), EVERY_STEP, wait=brought_back).names()) == 1


def test_nothing_is_written_to_an_unmounted_mount_point(tmp_path, caplog):
    uri = tmp_path / "mount" / "sweep" / "checkpoints" / "trial"
    (tmp_path / "mount").mkdir()
    save(Checkpoints(str(uri), EVERY_STEP), content(1), (0, 1))
    assert list((tmp_path / "mount").iterdir()) == [] and "no checkpoint" in caplog.text


def test_a_quota_covers_all_trials_and_abandoned_files_are_removed(tmp_path, caplog):
    size = 4 * 10_000

    def trial(name):
        cadence = Cadence(steps=1, quota_bytes=int(3.5 * size))
        return Checkpoints(str(tmp_path / "checkpoints" / name), cadence)

    first, second, third = map(trial, ("a", "b", "c"))
    save(first, content(1, size=10_000), (0, 1))
    save(first, content(2, size=10_000), (0, 2))
    save(second, content(1, size=10_000), (0, 1))
    assert caplog.text == ""
    save(second, content(2, size=10_000), (0, 2))  # the first trial is at work
    assert "exceed the quota of 0 MiB" in caplog.text
    assert (len(first.names()), len(second.names())) == (2, 1)
    save(first, content(3, size=10_000), (0, 3))  # its own older one is removed
    assert len(first.names()) == 2 and first.names()[0].startswith("000-000000003")
    for path in (tmp_path / "checkpoints" / "a").iterdir():
        os.utime(path, (0, 0))
    save(third, content(1, size=10_000), (0, 1))
    assert (len(first.names()), len(second.names()), len(third.names())) == (1, 1, 1)


def test_checkpoints_follow_the_clock_and_slow_ones_are_rarer(tmp_path, monkeypatch):
    now = [0.0]
    checkpoints = Checkpoints(str(tmp_path), Cadence(minutes=1), clock=lambda: now[0])
    write = Checkpoints._write

    def slow(self, *what):
        now[0] += 3
        write(self, *what)

    monkeypatch.setattr(Checkpoints, "_write", slow)
    due = []
    for second in range(400):
        now[0] += 1
        if checkpoints.due(second):
            due.append(now[0])
            save(checkpoints, content(second), (0, second))
    assert due == [60, 63 + 150, 63 + 150 + 153]  # 3 s are 2% of 150 s
    by_steps = Checkpoints(str(tmp_path), Cadence(steps=4))
    assert [step for step in range(1, 10) if by_steps.due(step)] == [4, 8]


@pytest.fixture
def held(monkeypatch):
    """Writing begins when this is set."""
    begins, torch_save = threading.Event(), torch.save

    def save(*what):
        assert begins.wait(60)
        torch_save(*what)

    monkeypatch.setattr(checkpoint.torch, "save", save)
    yield begins
    begins.set()


def test_training_continues_while_a_thread_writes_a_snapshot(tmp_path, held):
    uri = str(tmp_path / "c")
    now = [0.0]
    checkpoints = Checkpoints(uri, Cadence(minutes=1), clock=lambda: now[0])
    weights = {"w": torch.ones(4)}
    checkpoints.save({"weights": weights, "facts": lambda: "made by the thread"}, (0, 1))
    now[0] = 100.0
    assert not checkpoints.due(2) and last(uri) == []
    weights["w"] += 1
    held.set()
    checkpoints.finish()
    found = Checkpoints(uri, EVERY_STEP)
    content = found.load(found.names()[0])
    assert content["facts"] == "made by the thread" and content["weights"]["w"].tolist() == [1] * 4
    now[0] += 100 / COST_SHARE
    assert checkpoints.due(3)


def test_checkpoints_are_written_one_at_a_time_and_before_a_pause(tmp_path, held):
    uri = str(tmp_path / "c")
    checkpoints = Checkpoints(uri, EVERY_STEP, pause=3)
    checkpoints.save(content(1), (0, 1))
    second = threading.Thread(target=lambda: checkpoints.save(content(2), (0, 2)))
    second.start()
    second.join(0.05)
    assert second.is_alive() and last(uri) == []
    held.set()
    second.join()
    checkpoints.save(content(3), (0, 3))
    assert last(uri) == ["step 3", "step 2"]


def test_a_file_is_not_read_again_for_its_hash(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "file_sha256", None)
        save(Checkpoints(str(tmp_path / "c"), EVERY_STEP), content(1), (0, 1))
    assert last(str(tmp_path / "c")) == ["step 1"]


def best(step):
    return Best(step, {"weights": {"w": torch.full((10,), float(step))}, "run": lambda: f"{step}"})


def bests(uri):
    """The best weights in a new process, latest checkpoint first."""
    found = Checkpoints(uri, EVERY_STEP)
    loaded = [found.load(name) for name in found.names()]
    return [
        (content["best"]["run"], content["best"]["weights"]["w"][0].item()) for content in loaded
    ]


def test_the_best_weights_are_written_when_they_have_changed(uri, monkeypatch):
    written, write = [], Checkpoints._file

    def noted(self, content, prefix, suffix):
        written.append(prefix + suffix)
        return write(self, content, prefix, suffix)

    monkeypatch.setattr(Checkpoints, "_file", noted)
    checkpoints = Checkpoints(uri, EVERY_STEP)
    for step, of_best in ((1, None), (2, 2), (3, 2), (4, 4), (5, 4)):
        save(checkpoints, content(step), (0, step), of_best and best(of_best))
    assert [name for name in written if name.endswith(".best")] == [
        "000-000000002.best",
        "000-000000004.best",
    ]
    assert bests(uri) == [("4", 4.0), ("4", 4.0)]
    resumed = Checkpoints(uri, EVERY_STEP)
    resumed.load(resumed.names()[0])
    save(resumed, content(6), (0, 6), best(4))
    assert len(written) == 8 and bests(uri) == [("4", 4.0), ("4", 4.0)]
    save(resumed, content(1), (1, 1))  # of the next model, which has none yet
    save(resumed, content(4), (1, 4), best(4))
    found = Checkpoints(uri, EVERY_STEP)
    assert ["best" in found.load(name) for name in found.names()] == [True, False]
    assert len(written) == 11


def test_a_checkpoint_with_broken_best_weights_is_skipped(tmp_path, caplog):
    uri = str(tmp_path / "c")
    checkpoints = Checkpoints(uri, EVERY_STEP)
    save(checkpoints, content(1), (0, 1), best(1))
    save(checkpoints, content(2), (0, 2), best(2))
    last_best = max((tmp_path / "c").glob("*.best"))
    last_best.write_bytes(last_best.read_bytes()[:-1])
    assert last(uri) == [None, "step 1"] and "broken" in caplog.text
    last_best.unlink()
    assert last(uri) == [None, "step 1"] and "cannot be read" in caplog.text


KILLED = """
import os, signal, sys, torch
from rank_core.checkpoints import Cadence, checkpoint
checkpoints = checkpoint.Checkpoints(sys.argv[1], Cadence(steps=1))
def content(step):
    return {"weights": {"w": torch.full((1000,), float(step))}, "facts": f"step {step}"}
def best(step):
    return checkpoint.Best(step, {"weights": torch.ones(1000), "run": "x"})
checkpoints.save(content(1), (0, 1), best=best(1))
checkpoints.finish()
writes, write = [0], checkpoint._Hashed.write
def dies(self, data):
    writes[0] += 1
    if writes[0] == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return write(self, data)
checkpoint._Hashed.write = dies
checkpoints.save(content(2), (0, 2), best=best(2))
checkpoints.finish()
"""


@pytest.mark.slow
@pytest.mark.parametrize("writes", [1, 5, 30])  # of the best weights, and of the checkpoint
def test_a_kill_during_a_write_leaves_the_previous_checkpoint(tmp_path, writes):
    command = [sys.executable, "-c", KILLED, str(tmp_path / "c"), str(writes)]
    assert subprocess.run(command, cwd=ROOT, timeout=300).returncode == -signal.SIGKILL
    assert last(str(tmp_path / "c")) == ["step 1"]
    assert any(path.name.startswith(".unfinished") for path in (tmp_path / "c").iterdir())
