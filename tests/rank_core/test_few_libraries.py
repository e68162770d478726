"""A machine that lends its GPU may have torch and transformers alone: models chunk, train and score
there, and `python -m sweeps doctor --gpu` checks it. A service needs no more to load and rank."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rank_core.checkpoints.weights import WEIGHTS, save_weights
from rank_core.encoders.backbones import resolve_backbone
from rank_core.export.folder import write_model
from rank_core.models.build import build_model

pytestmark = [pytest.mark.slow, pytest.mark.long]

ROOT = Path(__file__).parents[2]
ABSENT = ["ray", "mlflow", "optuna", "ir_datasets", "ir_measures", "pandas", "pyarrow", "scipy"]
ABSENT += ["matplotlib", "sentence_transformers"]
BENCHMARKS = [f"tests.benchmarks.{name}" for name in ("dealing", "scoring", "training", "launches")]
ROOMS = (
    "settings",
    "checkpoints",
    "encoders",
    "chunking",
    "models",
    "ranking",
    "training",
    "trial",
)
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for room in ROOMS
    for path in sorted((ROOT / "rank_core" / room).rglob("*.py"))
]

WITHOUT = """
import importlib, json, runpy, sys
from importlib.machinery import PathFinder

absent, modules, words = json.loads(sys.argv[1])

class Few(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] not in absent:
            return PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Few
for name in modules:
    importlib.import_module(name)
sys.argv = ["training_run", *words]
runpy.run_module("tests.gpu.training_run", run_name="__main__")
ladder = [f"{words[0]}/ladder.jsonl", "--sizes=tiny", "--tokens=300", "--lengths=40,60"]
sys.argv = ["ladder", "--json", *ladder]
runpy.run_module("tests.gpu.ladder", run_name="__main__")
"""


def test_the_core_is_imported_and_trains_with_torch_and_transformers_alone(tmp_path, backbone):
    (tmp_path / "checkpoints").mkdir()
    words = [str(tmp_path), str(backbone.folder), "cpu", "0", "0"]
    modules = [*MODULES, "sweeps.commands.doctor.command", *BENCHMARKS]
    modules += [f"tests.gpu.{path.stem}" for path in (ROOT / "tests" / "gpu").glob("*.py")]
    given = json.dumps([ABSENT, modules, words])
    command = [sys.executable, "-c", WITHOUT, given]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(MODULES) > 50
    assert len((tmp_path / "curve.jsonl").read_text().splitlines()) == 12
    rows = [*map(json.loads, (tmp_path / "ladder.jsonl").read_text().splitlines())]
    scored = [row for row in rows if row.get("part") == "scoring"]
    assert [row["rows of"] for row in scored] == [161, 161, 161, 40, 60]
    assert [row["rows"] for row in scored[:3]] == ["flat", "flat", "padded"]
    attended = 2 * 4  # for each length a flat row, and three kernels of a batch
    assert all(row["tokens/s"] > 0 for row in scored) and len(rows) == 1 + 6 + attended + 5 + 3


SERVICE = """
import json, sys
from importlib.machinery import PathFinder

hidden, absent, folder = json.loads(sys.argv[1])

class Few(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] not in hidden:
            return PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Few
import ranksweep

loaded = ranksweep.Reranker.load(folder)
served = ranksweep.Reranker.serve(folder, f"{folder}/serving.json")
for one in (loaded, served):
    assert len(one.rank("w1 w2", ["w3 w4 w1", "w5 " * 90])) == 2
assert not {*absent} & {*sys.modules}, {*absent} & {*sys.modules}
"""


@pytest.mark.parametrize("hidden", [[], [*ABSENT, "pytest"]], ids=["installed", "absent"])
def test_a_service_loads_and_ranks_without_what_sweeps_need(
    hidden, small_trial, reranker_folder, tmp_path
):
    """Where they are installed they are not imported, which takes seconds and memory."""
    config = small_trial.override({"model.backbone": str(reranker_folder), "model.name": "maxp"})
    model = build_model(config, resolve_backbone(str(reranker_folder)), init_seed=0)
    save_weights(tmp_path, model.state_dict())
    folder = tmp_path / "model"
    write_model(folder, config, tmp_path / WEIGHTS, about={"seed": 0}, card="# A card\n")
    absent = [name for name in ABSENT if name != "scipy"]  # transformers imports it if it is there
    given = json.dumps([hidden, absent, str(folder)])
    command = [sys.executable, "-c", SERVICE, given]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
