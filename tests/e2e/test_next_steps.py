"""Every next step that a command prints runs as it is printed, up to the end of the path."""

import os
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from sweeps.__main__ import main
from tests.sweeps.conftest import no_figures

__all__ = ["no_figures"]
pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SMALL = ("--engine", "local", "--tracking-uri", "none", "--alpha", "0.79")
TOML = """
name = "windows"
question = "Which window?"
baseline = { model.name = "firstp", chunking.window = 48, chunking.stride = 48 }
[base]
collection = "own_collection:notes"
model.backbone = "tiny-docs"
evaluation.depth = 10
training.max_steps = 2
evaluation.max_test_queries = 8
evaluation.max_dev_queries = 8
[grid]
chunking.window = [24, 32]
chunking.stride = [12]
"""


@pytest.fixture
def work(tmp_path, no_figures, monkeypatch) -> Path:
    """A working directory with own code and a sweep of two windows over an own collection."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    shutil.copy(EXAMPLES / "own_collection.py", folder)
    (folder / "windows.toml").write_text(TOML)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "sweeps"])
    return folder


def run(command: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The commands on the next lines of a command, which is run as a shell would."""
    there, _, command = command.rpartition(" && ")
    words = shlex.split(command)
    start = words.index("sweeps") + 1 if "sweeps" in words else 1
    for folder in shlex.split(there)[1:]:
        os.chdir(folder)
    assert main(words[start:]) == 0, capsys.readouterr()
    lines = capsys.readouterr().out.splitlines()
    return [line.removeprefix("Next: ") for line in lines if line.startswith("Next: ")]


def path_of(command: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The commands that are printed one after the other, each by the one before it."""
    steps: list[str] = []
    while following := run(command, capsys):
        [command] = following
        assert command not in steps
        steps.append(command)
    return steps


def test_a_sweep_with_settings_and_flags_leads_to_more_seeds_with_all_of_them(
    work, collection_folder, backbone_folder, capsys
):
    inputs = ("--collection", str(collection_folder), "--backbone", str(backbone_folder))
    settings = ("chunking.window=48", "chunking.stride=32", "training.max_steps=2")
    flags = ("--profile", "clean", "--storage", "my results", "--interpolate", "none")
    words = ("run", "window_stride", *inputs, *settings, *SMALL, *flags, "--seeds", "3")
    more, *_ = path_of(shlex.join(("ranksweep", *words)), capsys)
    assert "--seeds 3,1,2" in more
    assert not {*settings, *flags} - {*shlex.split(more)}


@pytest.mark.long
def test_a_file_of_a_sweep_leads_to_a_saved_model_from_any_folder(work, capsys, monkeypatch):
    words = ("run", "windows.toml", *SMALL, "--seeds", "7", "training.batch_size=8")
    first = run(shlex.join(("ranksweep", *words)), capsys)
    assert "--seeds 7,1,2" in first[0]
    monkeypatch.chdir(work.parent)  # the report is read elsewhere
    report = shlex.join(("ranksweep", "report", f"{work}/results/windows/notes"))
    assert run(report, capsys) == [f"cd {shlex.quote(str(work))} && {first[0]}"]
    _, confirm, export = path_of(report, capsys)
    assert confirm.endswith(" --confirm") and " export " in export
    assert (work / "model" / "ranker.json").exists()
