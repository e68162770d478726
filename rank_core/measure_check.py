"""Trial computation of measures before a launch, in a child process because some may crash it."""

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
"""Measures that can be computed for any judgments and need no trial."""
_GRADES = frozenset({0, 1, 2})


def check_measures(names: Sequence[str], judged: Iterable[Qrels] = ()) -> None:
    """Raises `BadInput` for measures that `per_query` could not compute, and for duplicates.

    Each is computed for a toy run in a child process, because tools behind ir_measures may abort.
    The toy grades include those of `judged`, because some tools accept only certain grades (ERR:
    at most 4).
    """
    parsed: dict[Any, str] = {}
    for name in names:
        measure = parse_measure(name)
        if measure in parsed:
            raise BadInput(f"{parsed[measure]!r} and {name!r} are the same measure; name it once")
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
    """{measure: why it cannot be computed}. If the child process dies at a measure, another one
    tries the measures after it."""
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
            reasons[left.pop(0)] = f"the tool that computes it crashed ({words[-1]})"
    return reasons


def _try(names: Sequence[str], grades: Iterable[int]) -> None:
    """Prints, for each measure, why it cannot be computed for a toy run, or an empty reason."""
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
            reason = f"{error.cmd[0]}, which computes it, failed with exit code {error.returncode}"
        except ZeroDivisionError:
            reason = "it is undefined for some queries"
        except Exception as error:
            words = " ".join(str(error).split()) or type(error).__name__
            reason = re.sub(r"Unsupported measures \{.*?\}", "no installed tool computes it", words)
        print(json.dumps([name, reason]), flush=True)


if __name__ == "__main__":
    _try(*json.loads(sys.stdin.read()))
