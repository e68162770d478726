"""A search under a budget: a block of trials that would exceed it does not start.

A block, defined by the search, is all cells with one seed of a grid, or all seeds of a proposed
configuration. A block that has started is finished, so that its trials can be compared. GPU-hours
are those of all commands on a sweep, a deadline is the command's own.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from rank_core.errors import BadInput
from sweeps.forecast.forecast import (
    Calibration,
    Forecast,
    TrialEstimate,
    calibrate,
    forecast,
    real_seconds,
    wall_seconds,
)
from sweeps.plan.budget import Budget
from sweeps.plan.options import Options
from sweeps.plan.plan import Trial
from sweeps.plan.terminal import duration, say
from sweeps.search.feed import Feed
from sweeps.search.search import Block, Search
from sweeps.store.records import Records, State
from sweeps.store.sweep_file import update_sweep_file
from sweeps.store.trial_status import USED

LEAST = TrialEstimate(1e-3, tokens=0.0, peak_bytes=0)
"""The estimate of trials without computation."""


def within_budget(
    search: Search, options: Options, states: Mapping[str, State]
) -> "Search | Budgeted":
    """The search, limited to a budget if there is one, less the time of its trials so far. Raises
    `BadInput` where no block fits."""
    if not options.budget.limited or search.over:
        return search
    say("measuring the cost of a trial on this device")
    known = forecast(search.plan, options)
    own = [states[trial.name] for trial in search.wanted if trial.name in states]
    spent = sum(state.seconds for state in own)
    real = real_seconds(own, known)
    feed = Budgeted(search, options.budget, known, spent=spent, real=real)
    feed.require_first_block()
    return feed


def note_held_back(feed: Feed, records: Records) -> str:
    """Removes held back trials from `sweep.json`, so that the report is complete; returns their
    number and the reason, "" if there are none."""
    if not isinstance(feed, Budgeted) or not feed.held_back:
        return ""
    search, ahead = feed.search, {trial.name for trial in feed.search.ahead}
    started = {trial.name for trial in search.wanted if trial.name not in ahead}
    most = "" if search.decision.final or search.plan.search.kind.proposes else "up to "
    planned = search.plan.max_trials
    stopped = (
        f"{most}{planned - len(started)} of {planned} planned trials did not start: "
        f"{feed.held_back}; the same command with a larger budget resumes"
    )
    update_sweep_file(records, stopped=stopped, **search.begun())
    return stopped


class Budgeted:
    """A feed that holds back the blocks of a search which would not end within the budget."""

    def __init__(
        self,
        search: Search,
        budget: Budget,
        known: Forecast,
        *,
        spent: float = 0.0,
        real: Sequence[tuple[TrialEstimate, float]] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.search, self.budget, self.known, self.clock = search, budget, known, clock
        self.held_back = ""  # the reason why no more blocks start
        self._admitted: set[str] = set()
        self._running: dict[str, tuple[TrialEstimate, float]] = {}  # and since when
        self._real = list(real)
        self._used = spent  # seconds of slots

    def require_first_block(self) -> None:
        """Refuses a budget in which no block fits and no command has spent anything."""
        if self.search.ahead and not self._admit(self.search.ahead[0]) and not self._used:
            raise BadInput(f"the budget must hold one block of trials: {self.held_back}")

    def described(self) -> dict[str, Any]:
        """The budget of `sweep.json`."""
        known = self.known
        return {"hours": self.budget.device_hours, "unit": known.unit, "units": known.units}

    def next(self) -> Trial | None:
        """The search's next trial, if its block fits."""
        while ahead := self.ahead:
            trial = ahead[0]
            if self._admit(trial):
                if self.search.ended_elsewhere(trial):
                    continue
                self._running[trial.name] = (self._estimate(trial), self.clock())
                self.search.launch(trial)
                return trial
            if not self.held_back:
                return None  # its block is still unknown
        return None

    @property
    def over(self) -> bool:
        """True if the search is over, or no more blocks start."""
        return not self.ahead if self.held_back else self.search.over

    @property
    def ahead(self) -> Sequence[Trial]:
        """Trials that may still come; once a block is held back, those of earlier blocks."""
        ahead = self.search.ahead
        if not self.held_back:
            return ahead
        return tuple(trial for trial in ahead if trial.name in self._admitted)

    @property
    def wanted(self) -> Sequence[Trial]:
        """All trials of the search, including those held back."""
        return self.search.wanted

    def ended(self, trial: Trial, status: str) -> None:
        """Counts the trial's time."""
        estimate, start = self._running.pop(trial.name)
        seconds = self.clock() - start
        self._used += seconds
        if status in USED:
            self._real.append((estimate, seconds))
        self.search.ended(trial, status)

    def _admit(self, trial: Trial) -> bool:
        """True if a trial and its block may start."""
        if trial.name in self._admitted:
            return True
        block = self.search.block(trial)
        if block is None:
            return False
        self.held_back = self._reason(block)
        if not self.held_back:
            self._admitted |= {started.name for started in block.trials}
        return not self.held_back

    def _reason(self, block: Block) -> str:
        """The reason why a block would exceed the budget, by the upper end of its estimate; "" if
        it fits."""
        waiting = [trial for trial in self.search.ahead if trial.name in self._admitted]
        new = [trial for trial in block.trials if trial.name not in self._admitted]
        estimates = [self._estimate(trial) for trial in (*waiting, *new)]
        trust, now = calibrate(self._real), self.clock()
        high = [trust.interval(estimate.seconds)[2] for estimate in estimates]
        remaining = [
            max(0.0, trust.interval(estimate.seconds)[2] - (now - start))
            for estimate, start in self._running.values()
        ]
        begun = sum(now - start for _, start in self._running.values())
        used = self._used + begun + sum(remaining) + sum(high[: len(waiting)])
        hours = (used + sum(high[len(waiting) :])) * self.known.units / 3600
        if hours > self.budget.device_hours:
            return self._over_budget(block.what, estimates[len(waiting) :], trust, used)
        end = now + self.known.start_seconds + wall_seconds(high, self.known.slots, remaining)
        if end > self.budget.deadline:
            return (
                f"{block.what} would end up to {duration(end - now)} from now, the deadline is in "
                f"{duration(max(0.0, self.budget.deadline - now))}"
            )
        return ""

    def _over_budget(
        self, what: str, estimates: Sequence[TrialEstimate], trust: Calibration, used: float
    ) -> str:
        seconds = sum(estimate.seconds for estimate in estimates)
        _, middle, high = (s * self.known.units / 3600 for s in trust.interval(seconds))
        left = self.budget.device_hours - used * self.known.units / 3600
        return (
            f"{what} need about {middle:.3g} {self.known.unit}-hours (up to {high:.3g}), and "
            f"{max(0.0, left):.3g} of {self.budget.device_hours:.3g} are left"
        )

    def _estimate(self, trial: Trial) -> TrialEstimate:
        """The whole trial; for an unmeasured cell, the mean of the measured ones."""
        trials = self.known.trials
        return trials.get(trial.cell.cell) or _mean(list(trials.values()) or [LEAST])


def _mean(measured: Sequence[TrialEstimate]) -> TrialEstimate:
    return TrialEstimate(fmean(one.seconds for one in measured), tokens=0.0, peak_bytes=0)
