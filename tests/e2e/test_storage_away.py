"""The storage may go away for a while: driver and trials wait, and nothing is lost or doubled."""

import os
import shutil
import subprocess
import threading
import time
from functools import partial

import pytest

from sweeps.store.lock import FILE
from tests.e2e.conftest import trials_of

AWAY_SECONDS = float(os.environ.get("RANKSWEEP_OUTAGE_SECONDS", "2"))
UNMOUNTED_SECONDS = 20  # twice as long as the driver takes to notice
STEPS, TRIALS = 10, 6
WORDS = (
    f"--smoke-test --verbose --num-seeds 2 training.max_steps={STEPS} training.num_epochs=5 "
    "training.validate_every=10"
).split()
SWEEP = "results/window_stride/woods"
FOLDERS = ("an_empty_folder", "the_same_folders")


class Share:
    """A folder that goes away; at its path there is then what `instead` has made."""

    def __init__(self, home):
        (home / "disk" / "results").mkdir(parents=True)
        self.home, self.path, self.other = home, home / "share", home / "other"
        self.path.symlink_to("disk")

    def go_away(self, instead, *, seconds=AWAY_SECONDS):
        instead(self.home / instead.__name__)
        self._point_to(instead.__name__)
        if seconds:
            threading.Timer(seconds, self.come_back).start()

    def come_back(self):
        self._point_to("disk")

    def _point_to(self, target):
        self.other.symlink_to(target)
        os.replace(self.other, self.path)


def a_file(path):
    """In which nobody can make a folder."""
    path.write_text("the share is not mounted")


def an_empty_folder(path):
    """A mount point, which takes whatever is written."""
    path.mkdir()


def the_same_folders(path):
    """The sweep's folder made anew."""
    (path / SWEEP).mkdir(parents=True)


def written_below(path):
    """Files of the sweep, and MLflow's database, below a mount point without its mount."""
    return [*(path / SWEEP).rglob("*"), *path.rglob("mlflow.db")]


@pytest.mark.long
@pytest.mark.slow
def test_a_storage_that_goes_away_is_waited_for_and_nothing_is_lost_or_doubled(
    run_local, assert_recorded_once, tmp_path
):
    share = Share(tmp_path)
    actions = {
        f"[{ended}/6]": partial(share.go_away, instead)
        for ended, instead in ((1, a_file), (3, an_empty_folder), (5, the_same_folders))
    }
    sweep = run_local(share.path / "results", *WORDS, actions=actions)
    # A message a minute, however often it goes away.
    assert "trying again" in sweep.text and " is back" in sweep.text
    assert not any(written_below(tmp_path / instead) for instead in FOLDERS)
    assert_each_ran_once(sweep)
    assert_recorded_once(sweep.storage, trials=TRIALS, steps=STEPS)


def assert_each_ran_once(sweep):
    trials = trials_of(sweep.folder)
    assert trials["status"].tolist() == ["done"] * TRIALS
    assert trials["attempts"].tolist() == [1] * TRIALS


@pytest.mark.long
@pytest.mark.slow
def test_a_storage_that_stays_away_ends_the_command_which_resumes(
    run_local, assert_recorded_once, tmp_path, monkeypatch
):
    share = Share(tmp_path)
    storage = share.path / "results"
    monkeypatch.setattr("sweeps.store.storage.WAIT_SECONDS", 2.0)
    monkeypatch.setattr("sweeps.launch.sweep.DRAIN_SECONDS", 1.0)
    actions = {"[2/6]": partial(share.go_away, the_same_folders, seconds=0)}
    ended = run_local(storage, *WORDS, code=1, actions=actions)
    assert "the same command resumes" in ended.text and str(storage) in ended.text
    assert "Traceback" not in ended.text and not written_below(tmp_path / "the_same_folders")
    share.come_back()
    (share.path / SWEEP / FILE).unlink(missing_ok=True)  # its process would have ended
    again = run_local(storage, *WORDS)
    assert "\nReport: " in again.text and "\nTrials: " not in again.text  # none is lost
    trials = trials_of(again.folder)
    assert trials["status"].tolist() == ["done"] * TRIALS
    assert sum(trials["attempts"]) <= TRIALS + 1  # the running one ran again
    assert_recorded_once(storage, trials=TRIALS, steps=STEPS)


@pytest.fixture
def mounted(tmp_path):
    """A disk and its mount point."""
    if os.geteuid() or not shutil.which("mount"):
        pytest.skip("mounting needs root")
    disk, point = tmp_path / "disk", tmp_path / "point"
    disk.mkdir()
    point.mkdir()
    if subprocess.run(["mount", "--bind", disk, point], capture_output=True).returncode:
        pytest.skip("this machine does not let root mount")
    yield disk, point
    subprocess.run(["umount", "-l", point], check=True)


@pytest.mark.chaos
@pytest.mark.long
@pytest.mark.parametrize("engine", ["local", pytest.param("ray", marks=pytest.mark.ray)])
def test_an_unmounted_storage_is_waited_for(start_sweep, mounted, assert_recorded_once, engine):
    disk, point = mounted
    with start_sweep(point / "results", *WORDS, "--engine", engine) as sweep:
        while "[2/6]" not in log_of(disk):
            assert sweep.process.poll() is None, log_of(disk)
            time.sleep(0.05)
        subprocess.run(["umount", "-l", point], check=True)
        time.sleep(UNMOUNTED_SECONDS)
        below = written_below(point)
        subprocess.run(["mount", "--bind", disk, point], check=True)
        assert sweep.end() == 0, sweep.text
    assert not below
    assert "trying again" in sweep.text and " is back" in sweep.text
    assert_each_ran_once(sweep)
    assert_recorded_once(sweep.storage, trials=TRIALS, steps=STEPS)


def log_of(disk):
    return "".join(file.read_text() for file in disk.glob("results-*.log"))
