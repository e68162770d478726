"""A finding: a number with its name, its interval and what it is about."""

import math
from dataclasses import dataclass
from enum import StrEnum


class Unit(StrEnum):
    """What a number is, and so how it is written."""

    DIFFERENCE = "difference"  # of the measure, with its sign
    SCORE = "score"  # of the measure
    SHARE = "share"  # of 1, in percent
    COUNT = "count"
    NUMBER = "number"


@dataclass(frozen=True)
class Finding:
    """A row of the page, of `--verbose` and of results.json. `names` are systems, or words that are
    no number; `link` is the paragraph of docs/statistics.md that explains it."""

    question: str  # the module that found it
    name: str
    about: str = ""  # a system, a pair of systems, a collection
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    unit: Unit = Unit.DIFFERENCE
    names: tuple[str, ...] = ()
    link: str = ""
