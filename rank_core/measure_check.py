"""Measures are tried before anything is launched, in a process that may die of them."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from rank_core.errors import BadInput
from rank_core.evaluate import parse_measure, query_values, refused_measure
from rank_core.records import Qrels

_SAFE = re.compile(r"(nDCG|AP|MAP|RR|MRR)(@[1-9]\d{0,3})?|(P|R|Recall|Success)@[1-9]\d{0,3}|Rprec")
"""Names that can be computed whatever the judgments are: they need not be tried."""
_GRADES = frozenset({0, 1, 2})


def check_measures(names: Sequence[str], judged: Iterable[Qrels] = ()) -> None:
    """Refuses with `BadInput` measures that `per_query` could not compute, or named twice.

    Each is tried on a toy run in a child process, because programs behind ir_measures may abort;
    its grades are those of `judged`, because a program may not take them all (ERR: at most 4).
    """
    parsed: dict[Any, str] = {}
    for name in names:
        measure = parse_measure(name)
        if measure in parsed:
            raise BadInput(f"a measure is named once, got {parsed[measure]!r} and {name!r}")
        parsed[measure] = name
    unsure = [name for name in names if not _SAFE.fullmatch(name)]
    if not unsure:
        return
    grades = {grade for qrels in judged for docs in qrels.values() for grade in docs.values()}
    for name, reason in _reasons(tuple(unsure), frozenset(_GRADES | grades)).items():
        if name not in _reasons(tuple(unsure), _GRADES):
            reason = f"{reason} for grades from {min(grades)} to {max(grades)}"
        raise refused_measure(name, reason)


@cache
def _reasons(names: tuple[str, ...], grades: frozenset[int]) -> dict[str, str]:
    """{name: why it cannot be computed}, without the names that can; found out by a child process,
    and by another one for the names after one at which it died."""
    reasons: dict[str, str] = {}
    left = list(names)
    search = os.pathsep.join(filter(None, sys.path))
    while left:
        child = subprocess.run(
            [sys.executable, "-m", "rank_core.measure_check"],
            input=json.dumps([left, sorted(grades)]),
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": search},
        )
        tried = [json.loads(line) for line in child.stdout.splitlines()]
        reasons |= {name: reason for name, reason in tried if reason}
        left = left[len(tried) :]
        if left:
            words = child.stderr.strip().splitlines() or [f"exit code {child.returncode}"]
            reasons[left.pop(0)] = f"the program that computes it died ({words[-1]})"
    return reasons


def _try(names: Sequence[str], grades: Iterable[int]) -> None:
    """Computes every measure on a toy run and prints why it cannot be; what `_reasons` starts."""
    documents = {f"d{grade}": grade for grade in grades}
    nothing: dict[str, float] = {}
    qrels = {
        "graded": documents,
        "missed": {"a": 1},
        "without-candidates": {"a": 1},
        "nothing-relevant": {"a": 0},
        "all-relevant": {"a": 1, "b": 1},
    }
    run = {
        "graded": {doc_id: float(-rank) for rank, doc_id in enumerate(["x", *documents, "y"])},
        "missed": {"x": 1.0},
        "without-candidates": nothing,
        "nothing-relevant": {"x": 1.0, "a": 0.5},
        "all-relevant": {"a": 1.0, "b": 0.5},
    }
    for name in names:
        reason = ""
        try:
            query_values(qrels, run, name)
        except subprocess.CalledProcessError as error:
            reason = f"{error.cmd[0]}, which computes it, ended with exit code {error.returncode}"
        except ZeroDivisionError:
            reason = "it is not defined for every query"
        except Exception as error:
            words = " ".join(str(error).split()) or type(error).__name__
            reason = re.sub(r"Unsupported measures \{.*?\}", "nothing here computes it", words)
        print(json.dumps([name, reason]), flush=True)


if __name__ == "__main__":
    _try(*json.loads(sys.stdin.read()))
