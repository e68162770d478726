"""training.keep_weights, from the command line to the files: what is kept, and what runs again."""

import json

import pytest

from sweeps.store.records import sealed
from sweeps.store.sweep_file import read_sweep_file
from tests.e2e.conftest import run_local

__all__ = ["run_local"]

pytestmark = pytest.mark.slow

WORDS = (*("--smoke-test", "--tracking-uri", "none"), "chunking.window=48", "chunking.stride=32")
RUNS = ("dev.run.gz", "test.run.gz", "per_query.parquet")


def with_weights(folder):
    return {path.parent.name for path in files(folder, "weights.safetensors")}


def files(folder, name):
    """A file of each trial of a sweep that has one."""
    trials = read_sweep_file(folder).trials
    paths = (folder.parents[1] / "trials" / trial / name for trial in sorted(trials))
    return [path for path in paths if path.exists()]


def best_seeds(folder):
    """{the trial of each trained cell that is best on dev}."""
    best = {}
    for path in files(folder, "result.json"):
        result = json.loads(path.read_text())
        value = result["dev"]["nDCG@10"], -result["seed"]
        best[result["cell"]] = max(best.get(result["cell"], (value, "")), (value, path.parent.name))
    return {name for _, name in best.values()}


def values(folder):
    return {
        (path.parent.name, path.name): path.read_bytes()
        for file in RUNS
        for path in folder.parents[1].glob(f"trials/*/{file}")
    }


def test_a_sweep_keeps_the_best_seed_of_each_cell_and_again_launches_nothing(run_local, tmp_path):
    ran = run_local(tmp_path / "r", *WORDS, "--num-seeds", "3")
    folder = ran.folder
    told = " ".join(ran.text.split())
    assert "weights saved for 2 trials. Export the choice: " in told and f" export {folder}" in told
    assert with_weights(folder) == best_seeds(folder) and len(best_seeds(folder)) == 2
    again = run_local(tmp_path / "r", *WORDS, "--num-seeds", "3", "training.keep_weights=best")
    assert "nothing to launch" in again.text
    assert "(smoke test)" in again.text
    more = run_local(tmp_path / "r", *WORDS[1:], "--num-seeds", "1", "training.max_steps=2")
    assert "saved for 2 trials" in " ".join(more.text.split()) and "(smoke test)" not in more.text


def test_missing_weights_run_again_to_the_same_bits_and_nothing_else_does(run_local, tmp_path):
    none = (*WORDS, "training.keep_weights=none")
    folder = run_local(tmp_path / "r", *none).folder
    assert with_weights(folder) == set() and len(best_seeds(folder)) == 2
    before = values(folder)
    assert "nothing to launch" in run_local(tmp_path / "r", *WORDS).text  # nobody asked for them
    best = run_local(tmp_path / "r", *WORDS, "training.keep_weights=best")
    assert with_weights(folder) == best_seeds(folder) and values(folder) == before
    assert "running 2 finished trials again: weights.safetensors was not" in best.text
    assert "[2/2]" in best.text and "other values" not in best.text
    every = run_local(tmp_path / "r", *WORDS, "training.keep_weights=all")
    assert len(with_weights(folder)) == 4 and values(folder) == before
    assert "[2/2]" in every.text


def test_a_run_with_other_values_is_told_of(run_local, tmp_path):
    none = (*WORDS, "--num-seeds", "1", "training.keep_weights=none")
    folder = run_local(tmp_path / "r", *none).folder
    for path in folder.parents[1].glob("trials/*/*"):  # as if another machine had rounded otherwise
        if path.name == "result.json":
            result = json.loads(path.read_text())
            result["test"]["nDCG@10"] += 0.01
            path.write_text(json.dumps(result))
        elif path.name == "test.run.gz":
            path.write_bytes((path.parent / "dev.run.gz").read_bytes())
    for trial in folder.parents[1].glob("trials/*"):
        sealed(trial)
    told = run_local(tmp_path / "r", *WORDS, "--num-seeds", "1", "training.keep_weights=all").text
    assert told.count("ran again with other values") == 2
