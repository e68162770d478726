"""The estimate of a sweep's remaining time from the computing times of its trials, from their first
step: the start of a process predicts nothing.
"""

import heapq
import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from rank_core.trial.trial import Progress
from sweeps.plan.plan import Trial

ENOUGH_STEPS = 0.2  # share of a trial's steps after which its pace is projected


@dataclass
class _Course:
    """The times of a running trial, by the driver's clock."""

    trial: Trial
    started: float
    warm: bool  # its process has run another trial
    first: float | None = None  # the end of its first step
    first_step: int = 0
    last: float = 0.0  # its last report
    share: float = 0.0  # of all steps, from the first one to the last report

    def projected(self) -> float | None:
        """Seconds from its first step to its end, at its pace so far."""
        if self.first is None or self.share < ENOUGH_STEPS:
            return None
        return (self.last - self.first) / self.share


class TimeLeft:
    """The running trials of a sweep. The prediction for a configuration is its time with another
    seed, or else the time per cost of the known configuration with the nearest cost."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._running: dict[str, _Course] = {}
        self._slots = 1  # trials that run at a time
        self._ended = False  # whether any trial has
        self._paces: dict[float, list[float]] = defaultdict(list)  # cost: seconds per unit of it
        self._own: dict[str, list[float]] = defaultdict(list)  # the same by cell
        self._gaps: list[float] = []  # between two trials of a process
        self._beyond: list[float] = []  # seconds of a trial per projected second

    def started(self, trial: Trial) -> None:
        """A trial starts, or waits for a process."""
        self._running[trial.name] = _Course(trial, self._clock(), warm=self._ended)
        self._slots = len(self._running)

    def news(self, trial: Trial, news: Progress) -> None:
        """A trial reports its progress."""
        course, now = self._running.get(trial.name), self._clock()
        if course is None:
            return
        if course.first is None:
            points = news.curve
            course.first = now - (points[-1].seconds - points[0].seconds if points else 0.0)
            course.first_step = points[0].step if points else news.step
        course.last = now
        course.share = (news.step - course.first_step) / max(1, news.num_steps)

    def ended(self, trial: Trial, seconds: float | None = None) -> None:
        """An attempt of a trial has ended; one with a result has computed for `seconds`."""
        course = self._running.pop(trial.name, None)
        if course is None or seconds is None:
            return
        self._ended = True
        pace = seconds / _cost(trial)
        self._own[trial.cell.cell].append(pace)
        self._paces[trial.cell.cost].append(pace)
        if course.warm:
            self._gaps.append(max(0.0, self._clock() - course.started - seconds))
        if projected := course.projected():
            self._beyond.append(seconds / projected)

    def estimate(self, waiting: Sequence[Trial]) -> float | None:
        """Seconds until the running and the waiting trials have ended; None if no time is known."""
        beyond = median(self._beyond or [1.0])
        projected = {
            name: seconds * beyond
            for name, course in self._running.items()
            if (seconds := course.projected()) is not None
        }
        paces = {cost: fmean(several) for cost, several in self._paces.items()}
        for name, seconds in projected.items():
            trial = self._running[name].trial
            paces.setdefault(trial.cell.cost, seconds / _cost(trial))
        if not paces:
            return None
        gap = median(self._gaps or [0.0])
        free = [
            max(0.0, projected.get(course.trial.name, self._seconds(course.trial, paces)) - spent)
            for course in self._running.values()
            for spent in [self._spent(course)]
        ]
        free += [0.0] * (self._slots - len(free))
        heapq.heapify(free)
        for trial in waiting:
            heapq.heappush(free, heapq.heappop(free) + gap + self._seconds(trial, paces))
        return max(free)

    def _seconds(self, trial: Trial, paces: dict[float, float]) -> float:
        own = self._own.get(trial.cell.cell)
        if own:
            return fmean(own) * _cost(trial)
        nearest = min(paces, key=lambda cost: abs(math.log(max(cost, 1) / max(trial.cell.cost, 1))))
        return paces[nearest] * _cost(trial)

    def _spent(self, course: _Course) -> float:
        if course.first is not None:
            return self._clock() - course.first
        return self._clock() - course.started if course.warm else 0.0


def _cost(trial: Trial) -> float:
    """The cost in encoder tokens; at least 1, for systems that read none."""
    return max(trial.cell.cost, 1.0) * trial.share
