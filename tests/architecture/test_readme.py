"""The README against the repository: its files, commands, targets and flags exist."""

import re
from pathlib import Path

import pytest

from rank_core.models import MODELS
from rank_core.settings.config import setting_types
from sweeps.__main__ import COMMANDS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("link", re.findall(r"\]\((?!https?:)([^)]+)\)", README))
def test_every_link_leads_somewhere(link):
    assert (ROOT / link).exists()


def test_the_file_map_names_every_room_and_nothing_else():
    block = README.partition("## File map")[2].split("```")[1]
    named, stack = set(), []
    for line in block.splitlines()[1:]:
        name = line.split()[0]
        stack = [*stack[: (len(line) - len(line.lstrip())) // 2], name]
        named.add("".join(stack))
    assert [name for name in named if not (ROOT / name).exists()] == []
    rooms = {
        f"{top}/{room.name}/"
        for top in ("rank_core", "sweeps")
        for room in (ROOT / top).iterdir()
        if (room / "__init__.py").exists()
    }
    assert rooms <= named


@pytest.mark.parametrize("command", sorted(set(re.findall(r"python -m sweeps ([\w-]+)", README))))
def test_every_command_is_known(command):
    assert command in COMMANDS


@pytest.mark.parametrize(
    "module", sorted(set(re.findall(r"python -m (tests\.benchmarks\.\w+)", README)))
)
def test_every_benchmark_exists(module):
    assert (ROOT / f"{module.replace('.', '/')}.py").exists()


@pytest.mark.parametrize(
    "target", sorted(set(re.findall(r"^make ([\w-]+)|`make ([\w-]+)`", README, re.M)))
)
def test_every_make_target_exists(target):
    name = "".join(target)
    assert re.search(rf"^{name}:", (ROOT / "Makefile").read_text(), re.M)


@pytest.mark.parametrize(
    "setting",
    sorted(set(re.findall(r"\b((?:model|chunking|training|evaluation)\.\w+)=", README))),
)
def test_every_setting_is_known(setting):
    assert setting in setting_types()


def test_the_number_of_systems_is_that_of_the_zoo():
    assert re.findall(r"(\d+) systems", README) == [str(len(MODELS))]
