"""Modules that lie in the working directory are imported by no command and by no process that a
command starts: somebody's results, checkpoint or data are looked at in their own folder."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from sweeps.commands.known import COMMANDS
from tests.rank_core.encoders.test_decoder_rerankers import publish

pytestmark = pytest.mark.slow

NAMED = ("mlflow", "flask", "json", "resource", "transformers", "torch", "uvloop", "IPython")
ABSENT = ("sitecustomize", "usercustomize")
"""Python itself looks for these on its path."""
SCRIPT = """
import sys
from sweeps.__main__ import script
sys.exit(script())
"""


@pytest.fixture(scope="module")
def planted(tmp_path_factory) -> Path:
    """A folder with a module of each name of Python's library, of each installed package and of
    some that are not; each leaves its name in `MARKER` beside the folder."""
    folder = tmp_path_factory.mktemp("planted") / "theirs"
    folder.mkdir()
    public = {name for name in sys.stdlib_module_names if not name.startswith("_")}
    ours = {"rank_core", "sweeps", "ranksweep", "tests"}
    for name in ({*NAMED, *ABSENT, *public, *packages_distributions()}) - ours:
        if name.isidentifier():
            code = f"open({str(marker_of(folder))!r}, 'a').write({name + chr(10)!r})\n"
            (folder / f"{name}.py").write_text(code)
    return folder


def marker_of(folder: Path) -> Path:
    return folder.with_name("MARKER")


@pytest.fixture
def call(planted, tmp_path_factory):
    """Runs `ranksweep` in the folder as its console script does; no module there was imported."""
    script = tmp_path_factory.mktemp("bin") / "ranksweep"
    script.write_text(SCRIPT)

    def run(*words: str, code: int | None = 0, cwd: Path = planted, until: str = "") -> str:
        process = subprocess.Popen(
            [sys.executable, str(script), *words],
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONSAFEPATH")}
            | {"PYTHONPATH": str(Path(__file__).parents[2]), "RAY_USAGE_STATS_ENABLED": "0"},
        )
        lines: list[str] = []
        try:
            for line in process.stdout:
                lines.append(line)
                if until and until in line:
                    process.send_signal(signal.SIGINT)
            ended = process.wait(600)
        finally:
            process.kill()
        text = "".join(lines)
        assert not marker_of(planted).exists(), (marker_of(planted).read_text(), text)
        assert code in (None, ended), text
        return text

    yield run
    marker_of(planted).unlink(missing_ok=True)


def test_a_planted_module_leaves_its_marker(planted):
    """`python -m` would run it: the tests here can fail."""
    subprocess.run([sys.executable, "-m", "flask"], cwd=planted, capture_output=True)
    assert marker_of(planted).read_text()
    marker_of(planted).unlink()


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_no_command_imports_them(call, command):
    call(command, "--help")


@pytest.fixture(scope="module")
def world(tmp_path_factory, backbone_folder, collection_folder) -> Path:
    """A folder for what the commands make, one after the other."""
    folder = tmp_path_factory.mktemp("world")
    lines = ["q1 Q0 d00 1 2.0 x", "q1 Q0 d01 2 1.0 x"]
    (folder / "a.run").write_text("\n".join(lines) + "\n")
    (folder / "b.run").write_text("\n".join(lines[::-1]) + "\n")
    (folder / "q.trec").write_text("q1 0 d00 1\n")
    return folder


def steps(world: Path, collection: Path, backbone: Path) -> Iterator[tuple]:
    """(command, its words, its exit code, the words after which it is interrupted), in an order in
    which each has what it needs."""
    results, sweep = str(world / "results"), str(world / "results/window_stride/woods")
    inputs = ["--collection", str(collection), "--backbone", str(backbone), "--storage", results]
    run = ["window_stride", *inputs, "--engine", "local", "--smoke-test", "--num-seeds", "2"]
    a, b, qrels = (str(world / name) for name in ("a.run", "b.run", "q.trec"))
    bundle, model = str(world / "one.zip"), str(world / "model")
    yield "run", run, 0, ""
    yield "status", [sweep], 0, ""
    yield "report", [sweep], 0, ""
    yield "design", [sweep, "--delta", ".05"], 0, ""
    yield "derive", [sweep], 2, ""
    yield "latency", [sweep, "--queries", "2", "--repeats", "1"], None, ""
    yield "export", [sweep, "--to", model, "--cell", "winner"], 0, ""
    yield "bundle", [sweep, "--to", bundle], 0, ""
    yield "verify", [bundle], 0, ""
    at = ["--collection", str(collection)]
    words = [model, *at, "--run", f"{collection}/test/bm25.run"]
    words += ["--out", str(world / "reranked.run")]
    yield "rerank", words, 0, ""
    yield "teach", [model, *at, "--out", str(world / "taught.run")], 0, ""
    yield "ui", [sweep], 0, "Ctrl-C ends"
    yield "sync", [sweep], 0, ""
    yield "storage", [results], 0, ""
    yield "compare", [a, b, "--qrels", qrels], None, ""
    yield "measure", [a, "--qrels", qrels], 0, ""
    yield "check", ["firstp"], None, ""
    for name in ("settings", "collections", "sweeps", "measures", "models"):
        yield name, [], 0, ""
    yield "completion", ["bash"], 0, ""
    yield "convert", [f"{collection}/docs.jsonl", "--to", str(world / "docs.jsonl")], 0, ""
    yield "split", ["--docs", f"{collection}/docs.jsonl"], 2, ""
    yield "cluster-files", [str(world / "files")], 0, ""
    yield "doctor", ["--collection", str(collection), "--backbone", str(backbone)], None, ""


@pytest.mark.long
def test_no_command_imports_them(call, world, collection_folder, backbone_folder):
    made = [*steps(world, collection_folder, backbone_folder)]
    assert {command for command, *_ in made} == {*COMMANDS}
    for command, words, code, until in made:
        call(command, *words, code=code, until=until)


@pytest.mark.long
@pytest.mark.ray
def test_no_process_of_ray_imports_them(call, tmp_path, collection_folder, backbone_folder):
    inputs = ["--collection", str(collection_folder), "--backbone", str(backbone_folder)]
    inputs += ["--storage", str(tmp_path / "results"), "--smoke-test", "--num-seeds", "1"]
    call("run", "window_stride", *inputs)


@pytest.mark.long
def test_a_checkpoint_s_folder_lends_no_module_to_the_child_of_its_template(
    call, planted, tmp_path, collection_folder
):
    folder = Path(publish("qwen3", tmp_path / "decoder"))
    for path in planted.iterdir():
        shutil.copy(path, folder)
    words = ["run", "serving", "--collection", str(collection_folder), "--backbone", "."]
    words += ["--engine", "local", "--tracking-uri", "none", "--dry-run"]
    call(*words, "--storage", str(tmp_path / "results"), cwd=folder)
