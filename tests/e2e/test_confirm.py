"""A sweep and its confirmation from end to end: the same two cells, seeds nobody has seen."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

pytestmark = pytest.mark.slow

RunConfirm = Callable[..., str]


@pytest.fixture
def storage(smoke, tmp_path) -> Path:
    """A finished smoke test: three cells with seeds 1 and 2."""
    return shutil.copytree(smoke.storage, tmp_path / "results")


@pytest.fixture
def confirm(storage, run_local) -> RunConfirm:
    """Runs the confirmation; collection and backbone come from the first sweep."""

    def run(*words: str, code: int = 0) -> str:
        return run_local(storage, "--confirm", *words, code=code).text

    return run


def test_winner_and_baseline_are_trained_again_with_fresh_seeds(storage, confirm):
    first, folder = (
        storage / name / "woods" for name in ("window_stride", "window_stride-confirm")
    )
    planned = confirm("--tracking-uri", "none", "--dry-run")
    assert "2 cells x 2 seeds = 4" in planned and not folder.exists()

    text = confirm("--tracking-uri", "none")
    shortlist = json.loads((folder / "shortlist.json").read_text())
    trials = pd.read_parquet(folder / "trials.parquet")
    assert set(trials["seed"]) == {3, 4} and set(trials["status"]) == {"done"}
    assert set(trials["seed"]).isdisjoint(pd.read_parquet(first / "trials.parquet")["seed"])
    cells = {shortlist["winner"]["cell"], shortlist["baseline"]["cell"]}
    assert set(trials["cell"]) == cells and len(trials) == 4
    assert cells <= set(pd.read_parquet(first / "trials.parquet")["cell"])
    dev = pd.read_parquet(first / "per_query.parquet").query(
        "split == 'dev' and measure == 'nDCG@10'"
    )
    means = dev.groupby("cell")["value"].mean().drop(shortlist["baseline"]["cell"])
    assert shortlist["dev_mean"] == pytest.approx(means.max())
    assert means[shortlist["winner"]["cell"]] == means.max()
    for cell in cells:
        ours = json.loads((folder / "runs" / f"{cell}-seed3" / "config.json").read_text())
        theirs = json.loads((first / "runs" / f"{cell}-seed1" / "config.json").read_text())
        assert ours | {"seed": 1} == theirs
    assert "before any run below was started" in " ".join(text.split())
    assert "before any run below was started" in (folder / "report" / "index.html").read_text()
    described = json.loads((folder / "sweep.json").read_text())
    assert described["confirms"]["shortlist"] == shortlist["hash"]
    [access] = (folder / "test_access.jsonl").read_text().splitlines()
    assert json.loads(access)["seeds"] == [3, 4] and "--confirm" in json.loads(access)["command"]

    frozen = (folder / "shortlist.json").read_bytes()
    results = (folder / "report" / "results.json").read_bytes()
    again = confirm("--tracking-uri", "none")
    assert "nothing to launch" in again and "4 of them done" in again
    assert (folder / "shortlist.json").read_bytes() == frozen
    assert (folder / "report" / "results.json").read_bytes() == results
    assert len((folder / "test_access.jsonl").read_text().splitlines()) == 1


def test_seeds_of_the_first_sweep_and_settings_are_refused(storage, confirm):
    used = confirm("--seeds", "2,3", code=2)
    assert "must not have been used in window_stride, got 2; used: 1, 2; free from 3" in used
    assert "--confirm uses all settings of" in confirm("training.max_steps=3", code=2)
    assert not (storage / "window_stride-confirm").exists()
