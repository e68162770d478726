"""Sizes a reader can hold in mind, and a docstring on everything public."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(path for part in ("rank_core", "sweeps") for path in (ROOT / part).rglob("*.py"))
MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 60
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))


def public_functions(body):
    """Functions of a module and methods of its public classes, by name."""
    for node in body:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and not node.name.startswith("_"):
            if isinstance(node, ast.ClassDef):
                yield from ((f"{node.name}.{name}", f) for name, f in public_functions(node.body))
            else:
                yield node.name, node


@every_file
def test_a_file_is_at_most_300_lines(path):
    assert len(path.read_text().splitlines()) <= MAX_FILE_LINES


@every_file
def test_a_function_is_at_most_60_lines(path):
    functions = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, FUNCTIONS)]
    long = [f.name for f in functions if f.end_lineno - f.lineno >= MAX_FUNCTION_LINES]
    assert long == []


@every_file
def test_every_public_function_says_what_it_gives(path):
    functions = public_functions(ast.parse(path.read_text()).body)
    assert [name for name, function in functions if not ast.get_docstring(function)] == []


@every_file
def test_every_file_says_what_it_is_for(path):
    module = ast.parse(path.read_text())
    assert not module.body or ast.get_docstring(module)
