"""Trials in the processes of Ray share the GPU as they were told to."""

import json
import os
import shutil
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

    def run(name, *words, collection=collection_folder):
        storage = tmp_path_factory.mktemp("sweep") / "results"
        command = [sys.executable, f"sweeps/{name}.py", "--smoke-test", *words]
        command += ["--collection", str(collection), "--storage", str(storage)]
        command += ["--tracking-uri", "none"]
        quiet = {"RAY_USAGE_STATS_ENABLED": "0"}
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


@pytest.fixture
def beyond_the_table(standard, collection_folder, tmp_path):
    """(backbone, collection): the 26th word of each document, or its last, has no vector. To
    read it is a device
    assert on a GPU and an error on a CPU; a short first chunk ends before it."""
    from safetensors.torch import load_file, save_file

    from rank_core.encoders.backbones import load_tokenizer

    tokenizer = load_tokenizer(standard.folder)
    size = len(tokenizer) - 1
    word = tokenizer.convert_ids_to_tokens(size)
    assert size in tokenizer(word)["input_ids"]
    backbone, collection = tmp_path / "short", tmp_path / "collection"
    shutil.copytree(standard.folder, backbone)
    config = json.loads((backbone / "config.json").read_text())
    (backbone / "config.json").write_text(json.dumps(config | {"vocab_size": size}))
    weights = load_file(backbone / "model.safetensors")
    table = "embeddings.word_embeddings.weight"
    weights[table] = weights[table][:size].clone()
    save_file(weights, backbone / "model.safetensors", metadata={"format": "pt"})
    shutil.copytree(collection_folder, collection)
    records = map(json.loads, (collection / "docs.jsonl").read_text().splitlines())
    with (collection / "docs.jsonl").open("w") as file:
        for record in records:
            words = record["text"].split()
            text = " ".join([*words[:25], word, *words[25:]])
            file.write(json.dumps(record | {"text": text}) + "\n")
    return str(backbone), str(collection)


def test_device_assert(device, sweep, beyond_the_table, figures):
    """after a trial whose kernels hit a device assert, the next trials succeed

    Take `--num-seeds 1` and one configuration a sweep: each then has processes of its own.
    """
    flag, _ = of_gpu(device, 1)
    backbone, collection = beyond_the_table
    words = ("--backbone", backbone, "--num-seeds", "2", "chunking.window=20")
    words += ("chunking.stride=20", "chunking.max_chunks=1,8")
    code, text, results = sweep("chunk_counts", *flag, *words, collection=collection)
    figures |= {"exit code": code, "trials that ended well": len(results)}
    assert code == FAILED_TRIALS, text[-1000:]
    assert device.type == "cpu" or "device broke" in text
    assert len(results) == 2
