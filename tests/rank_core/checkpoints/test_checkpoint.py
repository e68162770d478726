"""Checkpoint files: whole or ignored, few, and never the reason why a trial ends."""

import os
import shutil
import uuid
from collections import namedtuple

import pytest
import torch

from rank_core.checkpoints import Cadence, checkpoint
from rank_core.checkpoints.checkpoint import Checkpoints

EVERY_STEP = Cadence(steps=1)
Usage = namedtuple("Usage", "total used free")


@pytest.fixture(params=["folder", "memory"])
def uri(request, tmp_path):
    root = str(tmp_path) if request.param == "folder" else f"memory://{uuid.uuid4().hex}"
    return f"{root}/checkpoints/cell-seed1"


def content(value, size=10):
    return {"weights": {"w": torch.full((size,), float(value))}, "facts": f"step {value}"}


def last(uri):
    """What a new process finds, the furthest first; None for a broken file."""
    found = Checkpoints(uri, EVERY_STEP)
    return [content and content["facts"] for content in map(found.load, found.names())]


def test_what_was_saved_is_loaded_by_another_process_and_two_are_kept(uri):
    checkpoints = Checkpoints(uri, EVERY_STEP)
    assert last(uri) == []
    for step in range(1, 5):
        checkpoints.save(content(step), (0, step))
    assert last(uri) == ["step 4", "step 3"]
    found = Checkpoints(uri, EVERY_STEP)
    loaded = found.load(found.names()[0])
    assert torch.equal(loaded["weights"]["w"], torch.full((10,), 4.0))


def test_the_second_model_is_further_than_the_last_step_of_the_first(uri):
    checkpoints = Checkpoints(uri, EVERY_STEP)
    checkpoints.save(content(900), (0, 900))
    checkpoints.save(content(2), (1, 2))
    assert last(uri) == ["step 2", "step 900"]


def test_a_resumed_trial_replaces_what_it_did_not_use(uri):
    first = Checkpoints(uri, EVERY_STEP)
    first.save(content(5), (0, 5))
    first.save(content(6), (0, 6))
    second = Checkpoints(uri, EVERY_STEP)
    assert second.load(second.names()[1])["facts"] == "step 5"  # 6 was of no use to it
    second.save(content(7), (0, 7))
    assert last(uri) == ["step 7", "step 5"]


def test_cleared_checkpoints_are_gone(uri):
    checkpoints = Checkpoints(uri, EVERY_STEP)
    checkpoints.clear()
    checkpoints.save(content(1), (0, 1))
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
def test_a_damaged_file_is_left_out_and_the_one_before_is_there(tmp_path, caplog, damage):
    uri = str(tmp_path / "c")
    checkpoints = Checkpoints(uri, EVERY_STEP)
    checkpoints.save(content(1, size=1000), (0, 1))
    checkpoints.save(content(2, size=1000), (0, 2))
    newest = tmp_path / "c" / checkpoints.names()[0]
    newest.write_bytes(damage(newest.read_bytes()))
    assert last(uri) == [None, "step 1"]
    assert "broken" in caplog.text


def test_what_a_killed_writer_left_is_no_checkpoint_and_is_removed(tmp_path):
    uri = str(tmp_path / "c")
    checkpoints = Checkpoints(uri, EVERY_STEP)
    checkpoints.save(content(1), (0, 1))
    (tmp_path / "c" / ".unfinished-abc").write_bytes(b"half")
    assert last(uri) == ["step 1"]
    checkpoints.save(content(2), (0, 2))
    assert not (tmp_path / "c" / ".unfinished-abc").exists()


def test_a_file_that_would_run_code_is_not_read(tmp_path, caplog):
    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "ran"),))

    uri = str(tmp_path / "c")
    Checkpoints(uri, EVERY_STEP).save({"facts": Bomb()}, (0, 1))
    assert last(uri) == [None]
    assert not (tmp_path / "ran").exists()


def test_a_full_disk_and_a_lost_storage_cost_a_warning(tmp_path, monkeypatch, caplog):
    uri = str(tmp_path / "c")
    checkpoints = Checkpoints(uri, EVERY_STEP)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**9, 10**9, 7999))
    checkpoints.save(content(1, size=1000), (0, 1))
    assert last(uri) == [] and "more than half of what is free" in caplog.text
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**9, 10**9, 9000))
    checkpoints.save(content(2, size=1000), (0, 2))
    assert last(uri) == ["step 2"]

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint.torch, "save", full)
    checkpoints.save(content(3), (0, 3))
    assert last(uri) == ["step 2"] and "No space left on device" in caplog.text
    assert [path.suffix for path in (tmp_path / "c").iterdir()] == [".checkpoint"]


def test_a_storage_that_is_away_is_not_taken_for_one_without_checkpoints(tmp_path, caplog):
    (tmp_path / "share").write_text("the share is not mounted")
    uri = tmp_path / "share" / "sweep" / "checkpoints" / "trial"

    def brought_back(read):
        with pytest.raises(NotADirectoryError):
            read()
        (tmp_path / "share").unlink()
        (tmp_path / "disk" / "checkpoints" / "trial").mkdir(parents=True)
        (tmp_path / "share").mkdir()
        (tmp_path / "share" / "sweep").symlink_to(tmp_path / "disk")
        Checkpoints(str(uri), EVERY_STEP).save(content(1), (0, 1))
        return read()

    assert len(Checkpoints(str(uri), EVERY_STEP, wait=brought_back).names()) == 1


def test_a_mount_point_without_its_mount_takes_no_checkpoint(tmp_path, caplog):
    uri = tmp_path / "mount" / "sweep" / "checkpoints" / "trial"
    (tmp_path / "mount").mkdir()
    Checkpoints(str(uri), EVERY_STEP).save(content(1), (0, 1))
    assert list((tmp_path / "mount").iterdir()) == [] and "no checkpoint" in caplog.text


def test_a_quota_holds_for_all_trials_and_those_nobody_works_on_make_room(tmp_path, caplog):
    size = 4 * 10_000

    def trial(name):
        cadence = Cadence(steps=1, quota_bytes=int(3.5 * size))
        return Checkpoints(str(tmp_path / "checkpoints" / name), cadence)

    first, second, third = map(trial, ("a", "b", "c"))
    first.save(content(1, size=10_000), (0, 1))
    first.save(content(2, size=10_000), (0, 2))
    second.save(content(1, size=10_000), (0, 1))
    assert caplog.text == ""
    second.save(content(2, size=10_000), (0, 2))  # the first trial is at work
    assert "the quota of 0 MiB does not hold" in caplog.text
    assert (len(first.names()), len(second.names())) == (2, 1)
    first.save(content(3, size=10_000), (0, 3))  # its own older one makes room
    assert len(first.names()) == 2 and first.names()[0].startswith("000-000000003")
    for path in (tmp_path / "checkpoints" / "a").iterdir():
        os.utime(path, (0, 0))
    third.save(content(1, size=10_000), (0, 1))
    assert (len(first.names()), len(second.names()), len(third.names())) == (1, 1, 1)


def test_time_decides_and_a_dear_checkpoint_comes_seldom(tmp_path, monkeypatch):
    now = [0.0]
    checkpoints = Checkpoints(str(tmp_path), Cadence(minutes=1), clock=lambda: now[0])
    write = Checkpoints._write

    def slow(self, content, position):
        now[0] += 3
        write(self, content, position)

    monkeypatch.setattr(Checkpoints, "_write", slow)
    due = []
    for second in range(400):
        now[0] += 1
        if checkpoints.due(second):
            due.append(now[0])
            checkpoints.save(content(second), (0, second))
    assert due == [60, 63 + 150, 63 + 150 + 153]  # 3 s are 2 % of 150 s
    by_steps = Checkpoints(str(tmp_path), Cadence(steps=4))
    assert [step for step in range(1, 10) if by_steps.due(step)] == [4, 8]
