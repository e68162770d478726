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
