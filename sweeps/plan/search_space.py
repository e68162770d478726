"""The space of a search: the points of the grid, and ranges of numbers."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rank_core.errors import BadInput
from rank_core.seeding import generator
from rank_core.settings.config import parse_setting, setting_type
from sweeps.plan.experiment import Settings

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(:log)?")
DIGITS = 3
"""Significant digits of a number drawn from a range, which keep labels readable."""


@dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`, both included; uniform in the logarithm if `log`."""

    low: float
    high: float
    log: bool
    whole: bool  # whole numbers only

    def rounded(self, number: float) -> Any:
        """The nearest number of the range, with `DIGITS` digits."""
        if self.whole:
            return int(min(max(round(number), self.low), self.high))
        return min(max(float(f"{number:.{DIGITS}g}"), self.low), self.high)

    def drawn(self, rng: np.random.Generator) -> Any:
        """A number drawn uniformly."""
        if self.log:
            # Rates differ in orders of magnitude: each decade is as likely as the others.
            return self.rounded(math.exp(rng.uniform(math.log(self.low), math.log(self.high))))
        if self.whole:
            # Not a rounded real number, which gives both ends half of the others' probability.
            return int(rng.integers(int(self.low), int(self.high), endpoint=True))
        return self.rounded(rng.uniform(self.low, self.high))

    @property
    def size(self) -> float:
        """The number of values; infinite unless they are whole numbers."""
        return self.high - self.low + 1 if self.whole else math.inf

    def __contains__(self, number: Any) -> bool:
        return bool(self.low <= number <= self.high)


def parse_range(name: str, text: str) -> Range | None:
    """The range written `lo..hi` or `lo..hi:log`; None for other texts. Raises `BadInput` for a
    setting that is not a number."""
    match = RANGE.fullmatch(text)
    if match is None:
        return None
    kind = setting_type(name)
    if kind not in (int, float):
        raise BadInput(f"a range lo..hi needs a setting that is a number, got {name}={text}")
    low, high = parse_setting(name, match[1]), parse_setting(name, match[2])
    log = match[3] is not None
    if not low < high or (log and low <= 0):
        law = "0 < lo < hi" if log else "lo < hi"
        raise BadInput(f"{law} must hold in a range lo..hi, got {name}={text}")
    return Range(low, high, log, kind is int)


@dataclass(frozen=True)
class Space:
    """The product of points, which hold single values, and ranges."""

    points: tuple[Settings, ...]
    ranges: Mapping[str, Range] = field(default_factory=dict)

    @property
    def size(self) -> float:
        """The number of different points."""
        return len(self.points) * math.prod(r.size for r in self.ranges.values())

    def drawn(self, seed: int) -> Iterator[Settings]:
        """Points in random order: each once, or with ranges endlessly. The first n do not depend on
        the number of draws."""
        rng = generator(seed, "search")
        order = rng.permutation(len(self.points))
        if not self.ranges:
            yield from (self.points[position] for position in order)
            return
        while True:
            point = dict(self.points[int(rng.integers(len(self.points)))])
            yield point | {name: r.drawn(rng) for name, r in self.ranges.items()}

    def axes(self) -> dict[str, tuple[Any, ...]]:
        """The values of each setting without a range, in their order; None where a point lacks
        it."""
        names = dict.fromkeys(name for point in self.points for name in point)
        return {
            name: tuple(dict.fromkeys(point.get(name) for point in self.points)) for name in names
        }

    def point(self, values: Mapping[str, Any]) -> Settings | None:
        """The settings of a value per axis and range; None where the grid lacks this point."""
        chosen = {
            name: value
            for name, value in values.items()
            if name not in self.ranges and value is not None
        }
        if chosen not in self.points:
            return None
        return chosen | {name: r.rounded(values[name]) for name, r in self.ranges.items()}

    def text(self) -> str:
        """The space in one line, for names and hashes."""
        ranges = {name: vars(r) for name, r in self.ranges.items()}
        return json.dumps([list(map(dict, self.points)), ranges], sort_keys=True, default=str)
