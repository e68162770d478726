"""Collections by name or folder."""

import ast
import json
from importlib import import_module
from pathlib import Path

import pytest

import rank_core
from rank_core.data.load import COLLECTIONS, load_collection
from rank_core.errors import BadInput


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


def test_every_public_name_is_what_editors_and_type_checkers_see():
    tree = ast.parse(Path(rank_core.__file__).read_text("utf-8"))
    [typed] = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        alias.name: node.module
        for node in typed.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(seen) == rank_core.__all__
    for name, module in seen.items():
        assert getattr(rank_core, name) is getattr(import_module(module), name), name
