"""An exported model whose class is not in the package: its source goes along, and is asked for."""

import json
import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

from docs.examples import own_model
from rank_core.checkpoints.weights import WEIGHTS, save_weights
from rank_core.encoders.backbones import resolve_backbone
from rank_core.errors import BadInput
from rank_core.export.folder import (
    CODE,
    FILE,
    _digest,
    read_model,
    read_settings,
    write_model,
)
from rank_core.export.reranker import Reranker
from rank_core.files import file_sha256
from rank_core.models.build import build_model
from rank_core.own_code import written_hash
from sweeps.__main__ import main

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


def resealed(folder, **changes):
    """Changes ranker.json as anyone can: its hash is that of its content."""
    content = json.loads((folder / FILE).read_text())
    del content["sha256"]
    for name, value in changes.items():
        content[name] = value(content[name]) if callable(value) else value
    content = {name: value for name, value in content.items() if value is not None}
    for path in (folder / CODE).rglob("*.py"):
        content["files"][str(path.relative_to(folder))] = file_sha256(path)
    (folder / FILE).write_text(json.dumps(content | {"sha256": _digest(content)}))


def test_the_source_goes_along_and_that_of_the_caller_must_be_the_same(folder, monkeypatch):
    assert [one.score for one in Reranker.load(folder).rank("amber", TEXTS)]
    copied = (folder / CODE / "docs" / "examples" / "own_model.py").read_text()
    assert copied == Path(own_model.__file__).read_text()
    resealed(folder, code="another")
    for trust in (False, True):  # one module of a name is loaded in a process
        with pytest.raises(
            BadInput, match=r"another source of it is loaded here.*read that source"
        ):
            Reranker.load(folder, trust_code=trust)


EVIL = """
from pathlib import Path
(Path(__file__).parent / "ran").touch()
from docs.examples.own_model import SmoothMaxP as R
"""
NAMES = ("visiting_ranker:R", "code.visiting_ranker:R", "m.code.visiting_ranker:R")


def planted(folder, name, *, in_code=True):
    """Puts a module into the folder, and names its class as the model."""
    for place in (folder, folder / CODE, folder.parent):
        (place / "visiting_ranker.py").write_text(EVIL)
    for place in (folder, folder / CODE):
        (place / "__init__.py").touch()
    code = written_hash(name, folder / CODE) if in_code else None
    resealed(folder, settings=lambda own: own | {"model.name": name}, code=code)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("in_code", [True, False])
def test_no_name_in_a_folder_decides_an_import(folder, name, in_code, monkeypatch, capsys):
    planted(folder, name, in_code=in_code)
    for place in (folder, folder.parent):
        monkeypatch.chdir(place)
        for read in (read_model, read_settings, Reranker.load):
            with pytest.raises(BadInput, match=name if in_code else "hash of its source"):
                read(folder)
        Path("run").write_text("q Q0 d 1 1.0 t\n")
        words = ["--collection", "python-docs", "--run", "run", "--out", "out"]
        assert main(["rerank", os.path.relpath(folder), *words]) == 2
        said = capsys.readouterr().err
        assert "which is not in this package" in said
        assert "--trust-code" in said or not in_code
    assert not [*folder.parent.rglob("ran")]
    assert not [module for module in sys.modules if "visiting_ranker" in module]


def with_another_source(folder):
    (folder / CODE / "visiting_ranker.py").write_text(EVIL + "x = 1\n")


def with_another_file(folder):
    (folder / CODE / "torch_of_mine.py").touch()


def with_a_compiled_file(folder):
    py_compile.compile(str(folder / CODE / "visiting_ranker.py"), doraise=True)
    with_another_source(folder)


@pytest.mark.parametrize("change", [with_another_source, with_another_file, with_a_compiled_file])
def test_trusted_code_is_hashed_before_it_is_imported(folder, change):
    planted(folder, "visiting_ranker:R")
    code = written_hash("visiting_ranker:R", folder / CODE)
    change(folder)
    resealed(folder, code=code)
    with pytest.raises(BadInput, match=r"another source of visiting_ranker:R"):
        Reranker.load(folder, trust_code=True)
    assert not [*folder.parent.rglob("ran")] and "visiting_ranker" not in sys.modules


def test_a_module_that_stands_before_the_trusted_one_is_not_imported(folder, tmp_path, monkeypatch):
    planted(folder, "json.visiting:R")  # of a package that is loaded
    with pytest.raises(BadInput, match="nothing is found by that name"):
        Reranker.load(folder, trust_code=True)
    assert not [*folder.parent.rglob("ran")]


@pytest.mark.long
def test_where_the_class_is_absent_its_source_is_named_and_works_from_there(folder, tmp_path):
    expected = str(Reranker.load(folder).rank("amber", TEXTS))
    packages = tmp_path / "packages"
    packages.mkdir()
    for name in ("rank_core", "sweeps", "ranksweep"):  # this checkout without docs/
        (packages / name).symlink_to(ROOT / name)

    def load(*paths, trust=(), first=""):
        path = os.pathsep.join(map(str, [*paths, packages]))
        words = [sys.executable, "-c", first + ELSEWHERE, str(folder), *trust]
        env = os.environ | {"PYTHONPATH": path}
        return subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)

    for paths in ((), (folder / CODE,)):
        error = load(*paths).stderr
        assert "nothing is run" in error and f"read that source in {folder / CODE}, then" in error
    named = load(folder / CODE, first="import docs.examples.own_model")
    assert named.stdout.strip() == expected, named.stderr
    for _ in range(2):  # again from what the first one has copied
        trusted = load(trust=["trusted"])
        assert trusted.stdout.strip() == expected, trusted.stderr
    with (folder / CODE / "docs" / "examples" / "own_model.py").open("a") as file:
        file.write("print('changed')\n")
    assert load(trust=["trusted"]).stdout == ""  # no code runs that the export did not write
