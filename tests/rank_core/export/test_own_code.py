"""An exported model whose class is not in the package: its source goes along, and is asked for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from docs.examples import own_model
from rank_core.checkpoints.weights import WEIGHTS, save_weights
from rank_core.encoders.backbones import resolve_backbone
from rank_core.errors import BadInput
from rank_core.export.folder import write_model
from rank_core.export.reranker import Reranker
from rank_core.models.build import build_model

ROOT = Path(__file__).parents[3]
NAME = "docs.examples.own_model:SmoothMaxP"
TEXTS = ["amber birch cedar", "delta ember amber amber"]
ELSEWHERE = f"""
import sys
from rank_core.export.reranker import Reranker
loaded = Reranker.load(sys.argv[1], trust_code=len(sys.argv) > 2)
print(loaded.rank("amber", {TEXTS!r}))
"""


@pytest.fixture
def folder(small_trial, tmp_path):
    config = small_trial.override({"model.name": NAME})
    backbone = resolve_backbone(config.model.backbone)
    save_weights(tmp_path, build_model(config, backbone, init_seed=1).state_dict())
    write_model(tmp_path / "m", config, tmp_path / WEIGHTS)
    return tmp_path / "m"


def test_the_source_goes_along_and_another_one_is_refused(folder, monkeypatch):
    assert [one.score for one in Reranker.load(folder).rank("amber", TEXTS)]
    copied = (folder / "code" / "docs" / "examples" / "own_model.py").read_text()
    assert copied == Path(own_model.__file__).read_text()
    monkeypatch.setattr("rank_core.export.folder.source_hash", lambda name: "another")
    with pytest.raises(BadInput, match=r"differs here from the trained one; the source .*/code"):
        Reranker.load(folder)


@pytest.mark.long
def test_where_the_class_is_absent_its_source_is_named_and_works_from_there(folder, tmp_path):
    expected = str(Reranker.load(folder).rank("amber", TEXTS))
    packages = tmp_path / "packages"
    packages.mkdir()
    for name in ("rank_core", "sweeps"):  # this checkout without docs/
        (packages / name).symlink_to(ROOT / name)

    def load(*paths, trust=()):
        path = os.pathsep.join(map(str, [*paths, packages]))
        words = [sys.executable, "-c", ELSEWHERE, str(folder), *trust]
        env = os.environ | {"PYTHONPATH": path}
        return subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)

    error = load().stderr
    assert "no module docs" in error and f"{folder / 'code'}: read it, then" in error
    assert load(folder / "code").stdout.strip() == expected
    assert load(trust=["trusted"]).stdout.strip() == expected
    with (folder / "code" / "docs" / "examples" / "own_model.py").open("a") as file:
        file.write("print('changed')\n")
    assert load(trust=["trusted"]).stdout == ""  # no code runs that the export did not write
