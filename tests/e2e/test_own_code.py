"""A user's own model, collection, transform and sweeps, from a folder that is not the project's,
through Ray: every worker knows them."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from sweeps.store.sweep_file import read_sweep_file
from tests.e2e.conftest import ROOT, trials_of

EXAMPLES = ROOT / "docs" / "examples"
SMOKE = ("--smoke-test", "--tracking-uri", "none")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A user's folder with the examples."""
    folder = tmp_path_factory.mktemp("home")
    for path in EXAMPLES.glob("own_*"):
        shutil.copy(path, folder)
    return folder


@pytest.fixture(scope="module")
def sweep(home, backbone_folder):
    """Runs `python -m sweeps run` as from a folder of the user's."""

    def run(name, *words, cwd=home):
        inputs = ["--backbone", str(backbone_folder), "--storage", str(home / "results")]
        return subprocess.run(
            [sys.executable, "-m", "sweeps", "run", name, *inputs, *SMOKE, *words],
            cwd=cwd,
            env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0"},
            capture_output=True,
            text=True,
            timeout=500,
        )

    return run


@pytest.mark.ray
@pytest.mark.long
def test_a_toml_sweep_of_an_own_model_and_collection_trains_through_ray(home, sweep, tmp_path):
    """It is started elsewhere: neither the working directory nor the path of the workers knows the
    modules beside the file."""
    done = sweep(str(home / "own_sweep.toml"), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^SmoothMaxP 24/12 .* 2/2 ", done.stdout, re.M) and " slot" in done.stdout
    folder = home / "results" / "smooth_windows" / "notes"
    trials = trials_of(folder)
    assert set(trials["status"]) == {"done"}
    names = {
        json.loads(p.read_text())["model.name"]
        for p in folder.parents[1].glob("trials/*/config.json")
    }
    assert names == {"firstp", "own_model:SmoothMaxP"}


@pytest.mark.slow
def test_a_python_sweep_with_a_transform_runs_in_this_process(home, sweep):
    cut = "own_collection:notes|own_collection:FirstWords(number=50)"
    words = ("--engine", "local", "--num-seeds", "1", "--collection", cut)
    done = sweep("own_sweep.py", *words)
    assert done.returncode == 0, done.stderr
    [folder] = (home / "results" / "smooth_chunks").glob("notes*first-words*")
    # By default a label tells of the model, its windows and what is swept.
    labels = [cell.label for cell in read_sweep_file(folder).cells]
    assert labels == [
        "MaxP 32/16, max_chunks 0",
        "SmoothMaxP 32/16, max_chunks 1",
        "SmoothMaxP 32/16, max_chunks 2",
    ]
    assert len(list(folder.parents[1].glob("trials/*/result.json"))) == 3
