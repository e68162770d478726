"""A killed driver and a killed trial cost time, and neither a number nor a record."""

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pytest

from tests.e2e.conftest import trials_of, values_of

pytestmark = [pytest.mark.ray, pytest.mark.chaos, pytest.mark.long]

STEPS = 30
WORDS = (
    f"--smoke-test --num-seeds 2 training.max_steps={STEPS} training.num_epochs=15 "
    "training.validate_every=10"
).split()
OFTEN = ("--checkpoint-minutes", "0.0001")  # a killed trial goes on in the middle
TRIALS = 6
AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")


@pytest.fixture(scope="module")
def undisturbed(run_sweep, tmp_path_factory):
    return run_sweep(tmp_path_factory.mktemp("undisturbed") / "results", *WORDS)


def assert_same_numbers(folder, undisturbed):
    ours, theirs = (values_of(path) for path in (folder, undisturbed.folder))
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True)
    assert len(ours.groupby(["cell", "seed"])) == TRIALS
    trials = trials_of(folder)
    assert trials["status"].tolist() == ["done"] * TRIALS


def identity(pid: int) -> str | None:
    """What tells a process from a later one with the same number; None once it is gone."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] == "Z" else fields[19]
    return None


def end_agents(pids: dict[int, str | None]) -> None:
    """Ends two watchers of Ray that never notice that nothing is left to be watched."""
    for pid, start in pids.items():
        with suppress(OSError):  # gone like the others
            title = Path(f"/proc/{pid}/cmdline").read_text()
            if identity(pid) == start and title.startswith(AGENTS):
                os.kill(pid, signal.SIGKILL)


def test_a_killed_driver_goes_on_where_it_was(
    undisturbed, start_sweep, processes_below, assert_recorded_once, tmp_path
):
    storage = tmp_path / "results"
    with start_sweep(storage, *WORDS, *OFTEN) as sweep:
        sweep.wait_for("[1/6]")
        pause = random.uniform(0, 3)
        print(f"killed {pause:.2f} s after the first trial")  # shown where the test fails
        time.sleep(pause)
        below = {pid: identity(pid) for pid in processes_below(sweep.process.pid)}
        sweep.process.kill()
        sweep.process.wait(300)
        killed_in_time = "[6/6]" not in sweep.text
    end_agents(below)
    deadline = time.monotonic() + 60
    while left := [pid for pid, start in below.items() if start and identity(pid) == start]:
        if time.monotonic() > deadline:
            for pid in left:
                with suppress(ProcessLookupError):  # it went at last
                    os.kill(pid, signal.SIGKILL)
            pytest.fail(f"{len(left)} processes outlived their driver by a minute")
        time.sleep(0.2)
    with start_sweep(storage, *WORDS, *OFTEN) as again:
        assert again.end() == 0, again.text
    assert not killed_in_time or "of them done" in again.text
    assert_same_numbers(again.folder, undisturbed)
    assert_recorded_once(storage, trials=TRIALS, steps=STEPS)


def busy_trial(pids: list[int]) -> int | None:
    """A process that computes a trial now, by the title that Ray gives it."""
    for pid in pids:
        with suppress(OSError):  # it ended while we looked
            title = Path(f"/proc/{pid}/cmdline").read_text()
            if title.startswith("ray::") and ".train" in title:
                return pid
    return None


def kill_a_trial(sweep, processes_below):
    """Kills a process that computes a trial, until the sweep says that it tries one again. A kill
    in the moment between a trial's result and the end of its process costs the sweep nothing."""
    while "attempt 2" not in sweep.text:
        victim = None
        while victim is None:
            assert sweep.process.poll() is None, sweep.text
            victim = busy_trial(processes_below(sweep.process.pid))
        os.kill(victim, signal.SIGKILL)
        deadline = time.monotonic() + 20
        while "attempt 2" not in sweep.text and time.monotonic() < deadline:
            time.sleep(0.1)


def test_a_killed_trial_is_run_again_and_the_sweep_ends_well(
    undisturbed, start_sweep, processes_below, assert_recorded_once, tmp_path
):
    storage = tmp_path / "results"
    with start_sweep(storage, *WORDS, *OFTEN) as sweep:
        sweep.wait_for("[1/6]")
        kill_a_trial(sweep, processes_below)
        assert sweep.end() == 0, sweep.text
    attempts = trials_of(sweep.folder)["attempts"]
    assert sorted(attempts) == [1] * (TRIALS - 1) + [2]
    assert_same_numbers(sweep.folder, undisturbed)
    assert_recorded_once(storage, trials=TRIALS, steps=STEPS)
