"""Whatever dies, and however often, the finished sweep is what an undisturbed one would have been.

RANKSWEEP_KILLS (5) says how many kills; RANKSWEEP_CHAOS_SEED repeats a choice of victims and times.
A sweep that has ended before the last kill is followed by another one on an empty storage.
"""

import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

import pandas as pd
import pytest

from tests.chaos.victims import Machines, Server
from tests.e2e.conftest import trials_of, values_of

KILLS = int(os.environ.get("RANKSWEEP_KILLS", "5"))
SEED = int(os.environ.get("RANKSWEEP_CHAOS_SEED", random.randrange(10**6)))
pytestmark = [
    pytest.mark.ray,
    pytest.mark.chaos,
    pytest.mark.long,
    pytest.mark.timeout(1800 + 90 * KILLS),
]

STEPS, TRIALS, NODES = 30, 12, 2
WORDS = (
    f"--smoke-test --num-seeds 4 training.max_steps={STEPS} training.num_epochs=15 "
    "training.validate_every=10"
).split()
PAUSE = (1.0, 6.0)  # seconds between kills
VICTIMS = ("trial", "trial", "driver", "raylet", "mlflow")
MAX_COMMANDS = 4 * KILLS + 10


def busy_trial(pids: list[int]) -> int | None:
    """A process that computes a trial now, by the title that Ray gives it."""
    for pid in pids:
        with suppress(OSError):  # it ended while we looked
            title = Path(f"/proc/{pid}/cmdline").read_text()
            if title.startswith("ray::") and ".train" in title:
                return pid
    return None


class Chaos:
    """Kills by a seeded choice and keeps the log."""

    def __init__(self, machines, processes_below):
        self.machines, self.below = machines, processes_below
        self.random, self.start = random.Random(SEED), time.monotonic()
        self.kills = Counter()

    def strike(self, driver, server):
        """One kill, if its victim is there."""
        victim, done = self.random.choice(VICTIMS), True
        if victim == "trial":
            pids = [pid for raylet in self.machines.raylets() for pid in self.below(raylet)]
            self.random.shuffle(pids)
            pid = busy_trial(pids)
            done = pid is not None
            if done:
                os.kill(pid, signal.SIGKILL)
        elif victim == "driver":
            driver.kill()
            driver.wait(300)
        elif victim == "raylet":
            self.machines.kill(self.random.randrange(NODES))
        else:
            done = server.kill()
        if done:
            self.kills[victim] += 1
            self.say(f"kill {self.kills.total()}: {victim}")

    def say(self, text):
        print(f"{time.monotonic() - self.start:7.1f} s  {text}", file=sys.stderr, flush=True)


@pytest.fixture(scope="module")
def undisturbed(start_sweep, tmp_path_factory):
    words = (*WORDS, "--tracking-uri", "none")
    with start_sweep(tmp_path_factory.mktemp("undisturbed") / "results", *words) as sweep:
        assert sweep.process.wait(900) == 0, sweep.text
    return sweep


@pytest.fixture
def chaos(monkeypatch, processes_below):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with closing(Machines(NODES)) as machines:
        monkeypatch.setenv("RAY_ADDRESS", machines.address)
        yield Chaos(machines, processes_below)


def survive(chaos, server, start_sweep, storage):
    """The same command again and again until it ends well, with kills on the way."""
    for _ in range(MAX_COMMANDS):
        with start_sweep(storage, *WORDS, "--tracking-uri", server.address) as sweep:
            while sweep.process.poll() is None:
                time.sleep(chaos.random.uniform(*PAUSE))
                launched = " slot" in sweep.text
                if launched and chaos.kills.total() < KILLS and sweep.process.poll() is None:
                    chaos.strike(sweep.process, server)
            code = sweep.process.returncode
        chaos.say(f"the command ended with {code}")
        if code == 0:
            return sweep
        assert code in (-signal.SIGKILL, 3) or "raylet" in sweep.text.lower(), sweep.text
    pytest.fail(f"not done after {MAX_COMMANDS} commands")


def assert_same_numbers(sweep, undisturbed):
    ours, theirs = (values_of(one.folder) for one in (sweep, undisturbed))
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True)
    trials = trials_of(sweep.folder)
    assert trials["status"].tolist() == ["done"] * TRIALS
    assert not trials.duplicated(["cell", "seed"]).any()
    assert len(ours.groupby(["cell", "seed"])) == TRIALS


def test_every_number_and_record_survives(
    chaos, undisturbed, start_sweep, assert_recorded_once, tmp_path
):
    chaos.say(f"RANKSWEEP_CHAOS_SEED={SEED} RANKSWEEP_KILLS={KILLS}")
    sweeps = 0
    while chaos.kills.total() < KILLS:
        sweeps += 1
        storage = tmp_path / f"results{sweeps}"
        storage.mkdir()
        with closing(Server(f"sqlite:///{storage / 'mlflow.db'}")) as server:
            sweep = survive(chaos, server, start_sweep, storage)
        assert_same_numbers(sweep, undisturbed)
        assert_recorded_once(storage, trials=TRIALS, steps=STEPS)
    chaos.say(f"{chaos.kills.total()} kills in {sweeps} sweeps: {dict(chaos.kills)}")
