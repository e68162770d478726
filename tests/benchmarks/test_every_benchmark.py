"""Every benchmark runs at its smallest size, as `python -m` runs it."""

import importlib
import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest
import torch

ENCODER = ("--collection", "{collection}", "--size", "tiny", "--repeats", "1")
TRIALS = (
    *("model.backbone={backbone}", "collection={collection}", "training.max_steps=1"),
    *("chunking.window=40", "chunking.stride=20"),
)

SMALLEST = {
    "attention": ("--shapes", "2x2x8x16", "--repeats", "1"),
    "fast_paths": ("--size", "tiny", "--rows", "2", "--tokens", "9", "--repeats", "1"),
    "error_rates": ("--simulations", "20", "--only", "type-1"),
    "planning": (
        *("--documents", "500", "--cells", "2"),
        *("--collection", "{collection}", "--backbone", "{backbone}"),
    ),
    "launches": ("--size", "tiny", "--models", "maxp", "--tokens", "400"),
    "modelled_mfu": ("--size", "tiny", "--tokens", "400"),
    "racing": ("--races", "4", "--only", "hard-runs"),
    "scaling_law": (*ENCODER, "--chunks", "1,2", "--candidates", "2,4"),
    "scoring": ENCODER,
    "statistics_speed": ("--cells", "2", "--permuted-cells", "2", "--queries", "20"),
    "sweep_needs": ("--documents", "40", "--queries", "20"),
    "sweep_overhead": (
        *("--backbone", "{backbone}", "--", "--smoke-test", "--collection", "{collection}"),
        *("--tracking-uri", "none"),
    ),
    "ties": (
        *("--queries", "2", "--window", "40"),
        *("--collection", "{collection}", "--backbone", "{backbone}"),
    ),
    "token_store": ("--documents", "20", "--look-ups", "20", "--cold-look-ups", "5"),
    "training": (*ENCODER, "--batch-size", "1", "--curve-steps", "1"),
    "trial_start": ("--queries", "20", "40", "--documents", "60"),
    "zoo": ("--models", "firstp", "--epochs", "1", *TRIALS),
}
"""What is said to each."""

SLOW = {
    "modelled_mfu",
    "launches",
    "racing",
    "scaling_law",
    "scoring",
    "statistics_speed",
    "token_store",
    "training",
    "sweep_needs",
    "trial_start",
}
RAY = {"sweep_overhead"}
FAKE_GPU = {"launches", "modelled_mfu"}
BARS = {"error_rates", "racing", "statistics_speed"}
"""Ends with 1 where a bar is missed, as it may be at these sizes."""


def _marked(name: str) -> object:
    marks = [pytest.mark.slow] * (name in SLOW) + [pytest.mark.ray] * (name in RAY)
    no_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="it needs g++")
    marks += [no_compiler] * (name in FAKE_GPU)
    return pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", map(_marked, SMALLEST))
def test_a_benchmark_runs(name, backbone_folder, collection_folder, tmp_path, monkeypatch, capsys):
    names = {"backbone": backbone_folder, "collection": collection_folder}
    words = [word.format(**names) for word in SMALLEST[name]]
    figures = tmp_path / "figures.json"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("RANKSWEEP_CACHE", os.environ["RANKSWEEP_CACHE"])  # one sets another
    benchmark = importlib.import_module(f"tests.benchmarks.{name}")
    threads = torch.get_num_threads()
    try:
        code = benchmark.main(["--json", str(figures), *words])
    finally:
        torch.set_num_threads(threads)
    assert code in ((0, 1) if name in BARS else (None,))
    assert json.loads(figures.read_text())
    assert "\n| " in capsys.readouterr().out


def test_no_benchmark_is_forgotten():
    files = Path(__file__).parent.glob("*.py")
    commands = {path.stem for path in files if "\ndef main(" in path.read_text()}
    assert commands == set(SMALLEST)
