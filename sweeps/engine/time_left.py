"""The time a sweep still takes, from the time that its trials took to compute.

Counts from a trial's first step: what a process needs to start is no measure of what is to come.
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

ENOUGH_STEPS = 0.2  # share of a trial's steps after which its pace says how long it will take


@dataclass
class _Course:
    """A running trial, by the driver's clock."""

    trial: Trial
    started: float
    warm: bool  # its process has computed another trial before
    first: float | None = None  # when its first step was done
    first_step: int = 0
    last: float = 0.0  # when it reported last
    share: float = 0.0  # of all steps, from the first one to the last report

    def projected(self) -> float | None:
        """Seconds from its first step to its end, if it goes on as so far."""
        if self.first is None or self.share < ENOUGH_STEPS:
            return None
        return (self.last - self.first) / self.share


class TimeLeft:
    """Follows the running trials of one sweep. A configuration that has finished takes with
    another seed what it took; any other one as much per unit of cost as the one known whose cost is
    nearest."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._running: dict[str, _Course] = {}
        self._slots = 1  # trials side by side
        self._ended = False  # whether any trial has
        self._paces: dict[float, list[float]] = defaultdict(list)  # cost: seconds per unit of it
        self._own: dict[str, list[float]] = defaultdict(list)  # the same by cell
        self._gaps: list[float] = []  # between two trials of a process
        self._beyond: list[float] = []  # seconds that a trial took per second that it projected

    def started(self, trial: Trial) -> None:
        """A trial begins, or waits for a process to begin in."""
        self._running[trial.name] = _Course(trial, self._clock(), warm=self._ended)
        self._slots = len(self._running)

    def news(self, trial: Trial, news: Progress) -> None:
        """A trial reports how far it is."""
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
        """A trial has ended, or an attempt of it; one with a result has computed for so long."""
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
        """Seconds until the running trials and those that wait for a slot have ended; None where
        there is nothing to go by."""
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
        """What a trial takes from its first step to its end."""
        own = self._own.get(trial.cell.cell)
        if own:
            return fmean(own) * _cost(trial)
        nearest = min(paces, key=lambda cost: abs(math.log(max(cost, 1) / max(trial.cell.cost, 1))))
        return paces[nearest] * _cost(trial)

    def _spent(self, course: _Course) -> float:
        """How long it has computed."""
        if course.first is not None:
            return self._clock() - course.first
        return self._clock() - course.started if course.warm else 0.0


def _cost(trial: Trial) -> float:
    """In encoder tokens; a system that reads none has its own pace."""
    return max(trial.cell.cost, 1.0) * trial.share
