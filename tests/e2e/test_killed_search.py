"""Searches that are killed in the middle end as if undisturbed."""

import json

import pandas as pd
import pytest

from sweeps.report.load import load_sweep
from sweeps.report.search import left_after
from tests.e2e.conftest import kill

pytestmark = pytest.mark.slow

# With such an indifference all but the leader leave at the first look, whatever the luck of seeds.
RACE = (
    "--search race --num-seeds 4 --race-delta 0.5 training.max_steps=2 training.batch_size=4 "
    "evaluation.depth=5 chunking.window=16,24 chunking.stride=8 --tracking-uri none"
).split()
PROPOSE = (
    "--smoke-test --search tpe --num-configs 2 chunking.window=16,24 chunking.stride=8,16 "
    "--tracking-uri none"
).split()

CLIMB = (
    "--search halving --halving-eta 2 --num-seeds 2 training.num_epochs=4 training.epoch_steps=1 "
    "training.batch_size=4 evaluation.depth=5 chunking.window=16,24 chunking.stride=8,12 "
    "--tracking-uri none"
).split()


def decided(folder):
    search = json.loads((folder / "sweep.json").read_text())["search"]
    return search, pd.read_parquet(folder / "per_query.parquet")


def test_a_killed_race_goes_on_with_the_same_decisions(run_local, tmp_path):
    whole = run_local(tmp_path / "whole", *RACE)
    run_local(tmp_path / "killed", *RACE, code=None, actions={"[5/": kill})
    again = run_local(tmp_path / "killed", *RACE)
    search, scores = decided(whole.folder)
    found, values = decided(again.folder)
    assert found == search and search["over"]
    pd.testing.assert_frame_equal(values, scores, check_exact=True)
    sweep = load_sweep(whole.folder)
    left = left_after(sweep)
    assert list(left.values()) == [2]
    runs = scores.groupby("cell")["seed"].nunique()
    assert {cell: int(runs[cell]) for cell in runs.index} == {
        cell: left.get(cell, 4) for cell in runs.index
    }
    assert "were eliminated before they had all 4 seeds" in " ".join(whole.text.split())
    assert "nothing to launch" in run_local(tmp_path / "killed", *RACE).text


def test_a_killed_search_proposes_the_same_again(run_local, tmp_path):
    whole = run_local(tmp_path / "whole", *PROPOSE)
    run_local(tmp_path / "killed", *PROPOSE, code=None, actions={"[2/": kill})
    again = run_local(tmp_path / "killed", *PROPOSE)
    cells = [[one["cell"] for one in json.loads((sweep.folder / "sweep.json").read_text())["cells"]]
             for sweep in (whole, again)]  # fmt: skip
    assert cells[0] == cells[1] and len(cells[0]) == 3
    assert decided(whole.folder)[0] == decided(again.folder)[0]


def test_a_killed_halving_goes_on_from_its_rungs_with_the_same_decisions(run_local, tmp_path):
    whole = run_local(tmp_path / "whole", *CLIMB)
    run_local(tmp_path / "killed", *CLIMB, code=None, actions={"[4/": kill})
    again = run_local(tmp_path / "killed", *CLIMB)
    search, scores = decided(whole.folder)
    assert [(one["epochs"], one["configurations"]) for one in search["rungs"]] == [
        (1, 4),
        (2, 2),
        (4, 1),
    ]
    found, values = decided(again.folder)
    assert found == search and search["over"]
    pd.testing.assert_frame_equal(values, scores, check_exact=True)
    trials = pd.read_parquet(whole.folder / "trials.parquet")
    assert trials["status"].value_counts().to_dict() == {"done": 4, "stopped": 3}
    assert set(trials["attempts"]) == {1}  # to go on is no further attempt
    stopped = {f"{row.cell}-seed{row.seed}" for row in trials.itertuples()
               if row.status == "stopped"}  # fmt: skip
    assert not any((whole.folder / "runs" / name).exists() for name in stopped)
    for sweep in (whole, again):
        assert not list((sweep.folder / "checkpoints").glob("*"))
    assert "stopped before: 1 after epoch 2, 2 after epoch 1" in " ".join(again.text.split())
    assert "nothing to launch" in run_local(tmp_path / "killed", *CLIMB).text
