"""How many workers a trial had, and what it took of them in all."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Workers:
    """The number of workers of a trial from a step on, `seconds` of computing after its begin."""

    step: int
    number: int
    seconds: float


def worker_seconds(seconds: float, workers: Sequence[Workers]) -> float:
    """What a trial of so many seconds took of its workers in all; of one, where none is noted.

    Examples:
        >>> worker_seconds(100.0, [Workers(0, 2, 0.0), Workers(80, 1, 30.0)])  # 2 x 30 + 70
        130.0
    """
    rows = workers or (Workers(step=0, number=1, seconds=0.0),)
    ends = [*(row.seconds for row in rows[1:]), seconds]
    return sum(row.number * (end - row.seconds) for row, end in zip(rows, ends, strict=True))
