"""A killed training goes on where it was."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.training_run import EVERY, NUM_STEPS

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
DIE_AT = 8  # two steps after a checkpoint
CLOSE = 2e-2  # of a loss, where kernels sum in any order and numbers have 16 bits


@pytest.fixture(scope="module")
def trained(standard, with_values):
    """`trained(folder, strict, die_at)`: {step: loss} after one more run in the folder."""

    def run(folder, strict, die_at=0):
        words = [str(folder), str(standard.folder), str(with_values), str(int(strict)), str(die_at)]
        command = [sys.executable, "-m", "tests.gpu.training_run", *words]
        (folder / "checkpoints").mkdir(exist_ok=True)
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert done.returncode == (-9 if die_at else 0), done.stderr.strip().rpartition("\n")[2]
        lines = map(json.loads, (folder / "curve.jsonl").read_text().splitlines())
        return {step: float.fromhex(loss) for step, loss in lines}

    return run


@pytest.mark.parametrize("strict", [False, True], ids=["by default", "deterministic"])
def test_kill(strict, trained, tmp_path, figures):
    """a training killed by kill -9 resumes with the same curve; deterministic: with the same bits

    Run sweeps here with `--checkpoint-minutes 99999`: a lost trial then starts anew.
    """
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    expected = trained(whole, strict)
    figures |= {"killed after step": DIE_AT, "resumed from": DIE_AT // EVERY * EVERY}
    assert len(trained(killed, strict, DIE_AT)) == DIE_AT < NUM_STEPS
    curve = trained(killed, strict)
    gap = max(abs(curve[step] - loss) for step, loss in expected.items())
    figures["largest difference of a loss"] = f"{gap:.1e}"
    limit = 0 if strict else CLOSE * max(1.0, *expected.values())
    assert set(curve) == set(expected) and gap <= limit
