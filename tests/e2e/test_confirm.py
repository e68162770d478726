"""A sweep and its confirmation from end to end: the same two cells, seeds nobody has seen."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import trials_of, values_of

pytestmark = pytest.mark.slow

RunConfirm = Callable[..., str]


@pytest.fixture(scope="module")
def first(run_local, tmp_path_factory) -> Path:
    """A finished smoke test: three cells with seeds 3 and 4, of which MaxP is the best on dev."""
    storage = tmp_path_factory.mktemp("first") / "results"
    return run_local(storage, "--smoke-test", "--seeds", "3,4").storage


@pytest.fixture
def storage(first, tmp_path) -> Path:
    return shutil.copytree(first, tmp_path / "results")


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
    shortlist = json.loads((folder / "sweep.json").read_text())["confirms"]
    trials = trials_of(folder)
    assert set(trials["seed"]) == {5, 6} and set(trials["status"]) == {"done"}
    assert set(trials["seed"]).isdisjoint(trials_of(first)["seed"])
    cells = {shortlist["winner"]["cell"], shortlist["baseline"]["cell"]}
    assert set(trials["cell"]) == cells and len(trials) == 4
    assert cells <= set(trials_of(first)["cell"])
    dev = values_of(first).query("split == 'dev' and measure == 'nDCG@10'")
    means = dev.groupby("cell")["value"].mean().drop(shortlist["baseline"]["cell"])
    assert shortlist["dev_mean"] == pytest.approx(means.max())
    assert means[shortlist["winner"]["cell"]] == means.max()
    for cell in cells:
        ours, theirs = (
            json.loads((storage / f"trials/{cell}-seed{seed}/config.json").read_text())
            for seed in (5, 3)
        )
        assert ours | {"seed": 3} == theirs
    assert "before any run below was started" in " ".join(text.split())
    assert "before any run below was started" in (folder / "report" / "index.html").read_text()
    [access] = (folder / "test_access.jsonl").read_text().splitlines()
    assert json.loads(access)["seeds"] == [5, 6] and "--confirm" in json.loads(access)["command"]

    results = (folder / "report" / "results.json").read_bytes()
    again = confirm("--tracking-uri", "none")
    assert "nothing to launch" in again and "4 of them done" in again
    assert json.loads((folder / "sweep.json").read_text())["confirms"] == shortlist
    assert (folder / "report" / "results.json").read_bytes() == results
    assert len((folder / "test_access.jsonl").read_text().splitlines()) == 1
