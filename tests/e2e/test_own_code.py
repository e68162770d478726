"""A user's own model, collection, transform and sweeps, from a folder that is not the project's;
through Ray every worker knows them."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from sweeps.__main__ import main
from sweeps.store.sweep_file import read_sweep_file
from tests.e2e.conftest import ROOT, trials_of

SMOKE = ("--smoke-test", "--tracking-uri", "none")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A user's folder with the examples."""
    folder = tmp_path_factory.mktemp("home")
    for path in (ROOT / "docs" / "examples").glob("own_*"):
        shutil.copy(path, folder)
    return folder


@pytest.fixture
def inputs(home, backbone_folder):
    return ["--backbone", str(backbone_folder), "--storage", str(home / "results"), *SMOKE]


@pytest.mark.ray
@pytest.mark.long
def test_a_toml_sweep_of_an_own_model_and_collection_trains_through_ray(home, inputs, tmp_path):
    """It is started elsewhere: neither the working directory nor the path of the workers knows the
    modules beside the file."""
    done = subprocess.run(
        [sys.executable, "-m", "sweeps", "run", str(home / "own_sweep.toml"), *inputs],
        cwd=tmp_path,
        env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^SmoothMaxP 24/12 .* 2/2 ", done.stdout, re.M) and " slot" in done.stdout
    trials = trials_of(home / "results" / "smooth_windows" / "notes")
    assert set(trials["status"]) == {"done"}
    configs = map(json.loads, (p.read_text() for p in home.glob("results/trials/*/config.json")))
    assert {one["model.name"] for one in configs} >= {"firstp", "own_model:SmoothMaxP"}


@pytest.mark.slow
def test_a_python_sweep_with_a_transform_runs_in_this_process(home, inputs, monkeypatch):
    monkeypatch.chdir(home)
    monkeypatch.setattr(sys, "path", [*sys.path])
    cut = "own_collection:notes|own_collection:FirstWords(number=50)"
    words = ("--engine", "local", "--num-seeds", "1", "--collection", cut)
    assert main(["run", "own_sweep.py", *inputs, *words]) == 0
    sys.modules.pop("own_sweep")
    [folder] = (home / "results" / "smooth_chunks").glob("notes*first-words*")
    # By default a label tells of the model, its windows and what is swept.
    labels = [cell.label for cell in read_sweep_file(folder).cells]
    assert labels == [
        "MaxP 32/16, max_chunks 0",
        "SmoothMaxP 32/16, max_chunks 1",
        "SmoothMaxP 32/16, max_chunks 2",
    ]
    assert set(trials_of(folder)["status"]) == {"done"}
