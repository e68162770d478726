"""A sweep and its confirmation from end to end: the same two cells, seeds nobody has seen."""

import json
import shutil

import pytest

from tests.e2e.conftest import trials_of, values_of

pytestmark = pytest.mark.slow


def folders(storage):
    return (storage / name / "woods" for name in ("window_stride", "window_stride-confirm"))


def test_winner_and_baseline_are_trained_again_with_fresh_seeds(confirmed):
    first, folder = folders(confirmed.storage)
    shortlist = json.loads((folder / "sweep.json").read_text())["confirms"]
    trials = trials_of(folder)
    assert set(trials["seed"]) == {5, 6} and set(trials["status"]) == {"done"}
    cells = {shortlist["winner"]["cell"], shortlist["baseline"]["cell"]}
    assert set(trials["cell"]) == cells and len(trials) == 4
    assert cells <= set(trials_of(first)["cell"])
    dev = values_of(first).query("split == 'dev' and measure == 'nDCG@10'")
    means = dev.groupby("cell")["value"].mean().drop(shortlist["baseline"]["cell"])
    assert shortlist["dev_mean"] == pytest.approx(means.max())
    assert means[shortlist["winner"]["cell"]] == means.max()
    for cell in cells:
        ours, theirs = (
            json.loads((confirmed.storage / f"trials/{cell}-seed{seed}/config.json").read_text())
            for seed in (5, 3)
        )
        assert ours | {"seed": 3} == theirs
    assert "before any run below was started" in " ".join(confirmed.text.split())
    assert "before any run below was started" in (folder / "report" / "index.html").read_text()
    [access] = (folder / "test_access.jsonl").read_text().splitlines()
    assert json.loads(access)["seeds"] == [5, 6] and "--confirm" in json.loads(access)["command"]


def test_the_same_confirmation_again_chooses_and_launches_nothing(confirmed, run_local, tmp_path):
    storage = shutil.copytree(confirmed.storage, tmp_path / "results")
    _, folder = folders(storage)
    table, description = folder / "report" / "comparisons.csv", folder / "sweep.json"
    before = table.read_bytes(), json.loads(description.read_text())["confirms"]
    words = ("--confirm", "--tracking-uri", "none")
    assert "2 cells x 2 seeds = 4, 4 of them" in run_local(storage, *words, "--dry-run").text
    again = run_local(storage, *words)
    assert "nothing to launch" in again.text and "4 of them done" in again.text
    assert before == (table.read_bytes(), json.loads(description.read_text())["confirms"])
    assert len((folder / "test_access.jsonl").read_text().splitlines()) == 1
