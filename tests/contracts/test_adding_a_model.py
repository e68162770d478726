"""Adding a model is a file and a line: a toy one passes every contract without further ado."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
def test_a_new_model_is_held_to_every_contract_and_passes():
    laws = len(re.findall(r"^@every_model", (HERE / "test_every_model.py").read_text(), re.M))
    plugins = ["-p", "toy_model", "-p", "no:cacheprovider"]
    chosen = ["-k", "toy-smooth-maxp", str(HERE / "test_every_model.py")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, *chosen],
        cwd=HERE.parents[1],
        env=os.environ | {"PYTHONPATH": f"{HERE}{os.pathsep}{HERE.parents[1]}"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    [passed] = re.findall(r"(\d+) passed", done.stdout)
    assert done.returncode == 0 and int(passed) >= laws, done.stdout
