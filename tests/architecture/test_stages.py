"""The table of stages that CI ends with, and the upper bounds that can go."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import newest

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest

def test_right(): pass
def test_wrong(): assert 0
@pytest.fixture
def broken(): assert 0
def test_of_a_broken_fixture(broken): pass
def test_elsewhere(): pytest.skip("no GPU")
@pytest.mark.long
def test_too_late(): pass
"""

PROJECT = {
    "name": "rank",
    "dependencies": ["numpy>=2.0"],
    "optional-dependencies": {"dev": ["pytest", "rank[serve]"], "serve": ["torch>=2.13,<2.14"]},
}


def run(*words, **environment):
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_every_stage_is_a_line_with_its_counts(tmp_path):
    file, tests = tmp_path / "stages.csv", tmp_path / "test_some.py"
    tests.write_text(TESTS)
    stages = ("tests/stages.py", file)
    assert run(*stages).stdout == ""  # before the first stage
    run(*stages, "lint", "passed", "12")
    given = {"RANKSWEEP_STAGES": str(file), "RANKSWEEP_STAGE": "some", "RANKSWEEP_LONG_UNTIL": "1"}
    words = [*"-m pytest -q -n 2 -p no:cacheprovider -c".split(), ROOT / "pyproject.toml", "-m", ""]
    done = run(*words, "--rootdir", tmp_path, "-p", "tests.conftest", tests, **given)
    assert done.returncode == 1, done.stdout + done.stderr
    run(*stages, "test-extras", "no time")
    lines = [line.split() for line in run(*stages).stdout.splitlines()]
    assert lines[0] == ["stage", "outcome", "passed", "failed", "skipped", "late", "seconds"]
    assert lines[1] == ["lint", "passed", "12"]
    assert lines[2][:-1] == ["some", "failed", "1", "2", "1", "1"]
    assert lines[3] == ["test-extras", "no", "time", "0"]
    assert lines[4][:-1] == ["all", "1", "2", "1", "1"] and lines[5][:2] == ["late:", "1"]
    assert lines[-1] == "total: 1 passed, 2 failed, 2 skipped".split()


def test_every_run_of_pytest_in_the_makefile_has_a_name_in_the_table():
    lines = (ROOT / "Makefile").read_text().splitlines()
    runs = [
        line for line in lines if line.startswith("\t") and ("pytest" in line or "PYTEST" in line)
    ]
    calls = [line for line in lines if line.startswith("\t$(call stage,")]
    assert all("RANKSWEEP_STAGE=" in line or "pip install" in line for line in runs)
    names = [line.partition(",")[2].partition(")")[0] for line in calls]
    assert len(calls) >= 7 and len({*names}) == len(names)


def test_a_bound_can_go_where_the_tests_passed_beyond_it():
    names = [requirement.name for requirement in newest.requirements(PROJECT, "dev")]
    assert names == ["numpy", "pytest", "torch"]
    [numpy, _, torch] = newest.requirements(PROJECT, "dev")
    assert str(newest.without_upper(torch)) == "torch>=2.13"
    assert str(newest.without_upper(numpy)) == "numpy>=2.0"
    bound = newest.upper(torch)
    assert newest.verdict(bound, "2.13.0+cpu", True) == "refuses nothing"
    assert newest.verdict(bound, "2.14.1", True).startswith("can go")
    assert newest.verdict(bound, "2.14.1", False).startswith("stays")
