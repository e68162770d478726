"""How many workers a trial had, on which devices, and what it took of them in all."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Workers:
    """The number of workers of a trial from a step on, `seconds` of computing after its begin."""

    step: int
    number: int
    seconds: float
    devices: Mapping[str, int] = field(default_factory=dict)
    """{device: the workers on it}; empty where that was not noted."""


def worker_seconds(seconds: float, workers: Sequence[Workers]) -> float:
    """What a trial of so many seconds took of its workers in all; of one, where none is noted.

    Examples:
        >>> worker_seconds(100.0, [Workers(0, 2, 0.0), Workers(80, 1, 30.0)])  # 2 x 30 + 70
        130.0
    """
    rows = workers or (Workers(step=0, number=1, seconds=0.0),)
    return sum(row.number * span for row, span in _spans(seconds, rows))


def device_seconds(seconds: float, workers: Sequence[Workers]) -> dict[str, float]:
    """{device: what a trial of so many seconds took of its workers there}.

    Examples:
        >>> group = Workers(0, 3, 0.0, {"A100": 2, "T4": 1})
        >>> device_seconds(100.0, [group, Workers(80, 1, 30.0, {"T4": 1})])  # 2 x 30; 30 + 70
        {'A100': 60.0, 'T4': 100.0}
    """
    found: dict[str, float] = {}
    for row, span in _spans(seconds, workers):
        for device, number in row.devices.items():
            found[device] = found.get(device, 0.0) + number * span
    return found


def _spans(seconds: float, workers: Sequence[Workers]) -> Iterator[tuple[Workers, float]]:
    """Each row with the seconds until the next one."""
    ends = [*(row.seconds for row in workers[1:]), seconds]
    for row, end in zip(workers, ends, strict=True):
        yield row, end - row.seconds
