"""A search under a budget: a block of trials that would exceed it does not start.

A block, defined by the search, is all cells with one seed of a grid, or all seeds of a proposed
configuration. A block that has started is finished, if need be by the next command, so that its
trials can be compared. GPU-hours are those of all commands on a sweep.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rank_core.errors import BadInput
from sweeps.forecast.forecast import Forecast, TrialEstimate, calibrate, forecast, real_seconds
from sweeps.plan.options import Options
from sweeps.plan.plan import Trial
from sweeps.search.search import Block, Limit, Search
from sweeps.store.records import State
from sweeps.store.sweep_file import described, update_sweep_file
from sweeps.store.trial_status import USED
from sweeps.terminal.text import say


def limit_to_budget(
    search: Search,
    options: Options,
    states: Mapping[str, State],
    known: Forecast | None = None,
    *,
    refuses: bool = True,
) -> dict[str, Any]:
    """Limits a search to its budget if there is one, less the time of its trials so far; returns
    `budget` of its `sweep.json`. `known` is its forecast, measured otherwise. If it `refuses`,
    raises `BadInput` where no block fits."""
    hours = options.max_gpu_hours
    if hours is None:
        return {}
    # Also those that a race no longer wants.
    own = [states[trial.name] for trial in search.plan.trials() if trial.name in states]
    file = described(search.records)
    before = file.budget if file else {}
    if search.complete and (before or not any(state.attempts for state in own)):
        return {**before, "hours": hours} if before else {}  # the test sets have what is left
    if known is None:
        say("measuring the cost of a trial on this device")
        known = forecast(search.plan, options, search.num_ended)
    spent = sum(state.slot_seconds(known.num_workers) for state in own)
    # One that has ended begins a new block where it runs again.
    waits = {name for name, state in states.items() if state.status.waits}
    begun = [name for name in before.get("begun", ()) if name in waits or name not in states]
    limit = BudgetLimit(search, hours, known, spent, real_seconds(own, known), begun)
    limit.decide_first_block(refuses=refuses)
    return limit.described


def note_held_back(search: Search) -> str:
    """Removes held back trials from `sweep.json`, so that the report is complete; returns their
    number and the reason, "" if there are none."""
    if not search.limit.held_back:
        return ""
    ahead = {trial.name for trial in search.unstarted}
    started = {trial.name for trial in search.decision.wanted if trial.name not in ahead}
    most = "" if search.decision.final or search.plan.search.kind.proposes else "up to "
    planned = search.plan.max_trials
    stopped = (
        f"{most}{planned - len(started)} of {planned} planned trials did not start: "
        f"{search.limit.held_back}; the same command with a larger budget resumes"
    )
    update_sweep_file(search.records, stopped=stopped, **search.begun())
    return stopped


@dataclass
class _Launched:
    """A launched trial that has not ended."""

    estimate: TrialEstimate
    since: float | None = None  # that its process runs; None while it waits for one
    share: float = 1.0  # of the workers of a slot
    before: float = 0.0  # seconds of its lost attempts

    def seconds(self, now: float) -> float:
        """The time on a whole slot so far."""
        return self.before + (0.0 if self.since is None else self.share * (now - self.since))


class BudgetLimit(Limit):
    """Holds back the blocks of a search which would not end within the budget. `begun` are the
    trials of begun blocks that may still have to start."""

    by_seed = True

    def __init__(
        self,
        search: Search,
        hours: float,
        known: Forecast,
        spent: float = 0.0,
        real: Sequence[tuple[TrialEstimate, float]] = (),
        begun: Iterable[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.search, self.hours, self.known, self.clock = search, hours, known, clock
        # Of the blocks that an earlier command has begun, which may have been killed.
        self.admitted: set[str] = {*begun} & {trial.name for trial in search.unstarted}
        self._begun = frozenset(self.admitted)  # as `sweep.json` has them
        self._running: dict[str, _Launched] = {}
        self._real = list(real)
        self._used = spent  # seconds of slots
        mean = fmean([one.seconds for one in known.trials.values()] or [1e-3])
        self._unmeasured = TrialEstimate(mean, tokens=0.0, peak_bytes=0)
        search.limit = self

    def decide_first_block(self, *, refuses: bool = True) -> None:
        """Holds back the first block if it does not fit; if this `refuses`, raises `BadInput` for a
        budget in which no block fits and of which no command has spent anything."""
        ahead = self.search.unstarted
        admits = not ahead or self.admits(ahead[0]) or bool(self.admitted)
        if refuses and not admits and not self._used:
            raise BadInput(f"the budget must hold one block of trials: {self.held_back}")

    @property
    def described(self) -> dict[str, Any]:
        """The `budget` of `sweep.json`."""
        known = self.known
        facts = {"hours": self.hours, "unit": known.unit, "units": known.units}
        return facts | {"workers": known.num_workers, "begun": sorted(self._begun)}

    def launched(self, trial: Trial) -> None:
        """Counts a trial, and no time: it may wait for a node."""
        self._running[trial.name] = _Launched(self._estimate(trial))

    def started(self, trial: Trial, workers: int = 1) -> None:
        """Notes when a process of a trial starts, and on how much of a slot; and its block in
        `sweep.json`, so that the next command finishes it."""
        if trial.name not in self._begun:
            self._begun = frozenset(self.admitted)
            update_sweep_file(self.search.records, budget=self.described)
        launched = self._running.setdefault(trial.name, _Launched(self._estimate(trial)))
        launched.since = self.clock() if launched.since is None else launched.since
        launched.share = workers / self.known.num_workers

    def lost(self, trial: Trial) -> None:
        """Counts the time of a lost attempt; the wait for the next one costs nothing."""
        launched = self._running[trial.name]
        launched.before, launched.since = launched.seconds(self.clock()), None

    def ended(self, trial: Trial, status: str) -> None:
        """Counts the trial's time."""
        self.admitted.discard(trial.name)
        if launched := self._running.pop(trial.name, None):  # and not in another sweep
            seconds = launched.seconds(self.clock())
            self._used += seconds
            if status in USED:
                self._real.append((launched.estimate, seconds))

    def admits(self, trial: Trial) -> bool:
        """True if the block of a trial fits, or has begun."""
        if trial.name in self.admitted:
            return True
        block = self.search.block(trial)
        if block is None:
            return False
        self.held_back = self._reason(block)
        if not self.held_back:
            self.admitted |= {started.name for started in block.trials}
        return not self.held_back

    def _reason(self, block: Block) -> str:
        """The reason why a block would exceed the budget, by the upper end of its estimate; "" if
        it fits."""
        # Admitted blocks run to their end: what they still need is as good as spent.
        waiting = [trial for trial in self.search.unstarted if trial.name in self.admitted]
        new = [trial for trial in block.trials if trial.name not in self.admitted]
        estimates = [self._estimate(trial) for trial in (*waiting, *new)]
        trust = calibrate(self._real)
        # The upper ends: a budget is a promise, and the middle would break it half of the time.
        high = [trust.interval(estimate.seconds)[2] for estimate in estimates]
        now = self.clock()
        running = [(one.seconds(now), one.estimate.seconds) for one in self._running.values()]
        # What a running trial takes in all: its time so far where that is longer than foretold.
        whole = sum(max(spent, trust.interval(seconds)[2]) for spent, seconds in running)
        used = self._used + whole + sum(high[: len(waiting)])
        if (used + sum(high[len(waiting) :])) * self.known.units / 3600 <= self.hours:
            return ""
        seconds = sum(estimate.seconds for estimate in estimates[len(waiting) :])
        _, middle, most = (s * self.known.units / 3600 for s in trust.interval(seconds))
        left = self.hours - used * self.known.units / 3600
        return (
            f"{block.what} need about {middle:.3g} {self.known.unit}-hours (up to {most:.3g}), and "
            f"{max(0.0, left):.3g} of {self.hours:.3g} are left"
        )

    def _estimate(self, trial: Trial) -> TrialEstimate:
        """The whole trial; for an unmeasured cell, the mean of the measured ones."""
        return self.known.trials.get(trial.cell.cell, self._unmeasured)
