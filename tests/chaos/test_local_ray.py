"""A process of a laptop's Ray is killed, as the kernel does where memory is short: Ray is started
again, and the sweep ends by itself with the numbers of an undisturbed one.

RANKSWEEP_KILLS (1) says how many kills, each at a random moment with most of the sweep ahead;
RANKSWEEP_CHAOS_SEED repeats the moments.
"""

import os
import random
import re
import signal
import time
from pathlib import Path

import pandas as pd
import pytest

from sweeps.ray_engine.ray_log import RAY_LOG
from tests.e2e.conftest import descendants, values_of

KILLS = int(os.environ.get("RANKSWEEP_KILLS", "1"))
SEED = int(os.environ.get("RANKSWEEP_CHAOS_SEED", random.randrange(10**6)))
WORDS = (
    f"--smoke-test --num-seeds {2 + 2 * KILLS} training.max_steps=30 training.num_epochs=15 "
    "training.validate_every=10 --tracking-uri none"
).split()
pytestmark = [
    *(pytest.mark.ray, pytest.mark.chaos, pytest.mark.long),
    pytest.mark.timeout(600 + 300 * KILLS),
]


def executable(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
    except OSError:
        return ""  # it ended while we looked


def of_ray(name: str, pid: int) -> int:
    """The process of Ray called `name` that the process has started."""
    [found] = [one for one in descendants(pid) if executable(one).endswith(f"/{name}")]
    return found


def trial_processes() -> set[int]:
    """Processes of trials on this machine, whoever started them."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return {pid for pid in pids if executable(pid).startswith("ray::ImplicitFunc")}


@pytest.mark.parametrize("victim", ["raylet", "gcs_server"])
def test_a_sweep_survives_a_process_of_ray(
    start_sweep, run_local, processes_below, tmp_path, monkeypatch, victim
):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if KILLS == 1:  # else the processes that are left go on with half of this short sweep
        monkeypatch.setenv("RAY_health_check_period_ms", "1000")
    print(f"RANKSWEEP_CHAOS_SEED={SEED} RANKSWEEP_KILLS={KILLS}")
    moments, left_behind = random.Random(SEED), set()
    with start_sweep(tmp_path / "killed", *WORDS) as sweep:
        sweep.wait_for(" slot")
        for kill in range(1, KILLS + 1):
            ended = sweep.text.count(" dev ")
            while sweep.text.count(" dev ") == ended:
                assert sweep.process.poll() is None, sweep.text
                time.sleep(0.1)
            time.sleep(moments.uniform(0, 4))
            trials = trial_processes() & set(processes_below(sweep.process.pid))
            assert {niceness(pid) for pid in trials} == {niceness(sweep.process.pid)}
            left_behind |= trials
            os.kill(of_ray(victim, sweep.process.pid), signal.SIGKILL)
            while sweep.text.count("restarting it") < kill:
                assert sweep.process.poll() is None, sweep.text
                time.sleep(0.1)
        code = sweep.end()
    if code and victim == "gcs_server" and "GCS may have been killed" in ray_log(sweep).read_text():
        # Ray's client in the driver has ended the process, as it seldom does: nothing is lost.
        run_local(tmp_path / "killed", *WORDS)
    else:
        assert code == 0, sweep.text
        assert left_behind and not left_behind & trial_processes()
        assert_no_lines_of_ray(sweep)
    undisturbed = run_local(tmp_path / "undisturbed", *WORDS)
    ours, theirs = (values_of(one.folder) for one in (sweep, undisturbed))
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True)


def ray_log(sweep) -> Path:
    return sweep.folder / RAY_LOG


def niceness(pid: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, pid)


def assert_no_lines_of_ray(sweep):
    """They are in a file, which is named once."""
    assert sweep.text.count(str(ray_log(sweep))) == 1
    assert not any(words in sweep.text for words in ("did not complete", "Failed", "(raylet)"))
    assert not re.search(r"^\S*\[?20\d\d-\d\d-\d\d", sweep.text, re.MULTILINE)
    assert ray_log(sweep).is_file()
