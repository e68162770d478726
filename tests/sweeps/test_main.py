"""A command imports the libraries that it needs, and no others: nobody waits for torch to read a
help text or how far a sweep is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweeps.__main__ import COMMANDS
from sweeps.__main__ import main as program
from sweeps.driver.command import main
from sweeps.window_stride import EXPERIMENT

ROOT = Path(__file__).parents[2]
SWEEPS = sorted(path.stem for path in (ROOT / "sweeps").glob("*.py") if path.stem[0] != "_")

TRAINING = {"torch", "transformers"}
CLUSTER = {"ray", "mlflow", "optuna"}
TABLES = {"pandas", "scipy", "matplotlib", "ir_measures"}
NUMPY = {"numpy"}  # a tenth of a second, which the settings of a sweep cost and `status` does not

NEEDED = {
    "positional_bias": {"matplotlib", "pandas"},
    "scaling": TRAINING | CLUSTER | TABLES,
    "report": TABLES,
    "bundle": TABLES,
    "verify": TABLES,
    "board": TABLES,
    "design": TABLES,
    "derive": TABLES | TRAINING,
    "compare": TABLES,
    "measure": TABLES,
    "models": TRAINING,
    "export": TABLES | TRAINING,
    "rerank": TRAINING,
}
"""What a sweep or a command imports before it knows its flags; the others import none of these."""

RUN = """
import json, runpy, sys
heavy, commands = json.loads(sys.argv[1])
for command in commands:
    sys.argv = command
    try:
        run = runpy.run_path if command[0].endswith(".py") else runpy.run_module
        run(command[0], run_name="__main__")
    except SystemExit as end:
        assert not end.code, (command, end.code)
    told = [command, sorted(set(heavy) & {name.partition(".")[0] for name in sys.modules})]
    print(json.dumps(told), file=sys.stderr)
"""


def loaded(*commands: list[str]) -> dict[str, set[str]]:
    """{command: the heavy libraries that are loaded after it} of commands in one process."""
    given = json.dumps([sorted(TRAINING | CLUSTER | TABLES | NUMPY), commands])
    done = subprocess.run(
        [sys.executable, "-c", RUN, given], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("[[")]
    return {" ".join(command): set(libraries) for command, libraries in told}


def help_of(names: list[str]) -> list[list[str]]:
    return [
        [f"sweeps/{name}.py", "--help"] if name in SWEEPS else ["sweeps", name, "--help"]
        for name in names
    ]


def test_the_list_of_commands_and_almost_every_help_load_nothing():
    light = [name for name in (*SWEEPS, *COMMANDS) if name not in NEEDED]
    told = loaded(["sweeps", "--help"], *help_of(light))
    assert len(told) == 1 + len(light) >= 15
    assert {command: libraries for command, libraries in told.items() if libraries - NUMPY} == {}


@pytest.mark.long
@pytest.mark.parametrize("name", NEEDED)
def test_another_help_loads_only_what_the_command_needs(name):
    [libraries] = loaded(*help_of([name])).values()
    assert libraries <= NEEDED[name] | NUMPY


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in NEEDED))
        for name in ("", *SWEEPS, *COMMANDS)
    ],
)
def test_80_columns_are_enough_for_every_help_text(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    words = [*(["run"] if name in SWEEPS else []), *([name] if name else []), "--help"]
    try:
        code = program(words)
    except SystemExit as end:
        code = int(end.code or 0)
    lines = capsys.readouterr().out.splitlines()
    assert code == 0 and len(lines) > 3 and lines[0].startswith("usage: ranksweep")
    assert [line for line in lines if len(line) > 80] == []


@pytest.fixture(scope="module")
def finished(
    backbone_folder: Path, collection_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The folder of a small sweep that has ended."""
    storage = tmp_path_factory.mktemp("results")
    words = ["--collection", str(collection_folder), "--backbone", str(backbone_folder)]
    words += ["--smoke-test", "--engine", "local", "--tracking-uri", "none"]
    assert main(EXPERIMENT, [*words, "--storage", str(storage)], doc=None) == 0
    return storage / EXPERIMENT.name / "woods"


@pytest.mark.slow
def test_status_and_report_of_a_finished_sweep_load_no_training_and_no_cluster(finished):
    [libraries] = loaded(["sweeps", "status", str(finished)]).values()
    assert libraries <= {"ir_measures"}  # which reads a measure's name
    [libraries] = loaded(["sweeps", "report", str(finished)]).values()
    assert libraries <= TABLES | NUMPY


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({}, "expandable_segments:True"),
        ({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}, "None"),
    ],
)
def test_the_memory_of_a_gpu_grows_in_segments_unless_the_user_says_otherwise(given, left):
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    environment = {name: value for name, value in os.environ.items() if name not in names} | given
    code = "import os, sweeps; print(os.environ.get('PYTORCH_ALLOC_CONF'))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == left


@pytest.mark.parametrize(
    "command", ["status", "report", "derive", "export --to m", "verify", "doctor --collection"]
)
def test_no_message_has_the_password_of_a_uri(command, capsys):
    assert program([*command.split(), "ftp://me:PASSWORD9@host/x/y"]) == 2
    out, err = capsys.readouterr()
    assert "[redacted]@host" in err and "PASSWORD9" not in out + err
