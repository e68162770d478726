"""The README against the repository: its files, commands, targets and flags exist."""

import re
from pathlib import Path

import pytest

from rank_core.settings.config import setting_types
from sweeps.__main__ import COMMANDS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_can_be_read_in_five_minutes():
    assert len(README.splitlines()) <= 250


@pytest.mark.parametrize("link", re.findall(r"\]\((?!https?:)([^)]+)\)", README))
def test_every_link_leads_somewhere(link):
    assert (ROOT / link).exists()


@pytest.mark.parametrize("path", sorted(set(re.findall(r"^  ([\w/]+(?:\.py|/))", README, re.M))))
def test_every_file_of_the_map_exists(path):
    folders = ("", "rank_core", "sweeps", "cluster", "benchmarks")
    assert any((ROOT / folder / path).exists() for folder in folders)


@pytest.mark.parametrize("command", sorted(set(re.findall(r"python -m sweeps ([\w-]+)", README))))
def test_every_command_is_known(command):
    assert command in COMMANDS


@pytest.mark.parametrize("module", sorted(set(re.findall(r"python -m (benchmarks\.\w+)", README))))
def test_every_benchmark_exists(module):
    assert (ROOT / f"{module.replace('.', '/')}.py").exists()


@pytest.mark.parametrize(
    "target", sorted(set(re.findall(r"^make (\w+)|`make (\w+)`", README, re.M)))
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
