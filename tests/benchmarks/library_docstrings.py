"""Passages outside all collections: the docstrings of installed libraries, read from their sources.
The shipped backbone is trained on them, without those that resemble a docstring of the standard
library, so that it has seen no text of `python-docs` in any version of Python.
"""

import ast
import re
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from rank_core.data.made.stdlib_docstrings import DocstringPair, collect_pairs, pair_of
from rank_core.errors import BadInput

MAX_BODY_WORDS = 120
NEAR_DUPLICATE = 0.75  # share of the shorter body's distinct words, as within `python-docs`
SKIPPED = frozenset("tests test testing _vendor vendor externals third_party _distutils".split())
_WORD = re.compile(r"[a-z0-9_]+")


def library_pairs(
    packages: Sequence[str], known: Sequence[DocstringPair] | None = None
) -> list[DocstringPair]:
    """The pairs of the named packages in the order of their files, without repeated summaries or
    bodies and without pairs that resemble one of `known` (by default all of the standard library).
    Raises `BadInput` for a package that is not installed."""
    alike = _Resembling(collect_pairs() if known is None else known)
    seen: set[str] = set()
    pairs = []
    for package in packages:
        for name, docstring in _docstrings(package):
            pair = pair_of(docstring)
            if pair is None:
                continue
            body = " ".join(pair[1].split()[:MAX_BODY_WORDS])
            parts = {f"s {pair[0].lower()}", f"b {body.lower()}"}
            if not parts & seen and not alike(pair[0], body):
                pairs.append(DocstringPair(f"{package}: {name}", pair[0], body))
                seen |= parts
    return pairs


class _Resembling:
    """True if a pair has the summary of a known pair, or most of the words of its body."""

    def __init__(self, known: Sequence[DocstringPair]) -> None:
        self._summaries = {" ".join(_words(pair.summary)) for pair in known}
        bodies = [set(_words(" ".join(pair.body.split()[:MAX_BODY_WORDS]))) for pair in known]
        self._sizes = np.array([len(body) for body in bodies])
        with_word: defaultdict[str, list[int]] = defaultdict(list)
        for number, body in enumerate(bodies):
            for word in body:
                with_word[word].append(number)
        self._with_word = {word: np.array(numbers) for word, numbers in with_word.items()}

    def __call__(self, summary: str, body: str) -> bool:
        if " ".join(_words(summary)) in self._summaries:
            return True
        words = set(_words(body))
        shared = np.zeros(len(self._sizes))
        for word in words & self._with_word.keys():
            shared[self._with_word[word]] += 1
        return bool((shared >= NEAR_DUPLICATE * np.minimum(self._sizes, len(words))).any())


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _docstrings(package: str) -> Iterator[tuple[str, str]]:
    """(file and line, docstring) of every module, class and function, without importing any."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise BadInput(f"the package {package} is not installed, and its docstrings are trained on")
    root = Path(next(iter(spec.submodule_search_locations)))
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        if SKIPPED & set(place.parts):
            continue
        try:
            with warnings.catch_warnings(action="ignore"):
                tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, ValueError):
            continue  # a template, or a file of another Python
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                if text := ast.get_docstring(node):
                    yield f"{place}:{getattr(node, 'lineno', 1)}", text
