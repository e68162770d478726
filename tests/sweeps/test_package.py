"""What an installed package has: its command, its files, a part that runs without what trains."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from rank_core.data.trec import write_qrels, write_run
from rank_core.records import Collection
from sweeps import __main__ as program
from sweeps.__main__ import main
from sweeps.store.records import Records
from sweeps.store.storage import Storage
from sweeps.store.sweep_file import Cell, SweepFile, sweep_on
from sweeps.terminal.command_line import SWEEP_EXTRA
from tests.sweeps.report.ranked_sweep import write_ranked_sweep

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]

SOURCES = [
    path
    for name in ("rank_core", "sweeps", "ranksweep")
    for path in sorted((ROOT / name).rglob("*.py"))
]
WITHOUT = """
import json, runpy, sys
from importlib.machinery import PathFinder

absent, words = json.loads(sys.argv[1])

class Few(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] not in absent:
            return PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Few
sys.argv = ["sweeps", *words]
runpy.run_module("sweeps", run_name="__main__")
"""


def light(*words: str) -> subprocess.CompletedProcess[str]:
    """A command where the packages of the extra `sweep` are not installed."""
    command = [sys.executable, "-c", WITHOUT, json.dumps([SWEEP_EXTRA, words])]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def requirements(*extras: str) -> list[Requirement]:
    """What the package needs with these extras, and with those that they include."""
    lines = [*PROJECT["dependencies"]] if not extras else []
    for extra in extras:
        for line in PROJECT["optional-dependencies"][extra]:
            one = Requirement(line)
            lines += map(str, requirements(*one.extras)) if one.name == "ranksweep" else [line]
    return [Requirement(line) for line in lines]


def names(*extras: str) -> set[str]:
    return {one.name for one in requirements(*extras)}


def test_what_trains_is_an_extra_and_nothing_else_needs_it():
    extra = {name.replace("_", "-") for name in SWEEP_EXTRA}
    assert names("sweep") == extra
    assert not names() & extra


def test_a_service_needs_no_cluster_no_tracking_and_no_search():
    packages = {"torch", "transformers", "tokenizers", "safetensors", "sentence-transformers"}
    assert names("serve") == packages


def pins(path: str) -> dict[str, Version]:
    lines = (ROOT / path).read_text().splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(one.name): Version(str(one.specifier)[2:]) for one in found}


BOUNDED = [one for one in (*requirements(), *requirements("sweep")) if one.specifier]


@pytest.mark.parametrize("one", BOUNDED, ids=lambda one: one.name)
def test_a_range_is_as_wide_as_what_was_tested(one):
    """Its lowest version is in `make test-oldest`; where it ends, it ends behind the version that
    all other tests run with."""
    oldest = pins("tests/constraints-oldest.txt")[canonicalize_name(one.name)]
    newest = pins("cluster/constraints.txt")[canonicalize_name(one.name)]
    assert {bound.operator for bound in one.specifier} <= {">=", "<"}
    bounds = {bound.operator: Version(bound.version) for bound in one.specifier}
    assert oldest == bounds[">="] and newest in one.specifier
    if end := bounds.get("<"):
        *line, last = newest.release[: len(end.release)]
        assert end.release == (*line, last + 1)


def test_the_command_is_a_script_that_says_its_version(capsys):
    assert PROJECT["scripts"] == {"ranksweep": "sweeps.__main__:script"}
    assert callable(program.script)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"ranksweep {version('ranksweep')}\n"


def test_runs_are_compared_where_nothing_trains(tmp_path):
    queries = [f"q{n}" for n in range(6)]
    write_qrels(tmp_path / "q.trec", {q: {"d1": 1, "d2": 0} for q in queries})
    for name, scores in (("a", (2.0, 1.0)), ("b", (1.0, 2.0))):
        run = {q: dict(zip(("d1", "d2"), scores, strict=True)) for q in queries}
        write_run(tmp_path / f"{name}.run", run, tag=name)
    runs = [str(tmp_path / f"{name}.run") for name in "ab"]
    out = str(tmp_path / "out")
    done = light("compare", *runs, "--qrels", str(tmp_path / "q.trec"), "--out", out)
    assert done.returncode == 0, done.stderr
    assert "nDCG@10" in done.stdout and (tmp_path / "out" / "comparisons.csv").exists()


@pytest.mark.parametrize("words", [["settings"], ["design", "--help"]])
def test_a_command_that_trains_nothing_needs_nothing_that_does(words):
    done = light(*words)
    assert done.returncode == 0 and done.stdout, done.stderr


@pytest.mark.parametrize(
    ("words", "missing"), [(["models"], "torch"), (["doctor"], "transformers")]
)
def test_a_command_that_trains_says_what_to_install(words, missing):
    done = light(*words)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        f"error: {missing} is not installed; in a checkout of ranksweep: pip install '.[sweep]'"
    )


def test_every_file_that_is_no_module_is_in_the_package():
    patterns = PYPROJECT["tool"]["setuptools"]["package-data"]
    for package in ("rank_core", "sweeps", "ranksweep"):
        packed = {path for one in patterns[package] for path in (ROOT / package).glob(one)}
        files = {
            path
            for path in (ROOT / package).rglob("*")
            if path.is_file() and path.suffix not in (".py", ".pyc")
        }
        assert {path for path in packed if path.is_file()} >= files
        assert ROOT / package / "py.typed" in packed
    shown = {path.name for path in (ROOT / "sweeps" / "cluster_files" / "cluster").iterdir()}
    assert shown == {path.name for path in (ROOT / "cluster").iterdir()}


def test_cluster_files_are_a_folder_from_which_a_cluster_starts(tmp_path, capsys):
    folder = tmp_path / "new" / "cluster-of-mine"
    assert main(["cluster-files", str(folder)]) == 0
    assert "config.yaml, constraints.txt" in capsys.readouterr().out
    for name in ("config.yaml", "gcp.yaml", "local.yaml"):
        mounts = yaml.safe_load((folder / "cluster" / name).read_text())["file_mounts"]
        own = [source for source in mounts.values() if not source.startswith("~")]
        assert len(own) >= 5 and all((folder / source).exists() for source in own)
    assert not any(path.is_symlink() for path in folder.rglob("*"))
    assert not list(folder.rglob("__pycache__"))
    assert (folder / "ranksweep" / "__init__.py").exists()
    assert (folder / "sweeps" / "window_stride.py").read_bytes() == (
        ROOT / "sweeps" / "window_stride.py"
    ).read_bytes()
    assert main(["cluster-files", str(folder)]) == 2
    assert f"{folder} exists" in capsys.readouterr().err
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert citation["cff-version"] == "1.2.0" and citation["authors"] and citation["message"]


def test_the_image_installs_what_the_clusters_install():
    text = (ROOT / "Dockerfile").read_text()
    assert all((ROOT / path).exists() for path in re.findall(r"^COPY (\S+)", text, re.M))
    extras = re.findall(r'"/src\[([\w,]+)\]"', text)[0].split(",")
    assert "sweep" in extras and {*extras} <= PROJECT["optional-dependencies"].keys()
    assert text.count("--constraint /src/cluster/constraints.txt") == text.count("pip install")


def test_groups_are_those_that_occur_with_every_pandas():
    """pandas 2 also has a group for a category without rows, unless `observed` says otherwise."""
    calls = [
        (path.name, node)
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr in ("groupby", "pivot_table")
    ]
    assert len(calls) > 15
    for name, call in calls:
        assert "observed" in {word.arg for word in call.keywords}, f"{name}:{call.lineno}"


@pytest.mark.long
@pytest.mark.slow
def test_a_sweep_is_reported_on_and_planned_from_where_nothing_trains(tmp_path):
    folder, bundle = str(write_ranked_sweep(tmp_path / "woods")), str(tmp_path / "sweep.zip")
    for words in (
        ["report", folder],
        ["status", folder],
        ["design", folder, "--delta", ".05"],
        ["bundle", folder, "--to", bundle],
        ["verify", bundle],
    ):
        done = light(*words)
        assert done.returncode == 0 and done.stdout, (words, done.stderr)


def test_another_collection_of_a_name_has_a_folder_of_its_own(tmp_path):
    place = Storage(str(tmp_path))
    place.open()
    experiment = Records(place, "window_stride", command="driver")
    first, other = (Collection("woods", digit * 16, {}, {}) for digit in "01")
    plain = sweep_on(experiment, first)
    facts = {"content_hash": first.content_hash}
    SweepFile("s", "?", "test", ("AP",), "AP", "a", (Cell("a"),), collection=facts).write(plain)
    assert sweep_on(experiment, first).sweep == plain.sweep == "window_stride/woods"
    assert sweep_on(experiment, other).sweep == "window_stride/woods-111111"
