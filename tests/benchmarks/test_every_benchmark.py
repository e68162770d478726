"""Every benchmark runs at its smallest size, as `python -m` runs it."""

import importlib
import json
import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from tests.benchmarks import workload

ENCODER = ("--collection", "{collection}", "--size", "tiny", "--repeats", "1")
TRIALS = (
    *("model.backbone={backbone}", "collection={collection}", "training.max_steps=1"),
    *("chunking.window=40", "chunking.stride=20"),
)

SMALLEST = {
    "clustered": ("--simulations", "2"),
    "design_power": ("--simulations", "2"),
    "dealing": (*ENCODER, "--ranks", "2", "--groups", "2"),
    "families": ("e5", "bge"),
    "final_stage": ("--simulations", "2", "--only", "confirmation"),
    "choice": ("--sweeps", "2"),
    "dev_rule": ("--sweeps", "2"),
    "objectives": ("--sweeps", "2"),
    "gate_loops": ("--loops", "2"),
    "kinds": ("t5",),
    "layout": ("--rows", "3,5", "--repeats", "1"),
    "driver": (
        *("--cells", "3,4", "--seeds", "1", "--repeats", "1", "--collection", "{collection}"),
        *("--backbone", "{backbone}"),
    ),
    "launches": ("--size", "tiny", "--models", "maxp", "--tokens", "400"),
    "modelled_mfu": ("--size", "tiny", "--tokens", "400"),
    "position_curve": ("--simulations", "1", "--settings", "1"),
    "preemption": (
        *("--trials", "2", "--nodes", "1", "--gigabytes", "0.1"),
        *("--minutes", "12", "--faster", "400"),
    ),
    "runtimes": (*ENCODER, "--queries", "2", "--depth", "3"),
    "schedule": (
        *("--plans", "window_stride", "--slots", "2", "--seeds", "1"),
        *("--collection", "{collection}", "--backbone", "{backbone}"),
    ),
    "scoring": (*ENCODER, "--size", "tiny-modernbert"),
    "storage_ways": ("--size", "tiny"),
    "sweep_needs": ("--documents", "40", "--queries", "20"),
    "sweep_overhead": (
        *("--backbone", "{backbone}", "--", "--smoke-test", "--collection", "{collection}"),
        *("--tracking-uri", "none"),
    ),
    "training": (*ENCODER, "--batch-size", "1", "--curve-steps", "1"),
    "ways_out": ("--kinds", "bert", "--only", "out"),
    "zoo": ("--models", "firstp", "--epochs", "1", *TRIALS),
}
"""What is said to each."""

RAY = {"storage_ways", "sweep_overhead"}
LONG = {"modelled_mfu", "storage_ways", "launches", "sweep_needs", "sweep_overhead", "ways_out"}
LIBRARY = {"families", "ways_out"}
FAKE_GPU = {"launches", "modelled_mfu"}


def _marked(name: str) -> object:
    marks = [pytest.mark.ray] * (name in RAY)
    no_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="it needs g++")
    extra = pytest.mark.skipif(
        find_spec("sentence_transformers") is None,
        reason="pip install -e '.[serve]' brings it",
    )
    marks += [extra] if name in LIBRARY else []
    marks += [no_compiler] * (name in FAKE_GPU) + [pytest.mark.long] * (name in LONG)
    return pytest.param(name, marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize("name", map(_marked, SMALLEST))
def test_a_benchmark_runs(name, backbone_folder, collection_folder, tmp_path, monkeypatch, capsys):
    names = {"backbone": backbone_folder, "collection": collection_folder}
    words = [word.format(**names) for word in SMALLEST[name]]
    figures = tmp_path / "figures.json"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(workload, "PRODUCT", (64, 96, 128))
    monkeypatch.setenv("RANKSWEEP_CACHE", os.environ["RANKSWEEP_CACHE"])  # one sets another
    benchmark = importlib.import_module(f"tests.benchmarks.{name}")
    threads = torch.get_num_threads()
    try:
        benchmark.main(["--json", str(figures), *words])
    finally:
        torch.set_num_threads(threads)
    assert json.loads(figures.read_text())
    assert "\n| " in capsys.readouterr().out


def test_no_benchmark_is_forgotten():
    files = Path(__file__).parent.glob("*.py")
    commands = {path.stem for path in files if "\ndef main(" in path.read_text()}
    # test_benchmarks.py, test_tiny_docs.py, test_published_studies.py
    elsewhere = {"error_rates", "racing", "tiny_docs", "published_studies"}
    assert commands == {*SMALLEST, *elsewhere}
