"""No global state of the caller's process changes a byte of what a door computes, and no door
changes it for the caller."""

import locale
import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ranksweep
from rank_core.checkpoints.weights import WEIGHTS
from rank_core.export.folder import write_model
from tests.sweeps.conftest import no_figures

__all__ = ["no_figures"]

QUERIES = [*enumerate(f"q{i}" for i in range(6))]
QRELS = {q: {f"d{i}": 1, "d9": 2} for i, q in QUERIES}
RUNS = {
    name: [
        {q: {f"d{d}": float((d * step + i * seed) % 11) for d in range(10)} for i, q in QUERIES}
        for seed in (1, 2, 4)
    ]
    for name, step in {"a": 3, "b": 7}.items()
}


@pytest.fixture(scope="module")
def world(tmp_path_factory, small_trial, collection_folder, backbone_folder) -> dict[str, Any]:
    """What the doors read: a trial's settings, an exported model."""
    folder = tmp_path_factory.mktemp("world")
    config = small_trial.override({"evaluation.max_test_queries": 5, "model.dropout": 0.1})
    [*ranksweep.run_trial(config, folder / "trial")]
    write_model(folder / "model", config, folder / "trial" / WEIGHTS)
    inputs = {"collection": collection_folder, "backbone": backbone_folder}
    return {"config": config, "model": folder / "model", "inputs": inputs}


def measure(world: dict[str, Any], folder: Path) -> Any:
    return ranksweep.measure(RUNS["a"][0], QRELS, ["nDCG@10", "RR"]).means


def compare(world: dict[str, Any], folder: Path) -> Any:
    return ranksweep.compare(RUNS, QRELS, measures="nDCG@10").frame.to_csv()


def run_trial(world: dict[str, Any], folder: Path) -> Any:
    *_, result = ranksweep.run_trial(world["config"], folder)
    names = ("dev.run.gz", "test.run.gz", "per_query.parquet", WEIGHTS)
    return result.test, [(folder / name).read_bytes() for name in names]


def rank(world: dict[str, Any], folder: Path) -> Any:
    reranker = ranksweep.Reranker.load(world["model"])
    return reranker.rank("amber birch", ["cedar heron " * 20, "amber birch", "slate thorn"])


def run_and_load(world: dict[str, Any], folder: Path) -> Any:
    sweep = ranksweep.run(
        "window_stride",
        seeds=2,
        settings={"chunking.window": 48, "chunking.stride": 48, "training.max_steps": 1},
        engine="local",
        smoke_test=True,
        storage=folder,
        tracking_uri="none",
        **world["inputs"],
    )
    loaded = ranksweep.load(sweep.folder)
    files = sorted(folder.glob("trials/*/*.run.gz"))
    tables = [one.table().frame.to_csv() for one in (sweep, loaded)]
    return tables, loaded.per_query.to_csv(), [path.read_bytes() for path in files]


DOORS: dict[str, Callable[[dict[str, Any], Path], Any]] = {
    "measure": measure,
    "compare": compare,
    "run_trial": run_trial,
    "Reranker": rank,
    "run, load": run_and_load,
}


def state() -> dict[str, Any]:
    """The global state that a caller may rely on."""
    return {
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "matrix products": torch.get_float32_matmul_precision(),
        "determinism": torch.get_deterministic_debug_mode(),
        "threads": torch.get_num_threads(),
        "random": random.getstate(),
        "numpy": [str(part) for part in np.random.get_state()],
        "torch": torch.get_rng_state().tolist(),
        "errors of numpy": np.geterr(),
        "locale": locale.setlocale(locale.LC_ALL),
        "working directory": os.getcwd(),
        "environment": dict(os.environ),
    }


def differing(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return {name: (own, after[name]) for name, own in before.items() if own != after[name]}


@contextmanager
def changed(folder: Path) -> Iterator[None]:
    """Each of these states as no door expects it."""
    generators = random.getstate(), np.random.get_state(), torch.get_rng_state()
    of_torch = torch.get_default_dtype(), torch.get_float32_matmul_precision()
    here, spoken, variables = os.getcwd(), locale.setlocale(locale.LC_ALL), dict(os.environ)
    with ExitStack() as stack:
        stack.enter_context(np.errstate(all="raise"))
        stack.enter_context(torch.autocast("cpu", torch.bfloat16))
        stack.enter_context(torch.inference_mode())
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.device("meta"))
        try:
            for seed in (random.seed, np.random.seed, torch.manual_seed):
                seed(77)
            torch.set_default_dtype(torch.float64)
            torch.set_float32_matmul_precision("medium")
            locale.setlocale(locale.LC_ALL, "C")
            os.chdir(folder)
            os.environ |= {"COLUMNS": "30", "TZ": "Asia/Kolkata", "LANG": "tr_TR", "LC_ALL": "C"}
            yield
        finally:
            random.setstate(generators[0])
            np.random.set_state(generators[1])
            torch.set_rng_state(generators[2])
            torch.set_default_dtype(of_torch[0])
            torch.set_float32_matmul_precision(of_torch[1])
            locale.setlocale(locale.LC_ALL, spoken)
            os.chdir(here)
            os.environ.clear()
            os.environ |= variables


@pytest.mark.slow
@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("door", DOORS)
def test_no_global_state_changes_a_byte_and_no_door_changes_it(world, tmp_path, door):
    before = state()
    usual = DOORS[door](world, tmp_path / "usual")
    after = state()
    assert differing(before, after) == {}
    (tmp_path / "elsewhere").mkdir()
    with changed(tmp_path / "elsewhere"):
        before = state()
        odd = DOORS[door](world, tmp_path / "odd")
        after = state()
    assert differing(before, after) == {}
    assert odd == usual
