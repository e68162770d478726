"""No system mixes devices, over no kind of backbone: all score and train a step on a GPU that
computes nothing."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rank_core.encoders.backbone_types import TYPES
from rank_core.models import MODELS as SYSTEMS
from rank_core.models import model_class
from rank_core.models.ranker import Ranker

ROOT = Path(__file__).parents[2]
NO_WEIGHTS = {"bm25", "bm25-rm3", "random", "rankgpt"}
"""Systems that put nothing on a device: terms, a draw, and a chat model behind a URL."""
MODELS = sorted(set(SYSTEMS) - NO_WEIGHTS)
KINDS = [f"maxp@{kind}" for kind in sorted(TYPES)]
PLANTED = "firstp!"  # last: it stays broken for the rest of its process

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="the fake device needs g++"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """fake_cuda.cpp, compiled for this torch."""
    source = Path(__file__).parent / "fake_cuda" / "fake_cuda.cpp"
    path = tmp_path_factory.mktemp("fake-cuda") / "fake_cuda.so"
    home = Path(torch.__file__).parent
    headers = [f"-I{home}/include", f"-I{home}/include/torch/csrc/api/include"]
    libraries = [f"-L{home}/lib", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{home}/lib"]
    command = ["g++", "-shared", "-fPIC", "-O1", "-std=c++20", *headers, str(source), *libraries]
    subprocess.run([*command, "-o", str(path)], check=True)
    return path


@pytest.fixture(scope="module")
def told(library, backbone):
    """{model: launches or error}."""
    command = [sys.executable, "-m", "tests.contracts.fake_cuda.steps", str(backbone.folder)]
    done = subprocess.run(
        [*command, *MODELS, *KINDS, PLANTED],
        cwd=ROOT,
        env=os.environ | {"LD_PRELOAD": str(library)},  # torch looks for a device once
        check=True,
        capture_output=True,
        text=True,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line.pop("model"): line for line in lines}


def test_every_other_system_has_weights():
    kinds = {name: model_class(name) for name in SYSTEMS}
    assert {name for name, kind in kinds.items() if not issubclass(kind, Ranker)} == NO_WEIGHTS


@pytest.mark.parametrize("name", [*MODELS, *KINDS])
def test_every_model_and_every_kind_of_backbone_stays_on_one_device(name, told):
    assert "error" not in told[name], told[name]
    assert told[name]["training"] > told[name]["scoring"] > 0


def test_a_planted_mix_of_devices_is_found(told):
    assert "devices" in told[PLANTED]["error"]
