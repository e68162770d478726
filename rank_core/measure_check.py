"""Trial computation of measures before a launch, on a toy run."""

import re
import subprocess
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

    The grades of the toy run include those of `judged`, because some tools accept only certain
    grades (ERR: at most 4).
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
    for name in unsure:
        if reason := _reason(name, _GRADES):
            raise refused_measure(name, reason)
        if reason := _reason(name, _GRADES | grades):
            raise refused_measure(name, f"{reason} for grades from {min(grades)} to {max(grades)}")


@cache
def _reason(name: str, grades: frozenset[int]) -> str:
    """Why a measure cannot be computed for a toy run; empty if it can."""
    documents = {f"d{grade}": grade for grade in sorted(grades)}
    qrels = {
        "graded": documents,
        "missed": {"a": 1},
        "without-candidates": {"a": 1},
        "nothing-relevant": {"a": 0},
        "all-relevant": {"a": 1, "b": 1},
    }
    run: dict[str, dict[str, float]] = {
        "graded": {doc_id: float(-rank) for rank, doc_id in enumerate(["x", *documents, "y"])},
        "missed": {"x": 1.0},
        "without-candidates": {},
        "nothing-relevant": {"x": 1.0, "a": 0.5},
        "all-relevant": {"a": 1.0, "b": 0.5},
    }
    try:
        query_values(qrels, run, name)
    except subprocess.CalledProcessError as error:
        return f"{error.cmd[0]}, which computes it, failed with exit code {error.returncode}"
    except ZeroDivisionError:
        return "it is undefined for some queries"
    except Exception as error:
        words = " ".join(str(error).split()) or type(error).__name__
        return re.sub(r"Unsupported measures \{.*?\}", "no installed tool computes it", words)
    return ""
