"""A race that is killed in the middle ends as if undisturbed; of other searches see
tests/sweeps/search."""

import json

import pandas as pd
import pytest

from sweeps.report.load import load_sweep
from sweeps.report.summary import left_after
from tests.e2e.conftest import kill, values_of

pytestmark = pytest.mark.slow

# With such an indifference all but the leader leave at the first look, whatever the luck of seeds.
RACE = (
    "--search race --num-seeds 4 --race-delta 0.5 training.max_steps=2 training.batch_size=4 "
    "evaluation.depth=5 chunking.window=16,24 chunking.stride=8 --tracking-uri none"
).split()


def decided(folder):
    return json.loads((folder / "sweep.json").read_text())["search"], values_of(folder)


@pytest.mark.long
def test_a_killed_race_resumes_with_the_same_decisions(run_local, tmp_path):
    whole = run_local(tmp_path / "whole", *RACE)
    run_local(tmp_path / "killed", *RACE, code=None, actions={"[5/": kill})
    again = run_local(tmp_path / "killed", *RACE)
    search, scores = decided(whole.folder)
    found, values = decided(again.folder)
    assert found == search and search["over"]
    pd.testing.assert_frame_equal(values, scores, check_exact=True)
    left = left_after(load_sweep(whole.folder))
    assert list(left.values()) == [2]
    runs = scores.groupby("cell")["seed"].nunique()
    assert {cell: int(runs[cell]) for cell in runs.index} == {
        cell: left.get(cell, 4) for cell in runs.index
    }
    assert "were eliminated before they had all 4 seeds" in " ".join(whole.text.split())
    assert "nothing to launch" in run_local(tmp_path / "killed", *RACE).text
