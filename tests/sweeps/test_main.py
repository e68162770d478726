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
from sweeps.plan.flags import FLAGS, help_groups
from tests.sweeps.report.ranked_sweep import write_ranked_sweep

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
    "design": TABLES,
    "derive": TABLES | TRAINING,
    "compare": TABLES - {"matplotlib"},
    "latency": TABLES,
    "measure": TABLES,
    "models": TRAINING,
    "export": TABLES | TRAINING,
    "rerank": TRAINING,
    "teach": TRAINING,
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


def test_the_help_is_in_groups_and_begins_with_the_doctor(capsys):
    assert program(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    titles = [line for line in lines if line.endswith(":") and " " not in line]
    assert titles == ["begin:", "run:", "look:", "use:", "keep:"]
    assert lines[lines.index("begin:") + 1].split()[0] == "doctor"
    named = [line.split()[0] for line in lines if line.startswith("  ")]
    assert sorted(named) == sorted(COMMANDS)


def test_the_help_of_a_sweep_begins_with_what_most_people_need_and_has_each_flag_once():
    (title, first), *others = help_groups()
    flags = [flag.name for _, group in (("", first), *others) for flag in group]
    assert title == "what most people need" and flags[0] == "collection" and "dry_run" in flags[:6]
    assert sorted(flags) == sorted(FLAGS)


@pytest.mark.slow
def test_status_and_report_of_a_finished_sweep_load_no_training_and_no_cluster(tmp_path):
    finished = str(write_ranked_sweep(tmp_path / "woods"))
    status, report = loaded(["sweeps", "status", finished], ["sweeps", "report", finished]).values()
    assert status <= {"ir_measures"}  # which reads a measure's name
    assert report <= TABLES | NUMPY


def environment_after(code: str, given: dict[str, str]) -> str:
    """What a fresh process has in the variable of PyTorch's allocator after some code."""
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    environment = {name: value for name, value in os.environ.items() if name not in names} | given
    command = [sys.executable, "-c", f"import os\n{code}\nprint(os.environ.get('{names[0]}'))"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_an_import_sets_no_variable_of_the_environment():
    code = """
before = dict(os.environ)
import rank_core, ranksweep, sweeps
public = [getattr(ranksweep, name) for name in ranksweep.__all__]
assert dict(os.environ) == before, dict(os.environ).items() ^ before.items()
"""
    assert environment_after(code, {}) == "None"


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({}, "expandable_segments:True"),
        ({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}, "None"),
        ({"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"}, "max_split_size_mb:64"),
    ],
)
def test_a_trial_lets_the_memory_of_a_gpu_grow_in_segments_unless_the_user_says(given, left):
    begun = "from rank_core.machine import begin_on_device; begin_on_device(1.0)"
    assert environment_after(begun, given) == left
