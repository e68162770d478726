"""Collections by name or folder, and what importing them costs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import rank_core
from rank_core.data.load import COLLECTIONS, load_collection
from rank_core.errors import BadInput

ROOT = Path(__file__).parents[3]


def test_a_folder_is_loaded_by_its_path(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "mine"
    for number, name in enumerate(("train", "dev", "test")):
        (folder / name).mkdir(parents=True)
        (folder / name / "queries.tsv").write_text(f"q{number}\tword\n")
        (folder / name / "qrels.trec").write_text(f"q{number} 0 d 1\n")
    (folder / "docs.jsonl").write_text(json.dumps({"doc_id": "d", "text": "word"}))
    assert load_collection(str(folder)).name == "mine"
    monkeypatch.chdir(tmp_path)
    assert load_collection("mine").documents == {"d": "word"}


@pytest.mark.parametrize("name", ["python-doc", "", "beir/no/such"])
def test_an_unknown_name_is_refused_with_the_nearest_ones_and_the_folder_layout(
    name, tmp_path, monkeypatch
):
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path))
    with pytest.raises(BadInput) as caught:
        load_collection(name)
    message = str(caught.value)
    assert message.startswith(f"unknown collection {name!r}")
    assert f"`ranksweep collections` lists all {len(COLLECTIONS)}" in message
    assert "docs.jsonl[.gz]" in message


def test_every_public_name_of_the_library_loads():
    for name in rank_core.__all__:
        assert getattr(rank_core, name) is not None


FIRST = """
import importlib, sys
heavy = "ir_datasets requests pandas scipy torch transformers ray".split()
for module in sys.argv[1:]:
    for name in [name for name in sys.modules if name.split(".")[0] == "rank_core"]:
        del sys.modules[name]
    importlib.import_module(f"rank_core.{module}")
    print(module, *(name for name in heavy if name in sys.modules))
"""


def test_each_module_can_be_imported_first_and_without_heavy_packages():
    modules = (
        "data.trec data.named data.store data.ir_collections "
        "data.folder data.made.python_docs data.load "
        "first_stage data.transforms.expression"
    ).split()
    command = [sys.executable, "-c", FIRST, *modules]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout.splitlines(), done.returncode) == (modules, 0), done.stderr
