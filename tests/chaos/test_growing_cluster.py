"""A cluster that changes under a sweep: a node joins and gets trials, another one leaves, and the
values are those of a sweep that one process computes."""

import json
import re
import time
from contextlib import closing

import pandas as pd
import pytest

from tests.chaos.victims import Machines
from tests.e2e.conftest import trials_of, values_of

# A trial is longer than the start of a process: a warm process takes shorter ones from the process
# that starts on a new node (docs/cluster.md).
TRIALS = 12
WORDS = (
    "--smoke-test --num-seeds 4 training.max_steps=200 training.num_epochs=100 --tracking-uri none"
).split()
STEPS = 600
LONG = (
    f"--smoke-test --num-seeds 1 chunking.window=48 chunking.stride=32 training.max_steps={STEPS} "
    "training.num_epochs=400 training.validate_every=300 --tracking-uri none"
).split()
"""Two trials that run for some time after both have begun."""
pytestmark = [
    *(pytest.mark.ray, pytest.mark.chaos, pytest.mark.long),
    pytest.mark.timeout(1800),
]


def attempts(sweep, ended):
    """The number of attempts that have ended, or that run now."""
    files = sweep.storage.glob("trials/*/attempt-*.json")
    return sum(bool(json.loads(file.read_text())["ended"]) is ended for file in files)


def wait_for(sweep, seen):
    while not seen():
        assert sweep.process.poll() is None, sweep.text
        time.sleep(0.2)


def test_trials_follow_the_nodes(start_sweep, run_local, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with closing(Machines(0)) as machines:
        monkeypatch.setenv("RAY_ADDRESS", machines.address)
        words = (*WORDS, "--max-slots", "3")
        with start_sweep(tmp_path / "changing", *words) as sweep:
            sweep.wait_for("waiting for a first node")
            machines.join()
            wait_for(sweep, lambda: attempts(sweep, ended=True) == 2)
            assert attempts(sweep, ended=False) <= 1
            machines.join()
            sweep.wait_for("nodes have joined: 2 slots, 1 before")
            wait_for(sweep, lambda: attempts(sweep, ended=False) == 2)
            machines.leave(0)  # what follows runs on the second
            sweep.wait_for("nodes have left: 1 slot, 2 before")
            assert sweep.end() == 0, sweep.text
    trials = trials_of(sweep.folder)
    assert trials["status"].tolist() == ["done"] * TRIALS
    assert re.search(f"{TRIALS} trials on 3 slots", sweep.text)
    undisturbed = run_local(tmp_path / "undisturbed", *WORDS)
    ours, theirs = values_of(sweep.folder), values_of(undisturbed.folder)
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True)


def test_a_drained_node_saves_its_trial_and_gets_no_other(
    start_sweep, run_local, tmp_path, monkeypatch
):
    """No checkpoint is due within the test: the one that counts is that of the notice."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    words = (*LONG, "--checkpoint-minutes", "60")
    with closing(Machines(2)) as machines:
        monkeypatch.setenv("RAY_ADDRESS", machines.address)
        with start_sweep(tmp_path / "drained", *words) as sweep:
            wait_for(sweep, lambda: len(list(sweep.storage.glob("trials/*/progress.json"))) == 2)
            machines.drain(0, 300.0)
            sweep.wait_for("its node is going;")
            sweep.wait_for("nodes have left: 1 slot, 2 before")
            machines.leave(0)
            assert sweep.end() == 0, sweep.text
    pattern = r"checkpoint\s+of\s+step\s+(\d+),\s+(\d+\.\d)\s+s\s+old"  # lines are wrapped
    step, age = re.search(pattern, sweep.text).groups()
    print(f"the last checkpoint was of step {step} and {age} s old")
    assert 0 < int(step) <= STEPS and float(age) < 60
    trials = trials_of(sweep.folder)
    assert trials["status"].tolist() == ["done"] * 2 and trials["attempts"].sum() == 3
    undisturbed = run_local(tmp_path / "undisturbed", *words)
    ours, theirs = values_of(sweep.folder), values_of(undisturbed.folder)
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True)
