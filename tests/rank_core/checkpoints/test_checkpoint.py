"""The checkpoint file: whole or not used, replaced, and never the reason for a trial's end."""

import os
import re
import shutil
import stat
import subprocess
import tempfile
import threading
import uuid
from collections import namedtuple

import numpy as np
import pytest
import torch

from rank_core.checkpoints import UPLOAD_SHARE, Cadence, checkpoint
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
    written, write = [], torch.save

    def save(content, path):
        written.append(re.search(r"checkpoint(\.best-\d+-\d+)?", path.name)[0])
        write(content, path)

    monkeypatch.setattr(torch, "save", save)
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


@pytest.fixture
def far(tmp_path, monkeypatch):
    """A storage that is not on this node's disk and waits for a word before it takes a file: the
    word, and the state that `load` finds there."""
    word = threading.Event()
    monkeypatch.setattr(checkpoint, "_one_disk", lambda *paths: False)
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    (tmp_path / "node").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "node"))
    copy = shutil.copyfile

    def slow(source, target):
        assert word.wait(60)
        return copy(source, target)

    monkeypatch.setattr(checkpoint.shutil, "copyfile", slow)
    return word


def moved_on(checkpoints):
    """Whether the upload ends within a minute."""
    checkpoints.finish(60)
    return not checkpoints._upload.running


def test_a_trial_does_not_wait_for_a_storage_elsewhere(tmp_path, far):
    now, uri = [0.0], str(tmp_path / "far" / "t")
    checkpoints = Checkpoints(uri, Cadence(minutes=1), clock=lambda: now[0])
    now[0] = 100
    assert checkpoints.due(1)
    checkpoints.save(content(1), (0, 1), best=best(1))
    now[0] = 10**6
    assert last(uri) is None and not checkpoints.due(2), "one upload at a time"
    assert any((tmp_path / "node").iterdir()), "it is on the node's disk"
    far.set()
    assert moved_on(checkpoints) and last(uri) == ("step 1", "1")
    assert not any((tmp_path / "node").iterdir())
    took = checkpoints._upload.seconds
    assert took == 10**6 - 100
    now[0] = 100 + 0.49 * took / UPLOAD_SHARE  # intervals are stretched by 0.5 to 1.5
    assert not checkpoints.due(3), "a slow way is used less often"
    now[0] = 100 + 1.51 * took / UPLOAD_SHARE
    assert checkpoints.due(4)


def test_trials_of_a_node_take_turns_and_the_state_is_that_of_the_turn(tmp_path, far):
    now = [0.0]
    first, second = (
        Checkpoints(str(tmp_path / "far" / name), Cadence(minutes=1), clock=lambda: now[0])
        for name in "ab"
    )
    now[0] = 100
    assert first.due(1) and first.due(1) and not second.due(1)
    first.save(content(1), (0, 1))
    assert not second.due(2)
    far.set()
    first._upload.wait(60)
    assert second.due(3)
    second.clear()  # a trial that ends has no turn
    now[0] = 10**6
    assert first.due(9)


def test_a_notice_brings_the_state_of_the_next_step_to_the_storage(tmp_path, far):
    noticed, uri = [], str(tmp_path / "far" / "t")
    checkpoints = Checkpoints(uri, Cadence(minutes=1), notice=lambda: bool(noticed))
    assert not checkpoints.due(1)
    checkpoints.save(content(1), (0, 1))
    noticed.append(True)
    assert checkpoints.due(2), "also while one is on its way"
    threading.Timer(0.1, far.set).start()
    checkpoints.save(content(2), (0, 2))
    assert moved_on(checkpoints)
    assert last(uri) == ("step 2",) and checkpoints.saved.position == (0, 2)
    assert checkpoints.saved.age < 60
    checkpoints.leave(checkpoints.saved)
    assert checkpoints.leaving.text.startswith("checkpoint of step 2, ")
    assert not checkpoints.due(3)


@pytest.mark.parametrize(("position", "leaves"), [((0, 2), True), ((1, 2), False), ((0, 3), False)])
def test_a_trial_leaves_on_a_wish_only_with_the_state_of_its_own_fold(tmp_path, position, leaves):
    """The second step of the next fold is not that of the last one."""
    checkpoints = Checkpoints(str(tmp_path / "t"), EVERY_STEP, wish=lambda: True)
    checkpoints.save(content(1), (0, 2))
    checkpoints.leave_on_wish(checkpoints.saved, position)
    assert (bool(checkpoints.leaving), checkpoints.wished) == (leaves, leaves)


def test_a_storage_elsewhere_that_fails_leaves_the_last_checkpoint(
    tmp_path, far, caplog, monkeypatch
):
    uri, away = str(tmp_path / "far" / "t"), []

    def require():
        if away:
            raise OSError(5, "Input/output error")

    checkpoints = Checkpoints(uri, Cadence(minutes=1), require=require)
    far.set()
    checkpoints.save(content(1), (0, 1))
    assert moved_on(checkpoints)
    write = torch.save
    monkeypatch.setattr(torch, "save", lambda *what: (write(*what), away.append(True)))
    for step in (2, 3):  # it goes while the second is on its way, and is away for the third
        checkpoints.save(content(step), (0, step))
        assert moved_on(checkpoints) and last(uri) == ("step 1",)
    assert caplog.text.count("Input/output error") == 2
    assert not any((tmp_path / "node").iterdir())


@pytest.mark.parametrize("with_best", [False, True])
def test_an_upload_that_outlives_its_attempt_changes_nothing(tmp_path, far, monkeypatch, with_best):
    uri = str(tmp_path / "far" / "t")
    slow = Checkpoints(uri, Cadence(minutes=1))
    slow.save(content(1), (0, 1), best=best(1) if with_best else None)
    slow.finish(0.01)
    monkeypatch.setattr(checkpoint, "_one_disk", lambda *paths: True)
    Checkpoints(uri, EVERY_STEP).save(content(2), (0, 2), best=best(2))  # where it goes on
    far.set()
    slow._upload.wait(60)
    assert last(uri) == ("step 2", "2") and slow.saved is None
    assert len([*(tmp_path / "far" / "t").iterdir()]) == 2, "nothing unfinished stays"


def test_a_checkpoint_that_is_not_used_leaves_none_of_its_weights(tmp_path):
    """Those of a trial that starts anew may be the best at the same step."""
    uri = str(tmp_path / "t")
    Checkpoints(uri, EVERY_STEP).save(content(1), (0, 1), best=best(1))
    again = Checkpoints(uri, EVERY_STEP)
    assert again.load()
    again.forget()
    others = {"weights": "others", "run": "others"}
    weights = Best(1, lambda: others)
    again.save(content(2), (0, 2), best=weights)
    assert Checkpoints(uri, EVERY_STEP).load()["best"] == others
    [file] = (tmp_path / "t").glob("*.best-*")
    file.unlink()
    broken = Checkpoints(uri, EVERY_STEP)
    assert broken.load() is None
    broken.save(content(3), (0, 3), best=weights)
    assert last(uri) == ("step 3", "others")


def test_a_checkpoint_that_is_refused_takes_no_turn(tmp_path, far):
    now = [0.0]
    first, second = (
        Checkpoints(str(tmp_path / "far" / name), cadence, clock=lambda: now[0])
        for name, cadence in (("a", Cadence(1, quota_bytes=1)), ("b", Cadence(1)))
    )
    now[0] = 100
    assert first.due(1) and not second.due(1)
    first.save(content(1), (0, 1))
    assert first.saved is None and second.due(2)


def test_what_a_killed_process_had_on_its_way_is_removed(tmp_path, far):
    node = tmp_path / "node"
    ended = subprocess.Popen(["true"])
    ended.wait()
    for pid in (ended.pid, os.getpid()):
        (node / f"{checkpoint._left_by(pid)}-x").mkdir()
    Checkpoints(str(tmp_path / "far" / "t"), Cadence(minutes=1))
    assert [path.name for path in node.iterdir()] == [f"{checkpoint._left_by(os.getpid())}-x"]


def test_a_node_without_room_writes_where_it_can(tmp_path, far, monkeypatch):
    usage = {str(tmp_path / "node"): 7999}
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: Usage(10**9, 10**9, usage.get(str(path), 10**9))
    )
    uri = str(tmp_path / "far" / "t")
    Checkpoints(uri, Cadence(minutes=1)).save(content(1, size=1000), (0, 1))
    assert last(uri) == ("step 1",)  # without a word: not behind the trial


def test_the_loss_of_a_node_costs_half_an_interval_and_an_upload():
    """Half of a minute, longer by a twenty-fourth: the variance of its stretch is a twelfth."""
    lost = Cadence(minutes=1).lost_seconds
    assert lost(10**9, 10**9, trials=1, nodes=1) == pytest.approx(1 + 30 * 13 / 12)
    assert lost(10**9, 10**9, trials=100, nodes=1) == pytest.approx(1 + 50 * 13 / 12)
    assert lost(10**9, 10**9, trials=100, nodes=5) == pytest.approx(5 + 50 * 13 / 12)
    # An upload of 20 s is due after 100 s.
    assert lost(20 * 10**9, 10**9, trials=1, nodes=1) == pytest.approx(20 + 50 * 13 / 12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nodes", "per_node", "seconds"),
    [(8, 8, 0.8), (8, 8, 1.3), (4, 16, 1.3), (16, 4, 1.3), (2, 1, 17.6), (2, 8, 10.0)],
)
def test_the_cost_of_a_lost_node_is_that_of_a_simulation(nodes, per_node, seconds):
    """Below and above what the storage carries; `seconds` of an upload alone."""
    simulated = np.mean([_simulated_loss(nodes, per_node, seconds, seed) for seed in range(2)])
    lost = Cadence(minutes=1).lost_seconds(int(seconds * 1e9), 1e9, nodes * per_node, nodes)
    print(f"{nodes} nodes x {per_node}, {seconds} s: {lost:.1f} s, simulated {simulated:.1f} s")
    assert lost == pytest.approx(simulated, rel=0.1)


def _simulated_loss(nodes: int, per_node: int, seconds: float, seed: int, step: float = 0.2):
    """The mean age of the states in the storage, in two hours after a first half."""
    random = np.random.default_rng(seed)
    trials = nodes * per_node
    node = np.arange(trials) // per_node
    since, stretch = np.zeros(trials), random.uniform(0.5, 1.5, trials)
    left, taken, took, saved = np.zeros((4, trials))
    sending, ages = np.full(nodes, -1), []
    for now in np.arange(0, 9000, step):
        on_way = sending[sending >= 0]
        left[on_way] -= step / max(1, len(on_way))
        for trial in on_way[left[on_way] <= 0]:
            saved[trial], took[trial] = taken[trial], now - taken[trial]
            sending[node[trial]] = -1
        due = now - since >= stretch * np.maximum(60, took / UPLOAD_SHARE)
        for trial in random.permutation(np.flatnonzero(due)):
            if sending[node[trial]] < 0:
                sending[node[trial]] = trial
                left[trial], taken[trial], since[trial] = seconds, now, now
                stretch[trial] = random.uniform(0.5, 1.5)
        if now > 1800:
            ages.append(np.mean(now - saved))
    return np.mean(ages)
