"""A killed driver costs time, and neither a number nor a record. tests/chaos kills all others."""

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
AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")


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
    run_local, start_sweep, processes_below, assert_recorded_once, tmp_path
):
    undisturbed = run_local(tmp_path / "undisturbed", *WORDS, "--tracking-uri", "none")
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
    ours, theirs = (values_of(sweep.folder) for sweep in (again, undisturbed))
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True)
    assert trials_of(again.folder)["status"].tolist() == ["done"] * 6
    assert_recorded_once(storage, trials=6, steps=STEPS)
