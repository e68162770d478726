"""Passages available on every machine: the docstrings of Python's standard library.

Each gives a pair of its summary (a sentence that says what something does) and its body (the rest).
Modules are imported in a separate process, by a script that imports nothing of ours.
"""

import contextlib
import importlib
import inspect
import io
import json
import os
import pkgutil
import re
import sys
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import NamedTuple

MIN_BODY_WORDS = 12
MIN_SUMMARY_WORDS = 3
MAX_SUMMARY_WORDS = 30

# They open windows or a browser, print, or are tests rather than documentation.
SKIPPED = frozenset("antigravity idlelib test tests this tkinter turtle turtledemo".split())

_TIMEOUT_SECONDS = 300
_SIGNATURE = re.compile(r"[\w.]+\(.*\)|.*->")
_SENTENCE_END = re.compile(r"(?<!e\.g\.)(?<!i\.e\.)(?<=[.!?:])\s+(?=[A-Z`\"'(*<:\[])")
_BLANK_LINE = re.compile(r"\n[ \t]*\n")


class DocstringPair(NamedTuple):
    """A docstring split into its summary and the rest, without line breaks."""

    name: str  # dotted import name, unique
    summary: str
    body: str


def collect_pairs() -> list[DocstringPair]:
    """The pairs of this interpreter's standard library, ordered by name. Summaries and bodies are
    unique. The result does not depend on what this process has imported or installed."""
    from rank_core.children import python, run  # late: the child has the standard library alone
    from rank_core.parsing import parsed_json

    command = python(os.path.abspath(__file__), alone=True)
    child = run(command, capture_output=True, timeout=_TIMEOUT_SECONDS)
    if child.returncode != 0:
        raise RuntimeError(
            f"collecting docstrings with {sys.executable} failed with code {child.returncode}: "
            f"{child.stderr.decode(errors='replace')[-2000:]}"
        )
    return [DocstringPair(*fields) for fields in parsed_json(child.stdout)]


def pair_of(docstring: str) -> tuple[str, str] | None:
    """(summary, body), or None without a summary of usable length or with too short a body. The
    summary is the first sentence after the signatures that docstrings of C functions start with."""
    lines = inspect.cleandoc(docstring).split("\n")
    while lines and (not lines[0].strip() or _SIGNATURE.match(lines[0])):
        lines.pop(0)
    paragraph, *rest = _BLANK_LINE.split("\n".join(lines), maxsplit=1)
    summary, *remainder = _SENTENCE_END.split(" ".join(paragraph.split()), maxsplit=1)
    body = " ".join(" ".join([*remainder, *rest]).split())
    if summary.startswith(">>>"):
        return None  # an interactive example
    if not MIN_SUMMARY_WORDS <= len(summary.split()) <= MAX_SUMMARY_WORDS:
        return None
    return (summary, body) if len(body.split()) >= MIN_BODY_WORDS else None


def _walk() -> list[DocstringPair]:
    """The pairs of all modules that can be imported in this process."""
    objects = sorted(
        (f"{module.__name__}.{name}", value)
        for top in sorted(sys.stdlib_module_names)
        for module in _modules(top)
        for name, value in _members(module)
    )
    pairs: list[DocstringPair] = []
    seen: set[str] = set()
    for name, docstring in objects:
        pair = pair_of(docstring)
        if pair is None:
            continue
        parts = {f"{kind} {text.lower()}" for kind, text in zip("sb", pair, strict=True)}
        if not parts & seen:
            pairs.append(DocstringPair(name, *pair))
            seen |= parts
    return pairs


def _modules(name: str) -> Iterator[ModuleType]:
    """The public module `name` and those inside it that can be imported here."""
    leaf = name.rpartition(".")[2]
    if leaf.startswith("_") or leaf in SKIPPED:
        return
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit):  # of various kinds: of other systems, or not built
        return
    yield module
    for inner in pkgutil.iter_modules(getattr(module, "__path__", ())):
        yield from _modules(f"{name}.{inner.name}")


def _members(module: ModuleType) -> Iterator[tuple[str, str]]:
    """(dotted name, docstring) of public classes, functions and methods."""
    for name, value in vars(module).items():
        if name.startswith("_") or not (inspect.isclass(value) or inspect.isroutine(value)):
            continue
        if isinstance(value.__doc__, str):
            yield name, value.__doc__
        if inspect.isclass(value):
            yield from ((f"{name}.{method}", text) for method, text in _methods(value))


def _methods(owner: type) -> Iterator[tuple[str, str]]:
    for name, value in vars(owner).items():
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        public = not name.startswith("_")
        if public and (inspect.isroutine(function) or isinstance(function, property)):
            if isinstance(function.__doc__, str):
                yield name, function.__doc__


def _main() -> None:
    # Some modules print on import, not only through sys.stdout.
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        pairs = _walk()
    with answer:
        json.dump(pairs, answer)


if __name__ == "__main__":
    _main()
