"""Where the product prints commands, read from its source: a string with a command in backticks,
and every call that makes one."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
VALUE = "\0"
"""What an f-string puts in."""
MAKERS = {"our_command", "command_in", "changed", "seeded", "confirming", "resumed"}
"""Functions of sweeps/plan/next_command.py and sweeps/store/sweep_file.py that make a command."""
IN_TEXT = re.compile(
    r"`((?:ranksweep|hf|pip|make|ray|mlflow)\b[^`]*)`"
    r"|((?:pip install|ranksweep (?:verify|run) (?=\S*(?:FILE|\0)))[^`;,)]*)"
)


@dataclass(frozen=True)
class Printed:
    """A place that prints a command: `sweeps/commands/split.py:main`; the command as text, with
    `VALUE` for what is put in, or the name of the function that makes it."""

    place: str
    command: str


@cache
def printed() -> tuple[Printed, ...]:
    """Every place of the three packages; docstrings print nothing."""
    tops = ("rank_core", "sweeps", "ranksweep")
    return tuple(
        one
        for path in (path for top in tops for path in sorted((ROOT / top).rglob("*.py")))
        for one in _below(ast.parse(path.read_text("utf-8")), str(path.relative_to(ROOT)), ())
    )


def _below(node: ast.AST, file: str, names: tuple[str, ...]) -> Iterator[Printed]:
    place = f"{file}:{'.'.join(names)}"
    if isinstance(node, ast.Call) and node.args and getattr(node.func, "id", "") in MAKERS:
        yield Printed(place, f"{getattr(node.func, 'id', '')}()")
    for text in _texts(node):
        yield from (Printed(place, (m[1] or m[2]).strip()) for m in IN_TEXT.finditer(text))
    if isinstance(node, ast.JoinedStr) and any(_is_command(part) for part in node.values):
        yield Printed(place, "a sweep's command")
    for child in ast.iter_child_nodes(node):
        own = isinstance(child, ast.FunctionDef | ast.ClassDef)
        is_doc = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
        if not is_doc and not (isinstance(node, ast.JoinedStr) and isinstance(child, ast.Constant)):
            yield from _below(child, file, (*names, child.name) if own else names)


def _texts(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else VALUE for part in node.values]
        yield "".join(map(str, parts))


def _is_command(part: ast.expr) -> bool:
    """True for `{command}`, `{sweep.command}`, `{sweep.command or ...}` of an f-string."""
    return isinstance(part, ast.FormattedValue) and any(
        getattr(one, "attr", getattr(one, "id", "")) == "command" for one in ast.walk(part.value)
    )
