"""Where the seconds of training steps go, on one worker."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch

T = TypeVar("T")


@dataclass
class StepSeconds:
    """The seconds of a step: waiting for its batch; passes and update; what is left of adding up
    gradients after the backward pass, which includes waiting for other workers."""

    data: float = 0.0
    compute: float = 0.0
    sums: float = 0.0


class StepTimes:
    """The parts of each step while it is `on`. A GPU is waited for at the end of each part, so that
    steps are then somewhat slower."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.on = device, False
        self.steps: list[StepSeconds] = []
        self._last = 0.0

    def waiting(self, batches: Iterator[T]) -> Iterator[T]:
        """The batches, each of which begins a step; what its consumer does between two steps, as to
        validate, is no part of one."""
        while True:
            began = self._now() if self.on else 0.0
            if (batch := next(batches, None)) is None:
                return
            if self.on:
                self.steps.append(StepSeconds())
                self._last = began
                self.end("data")
            yield batch

    def end(self, part: str) -> None:
        """Ends a part of the current step."""
        if self.on:
            now, step = self._now(), self.steps[-1]
            setattr(step, part, getattr(step, part) + now - self._last)
            self._last = now

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


UNTIMED = StepTimes(torch.device("cpu"))
"""Never on."""
