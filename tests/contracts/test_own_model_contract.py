"""The contract tests as a user runs them on a model of their own, from a folder of their own."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAWS = len(re.findall(r"^def test_", (ROOT / "rank_core/testing/test_model.py").read_text(), re.M))
NEIGHBOURS = """
from docs_model import SmoothMaxP

class Neighbours(SmoothMaxP):
    label = "Neighbours"

    def aggregate(self, x_BPH, mask_BP):
        score_B = super().aggregate(x_BPH, mask_BP)
        return score_B - score_B.mean()
"""


@pytest.fixture
def contract(tmp_path):
    """Runs `pytest --pyargs rank_core.testing` in a folder with the example and a bad model, with
    the plugin as an installed package announces it."""
    shutil.copy(ROOT / "docs" / "examples" / "own_model.py", tmp_path / "docs_model.py")
    (tmp_path / "bad_model.py").write_text(NEIGHBOURS)
    announced = tmp_path / "installed" / "announces-1.dist-info"
    announced.mkdir(parents=True)
    plugins = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    lines = [f"{name} = {value}" for name, value in plugins["pytest11"].items()]
    (announced / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines]))
    (announced / "METADATA").write_text("Metadata-Version: 2.1\nName: announces\nVersion: 1\n")

    def run(*words):
        path = f"{announced.parent}{os.pathsep}{ROOT}"
        done = subprocess.run(
            [Path(sys.executable).parent / "pytest", "-q", "-p", "no:cacheprovider", *words],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=500,
        )
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.mark.slow
def test_the_example_passes_every_law(contract):
    code, text = contract("--pyargs", "rank_core.testing", "--model", "docs_model:SmoothMaxP")
    assert code == 0 and re.search(rf"\b{LAWS} passed", text) and LAWS > 8, text


@pytest.mark.long
@pytest.mark.slow
def test_a_model_without_a_property_fails_its_test(contract):
    code, text = contract("--pyargs", "rank_core.testing", "--model", "bad_model:Neighbours")
    failed = set(re.findall(r"^FAILED \S+::(\w+)", text, re.M))
    assert code == 1 and "test_a_score_does_not_depend_on_the_neighbours_in_the_batch" in failed


@pytest.mark.slow
def test_the_plugin_does_not_affect_other_test_runs(contract, tmp_path):
    text = "def pytest_addoption(parser):\n    parser.addoption('--model')\n"
    (tmp_path / "conftest.py").write_text(text)
    (tmp_path / "test_theirs.py").write_text("def test_model(name): ...\n\ndef test_two(): ...\n")
    code, text = contract("--model", "x", "-k", "two")
    assert code == 0 and "1 passed" in text, text
