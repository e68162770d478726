"""Trials in the processes of Ray share the GPU as they were told to."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
NEEDED = ("ray", "pandas", "pyarrow", "scipy", "matplotlib", "ir_measures", "ir_datasets")
NEEDED += ("mlflow", "optuna")
FAILED_TRIALS = 3  # the exit code of a sweep
SECONDS = 400


def one_gpu():
    """The environment in which one GPU is visible: as many trials at a time as it has room for."""
    return {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]}


@pytest.fixture(scope="module")
def sweep(with_values, collection_folder, tmp_path_factory):
    """`sweep(name, *words)`: (exit code, output, {trial: result}) of a small sweep."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")

    def run(name, *words, modules=""):
        storage = tmp_path_factory.mktemp("sweep") / "results"
        command = [sys.executable, f"sweeps/{name}.py", "--smoke-test", *words]
        command += ["--collection", str(collection_folder), "--storage", str(storage)]
        command += ["--tracking-uri", "none"]
        quiet = {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(modules)}
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | quiet | one_gpu(),
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        text = done.stdout + done.stderr
        results = {
            file.parent.name: json.loads(file.read_text())
            for file in storage.glob("trials/*/result.json")
        }
        return done.returncode, text, results

    return run


def of_gpu(device, share):
    """The flag, and the device that results must name; on a CPU there is none to share."""
    import torch

    if device.type == "cpu":
        return ("--gpus-per-worker", "0"), None
    return ("--gpus-per-worker", str(share)), torch.cuda.get_device_name(device)


def devices(results):
    return {result["versions"]["device"] for result in results.values()}


def test_half_a_gpu(device, sweep, standard, figures):
    """two trials at a time, half a GPU each, and four and more in reused processes

    Run with `--gpus-per-worker 1`.
    """
    flag, name = of_gpu(device, 0.5)
    settings = ("--num-seeds", "2", "chunking.window=40", "chunking.stride=20,40")
    code, text, results = sweep(
        "window_stride", *flag, "--backbone", str(standard.folder), *settings
    )
    assert code == 0, text[-1000:]
    figures |= {"trials": len(results), "on": ", ".join(sorted(devices(results)))}
    assert len(results) >= 4
    assert name is None or ("on 2 slots" in text and devices(results) == {name})


def test_no_gpu(device, sweep, standard, figures):
    """--gpus-per-worker 0 stays off the GPU

    Hide it: CUDA_VISIBLE_DEVICES= before the command.
    """
    _, name = of_gpu(device, 1)
    words = ("--gpus-per-worker", "0", "--backbone", str(standard.folder))
    code, text, results = sweep("seeds", *words)
    assert code == 0, text[-1000:]
    figures |= {"trials": len(results), "on": ", ".join(sorted(devices(results)))}
    assert name not in devices(results)


BROKEN = """
import torch

from ranksweep import Ranker


class Broken(Ranker):
    label, paper, family = "Broken", "none", "passage scores"

    def aggregate(self, cls_BPH, mask_BP):
        score_BP = self.score(cls_BPH) * mask_BP
        last = torch.tensor([score_BP.shape[1] - 1], device=score_BP.device)
        return score_BP.sum(1) + torch.zeros(1, device=score_BP.device).index_select(0, last)
"""
"""A model that reads beyond a table where a document has a second chunk: a device assert on a GPU,
an error on a CPU."""


def test_device_assert(device, sweep, standard, tmp_path, figures):
    """after a trial whose kernels hit a device assert, the next trials succeed

    Take `--num-seeds 1` and one configuration a sweep: each then has processes of its own.
    """
    flag, _ = of_gpu(device, 1)
    (tmp_path / "broken_model.py").write_text(BROKEN)
    words = ("--backbone", str(standard.folder), "--num-seeds", "2", "chunking.window=20")
    words += ("chunking.stride=20", "chunking.max_chunks=1,8", "--model", "broken_model:Broken")
    code, text, results = sweep("chunk_counts", *flag, *words, modules=tmp_path)
    figures |= {"exit code": code, "trials that ended well": len(results)}
    assert code == FAILED_TRIALS, text[-1000:]
    assert device.type == "cpu" or "device broke" in text
    assert len(results) == 4, "two seeds of the baseline and of one chunk"
