"""The pauses of a sweep's slots, counted by hand, and read from what trials leave."""

import json
import os

import pytest

from tests.benchmarks.sweep_overhead import computed, pauses


def test_a_pause_is_from_an_end_to_the_next_begin_on_the_same_slot():
    # Slot 1: 0-10, 11-20; slot 2: 2-15, 15.5-30; a third trial of slot 1 begins at 22.
    intervals = [(0, 10), (2, 15), (11, 20), (15.5, 30), (22, 25)]
    assert pauses(intervals, slots=2) == [1, 0.5, 2]
    assert pauses(intervals[::-1], slots=2) == [1, 0.5, 2]
    assert pauses(intervals, slots=5) == []


def test_a_trial_computed_until_it_wrote_its_result(tmp_path):
    folder = tmp_path / "runs" / "a-seed1"
    folder.mkdir(parents=True)
    path = folder / "result.json"
    path.write_text(json.dumps({"train_seconds": 20.0, "eval_seconds": 5.0}))
    os.utime(path, (1000.0, 1000.0))
    assert computed(tmp_path) == [(pytest.approx(975.0), 1000.0)]
