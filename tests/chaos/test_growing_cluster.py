"""A cluster that changes under a sweep: a node joins and gets trials, another one leaves, and the
values are those of a sweep that one process computes."""

import json
import re
import time
from contextlib import closing
from itertools import pairwise

import pandas as pd
import pytest

from tests.chaos.victims import Machines
from tests.e2e.conftest import trials_of, values_of

TRIALS = 12
WORDS = (
    "--smoke-test --num-seeds 4 training.max_steps=20 training.num_epochs=10 --tracking-uri none"
).split()
pytestmark = [
    *(pytest.mark.ray, pytest.mark.chaos, pytest.mark.long),
    pytest.mark.timeout(1800),
]


def spans(sweep):
    """When each attempt so far began and ended, by its end."""
    files = sweep.storage.glob("trials/*/attempt-*.json")
    attempts = [json.loads(file.read_text()) for file in files]
    return sorted((a["ended"], a["begun"]) for a in attempts if a["ended"])


def side_by_side(sweep):
    """The number of attempts that began before an earlier one had ended."""
    ends = spans(sweep)
    return sum(begun < before for (before, _), (_, begun) in pairwise(ends))


def wait_for_ends(sweep, number):
    while len(spans(sweep)) < number:
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
            wait_for_ends(sweep, 2)
            assert side_by_side(sweep) == 0
            machines.join()
            sweep.wait_for("nodes have joined: 2 slots, 1 before")
            wait_for_ends(sweep, 6)
            assert side_by_side(sweep) > 0
            machines.leave(0)  # what follows runs on the second
            sweep.wait_for("nodes have left: 1 slot, 2 before")
            assert sweep.end() == 0, sweep.text
    trials = trials_of(sweep.folder)
    assert trials["status"].tolist() == ["done"] * TRIALS
    assert re.search(r"12 trials on 3 slots", sweep.text)
    undisturbed = run_local(tmp_path / "undisturbed", *WORDS)
    ours, theirs = values_of(sweep.folder), values_of(undisturbed.folder)
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True)
