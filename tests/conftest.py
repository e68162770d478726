"""What every test runs on: a random two-layer BERT, a small collection, a cache of its own."""

import copy
import gc
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

# pytest puts this folder on the path, and tests/rank_core must not stand for the package.
sys.path.insert(0, str(Path(__file__).parents[1]))
# Read when huggingface_hub is first imported: no test may reach the network.
os.environ["HF_HUB_OFFLINE"] = "1"
# Read by transformers: to start threads takes longer than to read a small checkpoint in one.
os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"
# Read when ray is: clusters of several nodes are made in this process (see sweeps/ray_engine).
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "1"

import numpy as np
import pytest

from tests import stages

if TYPE_CHECKING:
    from rank_core.encoders.backbone_types import Backbone
    from rank_core.settings.config import TrialConfig

# What takes seconds to import is imported where it is used: the process that only hands tests to
# others reads this file too, and they wait for it.

BEGAN = time.monotonic()
pytest.register_assert_rewrite("rank_core.testing")


def pytest_runtest_setup(item: pytest.Item) -> None:
    until = float(os.environ.get("RANKSWEEP_LONG_UNTIL", "inf"))
    minutes = 8 if item.get_closest_marker("cluster") else 0  # of a cluster's longest test
    if time.time() + 60 * minutes > until and item.get_closest_marker("long"):
        pytest.skip(stages.NO_TIME)


@pytest.hookimpl(tryfirst=True)  # before marks deselect tests
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make test` looks for tests on Ray only in files that name their marks."""
    on_ray = [i for i in items if any(map(i.get_closest_marker, ("ray", "chaos")))]
    for path in {item.path for item in on_ray}:
        if not re.search(r"mark\.(ray|chaos)", path.read_text(encoding="utf-8")):
            raise pytest.UsageError(f"{path} has tests on Ray and names none of its marks")


# Taken out of the environment: the processes that run the tests, and tests that run pytest, are no
# stages.
STAGES = os.environ.pop("RANKSWEEP_STAGES", "")


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int) -> None:
    """Adds this run to the table of stages."""
    if path := STAGES:
        stage = os.environ.get("RANKSWEEP_STAGE", "pytest")
        outcome = "passed" if exitstatus == pytest.ExitCode.OK else "failed"
        seconds = time.monotonic() - BEGAN
        stages.add(path, stage, outcome, seconds, **stages.counts(terminalreporter.stats))


@pytest.fixture(scope="session", autouse=True)
def own_machine(tmp_path_factory: pytest.TempPathFactory):
    """An empty cache, one thread and the usual forms, so that numbers do not depend on the machine
    or its load. `RANKSWEEP_FAST_PATHS=off` stays: so `doctor --gpu` finds out what is wrong."""
    import torch

    from rank_core.machine import fast_paths

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RANKSWEEP_CACHE", str(tmp_path_factory.mktemp("ranksweep-cache")))
        if fast_paths():
            patch.setenv("RANKSWEEP_FAST_PATHS", "usual")
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("TOKENIZERS_PARALLELISM", "false")
        torch.set_num_threads(1)
        yield


@pytest.fixture(scope="module", autouse=True)
def spared_heap():
    """Each trial collects garbage first; what earlier modules left for good (thousands of tests, a
    library imported anew by each test that moves its home) need not be looked through each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def checkpoints_read_once():
    """What `load_encoder` reads is a copy the next time: transformers takes five times as long to
    read the small checkpoints of these tests, a thousand times."""
    from transformers import PreTrainedModel

    read, known = PreTrainedModel.from_pretrained.__func__, {}

    def from_pretrained(cls: type, folder: Any, *words: Any, config: Any = None, **options: Any):
        if words or config is None or not options.get("output_loading_info"):
            return read(cls, folder, *words, config=config, **options)
        facts = [(path, path.stat()) for path in sorted(Path(folder).iterdir())]
        files = [(path, stat.st_mtime_ns, stat.st_size) for path, stat in facts]
        key = repr((cls, files, config.to_json_string(), sorted(options.items())))
        if key not in known:
            known[key] = read(cls, folder, config=config, **options)
        model, report = known[key]
        if report["missing_keys"]:  # which are drawn anew each time
            return known.pop(key)
        return copy.deepcopy(model), copy.deepcopy(report)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PreTrainedModel, "from_pretrained", classmethod(from_pretrained))
        yield


@pytest.fixture(scope="session")
def backbone_folder(tmp_path_factory: pytest.TempPathFactory, checkpoints_read_once: None) -> Path:
    """A checkpoint with random weights, large enough that every token moves the score."""
    from rank_core.testing.laws import make_backbone

    folder = tmp_path_factory.mktemp("backbone")
    make_backbone(folder)
    return folder


@pytest.fixture(scope="session")
def reranker_folder(backbone_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same checkpoint with a ranking head."""
    import torch
    from safetensors.torch import save_file

    from rank_core.encoders.shipped import RANKING_HEAD

    folder = tmp_path_factory.mktemp("reranker") / "r"
    shutil.copytree(backbone_folder, folder)
    size = json.loads((folder / "config.json").read_text())["hidden_size"]
    weight = torch.randn(1, size, generator=torch.Generator().manual_seed(1))
    save_file({"weight": weight, "bias": torch.zeros(1)}, folder / RANKING_HEAD)
    return folder


@pytest.fixture(scope="session")
def backbone(backbone_folder: Path) -> "Backbone":
    from rank_core.encoders.backbones import resolve_backbone

    return resolve_backbone(str(backbone_folder))


@pytest.fixture(scope="session")
def collection_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 documents of 20 to 250 words; 8 queries a split, each with 2 relevant of 6 candidates."""
    from rank_core.testing.laws import WORDS

    folder, rng = tmp_path_factory.mktemp("collections") / "woods", np.random.default_rng(3)
    sizes = {f"d{i:02}": 20 + 230 * i // 19 for i in range(20)}
    for split in ("train", "dev", "test"):
        (folder / split).mkdir(parents=True)
        lines: dict[str, list[str]] = {"queries.tsv": [], "qrels.trec": [], "bm25.run": []}
        for q in (f"{split}-{i}" for i in range(8)):
            chosen = rng.choice(list(sizes), 6, replace=False)
            lines["queries.tsv"].append(f"{q}\t{' '.join(rng.choice(WORDS, 4))}")
            lines["qrels.trec"] += [f"{q} 0 {d} {grade}" for grade, d in enumerate(chosen[:3])]
            ranked = enumerate(rng.permutation(chosen))
            lines["bm25.run"] += [f"{q} Q0 {d} {i + 1} {10 - i} bm25" for i, d in ranked]
        for name, rows in lines.items():
            (folder / split / name).write_text("\n".join(rows) + "\n")
    texts = {doc_id: " ".join(rng.choice(WORDS, size)) for doc_id, size in sizes.items()}
    records = [json.dumps({"doc_id": doc_id, "text": text}) for doc_id, text in texts.items()]
    (folder / "docs.jsonl").write_text("\n".join(records) + "\n")
    return folder


@pytest.fixture(scope="session")
def small_trial(backbone_folder: Path, collection_folder: Path) -> "TrialConfig":
    """A trial of two steps that takes a fraction of a second."""
    from rank_core.settings.config import TrialConfig

    sizes = {"chunking.window": 40, "chunking.stride": 20, "chunking.max_document_tokens": 80}
    inputs = {"collection": str(collection_folder), "model.backbone": str(backbone_folder)}
    rates = {"training.backbone_learning_rate": 1e-3, "training.head_learning_rate": 1e-2}
    return TrialConfig().override({"training.batch_size": 4} | inputs | sizes | rates)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds of the training steps that are really computed, as they are."""
    from rank_core.training.micro_batch import TrainingStep

    steps: list[int] = []
    backward = TrainingStep.backward

    def counted(self: TrainingStep, batch: Any, seed: int) -> Any:
        steps.append(seed)
        return backward(self, batch, seed)

    monkeypatch.setattr(TrainingStep, "backward", counted)
    return steps


@pytest.fixture
def run_script(
    backbone_folder: Path, collection_folder: Path, tmp_path: Path
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a sweep's script over the small inputs from a foreign folder, as a user does."""

    def run(script: str | Path, *words: str, python: tuple[str, ...] = ()) -> Any:
        inputs = ["--collection", str(collection_folder), "--backbone", str(backbone_folder)]
        return subprocess.run(
            [sys.executable, *python, str(script), *inputs, *words],
            cwd=tmp_path,
            env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0"},
            capture_output=True,
            text=True,
            timeout=280,
        )

    return run
