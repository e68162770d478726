"""The checkpoint file: whole or not used, replaced, and never the reason for a trial's end."""

import os
import shutil
import stat
import uuid
from collections import namedtuple

import pytest
import torch

from rank_core.checkpoints import Cadence, checkpoint
from rank_core.checkpoints.checkpoint import Best, Checkpoints

EVERY_STEP = Cadence(steps=1)
Usage = namedtuple("Usage", "total used free")


@pytest.fixture(params=["folder", "memory"])
def uri(request, tmp_path):
    root = str(tmp_path) if request.param == "folder" else f"memory://{uuid.uuid4().hex}"
    return f"{root}/checkpoints/cell-seed1"


def content(value, size=10):
    return {"weights": {"w": torch.full((size,), float(value))}, "facts": f"step {value}"}


def best(step):
    weights = {"w": torch.full((1000,), float(step))}
    return Best(step, lambda: {"weights": weights, "run": f"{step}"})


def last(uri):
    """The facts of the checkpoint in a new process, and the step of its best weights."""
    found = Checkpoints(uri, EVERY_STEP).load()
    return found and (found["facts"], *((found["best"]["run"],) if "best" in found else ()))


def test_files_have_the_permissions_of_the_umask(tmp_path):
    before = os.umask(0o022)
    Checkpoints(str(tmp_path), EVERY_STEP).save(content(1), (0, 1), best=best(1))
    os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o644}


def test_another_process_loads_what_was_saved_last(uri):
    checkpoints = Checkpoints(uri, EVERY_STEP)
    assert last(uri) is None
    for step in range(1, 4):
        checkpoints.save(content(step), (0, step))
        assert last(uri) == (f"step {step}",)
    loaded = Checkpoints(uri, EVERY_STEP).load()
    assert torch.equal(loaded["weights"]["w"], torch.full((10,), 3.0))
    checkpoints.clear()
    assert last(uri) is None
    checkpoints.clear()


def test_the_best_weights_are_written_when_they_have_changed(uri, monkeypatch):
    written, put = [], Checkpoints._put
    monkeypatch.setattr(
        Checkpoints, "_put", lambda *what: (written.append(what[-1]), put(*what)) and None
    )
    checkpoints = Checkpoints(uri, EVERY_STEP)
    for step, of_best in ((1, None), (2, 2), (3, 2), (4, 4), (5, 4)):
        checkpoints.save(content(step), (0, step), best=of_best and best(of_best))
    resumed = Checkpoints(uri, EVERY_STEP)
    resumed.load()
    resumed.save(content(6), (0, 6), best=best(4))
    assert last(uri) == ("step 6", "4") and len(written) == 6 + 2
    resumed.save(content(1), (1, 1))  # of the next model, which has none yet
    assert last(uri) == ("step 1",)
    resumed.save(content(4), (1, 4), best=best(4))
    assert last(uri) == ("step 4", "4") and len(written) == 8 + 3
    names = [path.rpartition("/")[2] for path in resumed.fs.ls(resumed.root, detail=False)]
    assert sorted(names) == ["checkpoint", written[-2]], "the other files are gone"


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data[: len(data) // 2] + b"?" + data[len(data) // 2 + 1 :],
    ],
    ids=["half", "empty", "one byte"],
)
@pytest.mark.parametrize("file", ["checkpoint", "checkpoint.best-000-000000001"])
def test_a_damaged_file_is_not_used(tmp_path, caplog, damage, file):
    Checkpoints(str(tmp_path), EVERY_STEP).save(content(1, size=1000), (0, 1), best=best(1))
    assert last(str(tmp_path)) == ("step 1", "1")
    (tmp_path / file).write_bytes(damage((tmp_path / file).read_bytes()))
    assert last(str(tmp_path)) is None and "broken" in caplog.text
    (tmp_path / file).unlink()
    assert last(str(tmp_path)) is None


def test_a_file_that_would_run_code_is_not_read(tmp_path, caplog):
    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "ran"),))

    Checkpoints(str(tmp_path), EVERY_STEP).save({"facts": Bomb()}, (0, 1))
    assert last(str(tmp_path)) is None and not (tmp_path / "ran").exists()


def test_a_full_disk_costs_a_warning(tmp_path, monkeypatch, caplog):
    uri = str(tmp_path / "c")
    checkpoints = Checkpoints(uri, EVERY_STEP)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**9, 10**9, 7999))
    checkpoints.save(content(1, size=1000), (0, 1))
    assert last(uri) is None and "free space" in caplog.text
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**9, 10**9, 9000))
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / ".checkpoint.unfinished").touch()  # of a writer that was killed
    checkpoints.save(content(2, size=1000), (0, 2))
    assert last(uri) == ("step 2",)

    def full(content, path):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint.torch, "save", full)
    checkpoints.save(content(3), (0, 3))
    assert last(uri) == ("step 2",) and "No space left on device" in caplog.text
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["checkpoint"]


def test_unavailable_storage_does_not_count_as_empty(tmp_path):
    (tmp_path / "share").write_text("the share is not mounted")
    uri = tmp_path / "share" / "checkpoints" / "trial"

    def brought_back(read):
        with pytest.raises(NotADirectoryError):
            read()
        (tmp_path / "share").unlink()
        uri.mkdir(parents=True)
        Checkpoints(str(uri), EVERY_STEP).save(content(1), (0, 1))
        return read()

    assert Checkpoints(str(uri), EVERY_STEP, wait=brought_back).load()["facts"] == "step 1"


def test_nothing_is_written_to_an_unmounted_mount_point(tmp_path, caplog):
    sweep = tmp_path / "mount" / "sweep"
    (tmp_path / "mount").mkdir()
    uri = str(sweep / "checkpoints" / "trial")
    Checkpoints(uri, EVERY_STEP, require=sweep.stat).save(content(1), (0, 1))
    assert list((tmp_path / "mount").iterdir()) == [] and "no checkpoint" in caplog.text


def test_a_quota_covers_all_trials(tmp_path, caplog):
    size, cadence = 4 * 10_000, Cadence(steps=1, quota_bytes=int(3.5 * 40_000))
    first, second = (Checkpoints(str(tmp_path / name), cadence) for name in "ab")
    for step in (1, 2):  # the new file is there before the old one is gone
        first.save(content(step, size=10_000), (0, step))
        second.save(content(step, size=10_000), (0, step))
    assert last(str(tmp_path / "b")) == ("step 2",) and caplog.text == ""
    Checkpoints(str(tmp_path / "c"), cadence).save(content(1, size=20_000), (0, 1))
    assert "quota" in caplog.text and last(str(tmp_path / "c")) is None
    assert size * 2 < sum(path.stat().st_size for path in tmp_path.rglob("checkpoint")) < size * 3


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
            checkpoints.save(content(second), (0, second))
    assert due == [60, 63 + 150, 63 + 150 + 153]  # 3 s are 2% of 150 s
    by_steps = Checkpoints(str(tmp_path), Cadence(steps=4))
    assert [step for step in range(1, 10) if by_steps.due(step)] == [4, 8]
