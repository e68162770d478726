"""The progress of a running sweep, as lines or, on a terminal, as a table drawn in place."""

import math
import time
from collections.abc import Mapping
from functools import cache
from statistics import median
from time import time as unix_time
from typing import NamedTuple, TextIO

from rank_core.lines import put, visible
from rank_core.trial.trial import Progress
from sweeps.engine.cell_table import (
    ENOUGH_TO_ESTIMATE,
    TrialNow,
    cell_lines,
    counts_text,
    step_text,
)
from sweeps.engine.trial_task import End
from sweeps.plan.plan import PlannedCell, Trial
from sweeps.plan.trial_cost import planned_tokens
from sweeps.search.search import Search
from sweeps.store.records import State
from sweeps.store.trial_status import TrialStatus
from sweeps.terminal.live_text import Updated
from sweeps.terminal.text import (
    about,
    duration,
    numbered,
    shortened,
    terminal_columns,
    wrapped,
)

HEARTBEAT_SECONDS = 30.0
DRAW_SECONDS = 0.5  # at least, between two drawings of the table
TITLE = 28  # columns of a trial's name
MOST_RUNNING = 8  # trials named in a line


class Pace(NamedTuple):
    """The first and the last step that an attempt has made so far, with their Unix times."""

    first: tuple[int, float]
    last: tuple[int, float]
    num_steps: int

    @property
    def seconds(self) -> float:
        """The time between them."""
        return self.last[1] - self.first[1]

    @property
    def share(self) -> float:
        """The share of all steps between them."""
        return (self.last[0] - self.first[0]) / max(1, self.num_steps)


class Screen:
    """What a running sweep shows: lines or, on a terminal, a table drawn in place."""

    def __init__(
        self,
        search: Search,
        primary: str,
        known: Mapping[str, State],
        *,
        live: Updated | None = None,
        out: TextIO | None = None,
    ) -> None:
        self.search, self.primary, self.live, self.out = search, primary, live, out
        self.known = known  # trials by name, before this command
        self.trials: dict[str, Trial] = {}  # those that were launched
        self._open: dict[str, Trial] = {}  # of these, those that have not ended for good
        self.running: dict[str, str] = {}  # trial name: its state
        self.dev: dict[str, float] = {}  # trial name: its latest value on dev
        self.statuses: dict[str, TrialStatus] = {}  # of ended trials, by name
        self.slots = 1  # trials that ran when the last one started
        self._seconds = self._cost = 0.0  # of trials with a result
        self._share: dict[str, float] = {}  # of a running trial's steps
        self._launched: dict[str, float] = {}  # when, of a trial that waits for its process
        self._starts: list[float] = []  # seconds from the launch to the beginning of attempts
        self._began: dict[str, float] = {}  # Unix time of a running attempt
        self._paces: dict[str, Pace] = {}  # of a running trial
        self._rows: dict[str, TrialNow] = {}  # of the last drawing, by trial
        self._labels: dict[str, str] = {}  # {cell: its label}
        self._drawn: object = None  # the wanted trials of the last drawing
        self._changed: dict[str, Trial] = {}  # trials that have changed since, by name
        self.last_line = self.last_news = time.monotonic()
        self.last_drawn = 0.0

    def launched(self, trial: Trial) -> None:
        """A trial waits for its process."""
        self.trials[trial.name] = self._open[trial.name] = trial
        self.waits(trial, "waiting for a process")
        self._launched[trial.name] = time.monotonic()
        self._draw()

    def waits(self, trial: Trial, what: str) -> None:
        """What a launched trial waits for, or does."""
        self.running[trial.name] = what
        self._changed[trial.name] = trial

    def started(self, trial: Trial, attempt: int) -> None:
        """A trial starts, perhaps again."""
        self.trials[trial.name] = self._open[trial.name] = trial
        if (launched := self._launched.pop(trial.name, None)) is not None:
            self._starts.append(time.monotonic() - launched)
        self._began[trial.name] = unix_time()
        self.slots = len(self._began)
        self.waits(trial, step_text(None, None))
        self._draw()
        if attempt > 1:
            self.tell(f"attempt {attempt}", trial)

    def reported(self, trial: Trial, news: Progress) -> None:
        """A trial reports its progress."""
        # The last validation is followed by test, which takes minutes and reports nothing.
        ends = news.dev is not None and news.step == news.num_steps
        self.waits(trial, step_text(news.step, news.num_steps) + ", ranks test" * ends)
        self._share[trial.name] = news.step / max(1, news.num_steps)
        self._follow(trial, news)
        self.last_news = time.monotonic()
        if news.dev:
            self.dev[trial.name] = news.dev[self.primary]
        self.heartbeat()

    def _follow(self, trial: Trial, news: Progress) -> None:
        """Takes in the steps that this attempt has made; those before a checkpoint are replayed."""
        began = self._began.get(trial.name, math.inf)
        steps = [(point.step, point.seconds) for point in news.curve if point.seconds >= began]
        if steps:
            known = self._paces.get(trial.name)
            # From the first step of this attempt on: the start of the process, and steps before a
            # checkpoint, have another pace.
            first = known.first if known else steps[0]
            self._paces[trial.name] = Pace(first, steps[-1], news.num_steps)

    def ended(self, trial: Trial, end: End, *, again: bool) -> None:
        """An attempt ended, and the trial with it unless it runs `again`."""
        if again:
            self.goes_on(trial, f"{end.kind}, runs again: {end.reason}")
            return
        self._forget(trial)
        self.statuses[trial.name] = end.status
        self._open.pop(trial.name, None)
        if result := end.result:
            seconds = result.train_seconds + result.eval_seconds
            self._seconds += seconds
            self._cost += trial.cost
            detail = f"{seconds:.0f} s"
            if self.primary in result.dev:  # not where nothing is chosen
                self.dev[trial.name] = result.dev[self.primary]
                detail = f"dev {self.primary} {self.dev[trial.name]:.3f}  {detail}"
            detail += "  COLLAPSED" if end.status is TrialStatus.COLLAPSED else ""
            self.tell(detail, trial, in_table=end.status is TrialStatus.DONE)
            return
        stopped = end.status is TrialStatus.STOPPED
        word = "stopped" if stopped else f"{end.status.upper()}:"
        self.tell(f"{word} {visible(end.reason).splitlines()[0]}", trial, in_table=stopped)

    def goes_on(self, trial: Trial, why: str) -> None:
        """An attempt ended, and another one follows."""
        self._forget(trial)
        self.tell(why, trial)

    def _forget(self, trial: Trial) -> None:
        self._changed[trial.name] = trial
        for of_attempt in (self.running, self._share, self.dev, self._began, self._paces):
            of_attempt.pop(trial.name, None)

    def close(self) -> None:
        """Leaves the final table on the terminal."""
        if self.live:
            self._draw(now=True)
            self.live.close()

    def heartbeat(self) -> None:
        """Show running trials, as lines only after a pause, with the time since the last report if
        it is long."""
        self._draw()
        if time.monotonic() - self.last_line < HEARTBEAT_SECONDS:
            return
        named = [
            f"{self._title(self.trials[name])} {state}" for name, state in self.running.items()
        ]
        if more := len(named[MOST_RUNNING:]):
            named[MOST_RUNNING:] = [f"{more} more"]
        running = ", ".join(named)
        silent = self._silence() if self.last_news < self.last_line else ""
        self.tell(f"running: {running or 'nothing'}{silent}", in_table=True)

    def _silence(self) -> str:
        return f"; no reports for {duration(time.monotonic() - self.last_news)}"

    def _title(self, trial: Trial) -> str:
        seed = f" seed {trial.seed}"
        return shortened(trial.cell.label, TITLE - len(seed)) + seed

    def tell(self, text: str, trial: Trial | None = None, *, in_table: bool = False) -> None:
        """Print a line, of a trial or of the sweep, unless the live table has it (`in_table`)."""
        self.last_line = time.monotonic()
        if self.live and in_table:
            self._draw()
            return
        failed = sum(status.lost for status in self.statuses.values())
        lost = f", {failed} failed" if failed else ""
        total = len(self.trials) + self.search.work_ahead[0]
        progress = f"[{len(self.statuses):>{len(str(total))}}/{total}{lost}] "
        if trial:
            text = f"{self._title(trial):<{TITLE}} {text}"
        line, remaining = visible(f"{progress}{text}"), self._remaining()
        if len(line) > terminal_columns() or len(line + remaining) <= terminal_columns():
            line += remaining  # otherwise it would stand alone on a second line
        put(wrapped(line, len(progress)), to=self.out)

    def _draw(self, *, now: bool = False) -> None:
        """Draws the live table, at most every `DRAW_SECONDS`."""
        if self.live and (now or time.monotonic() - self.last_drawn >= DRAW_SECONDS):
            self.last_drawn = time.monotonic()
            self.live.show(self.lines(*self.live.size()))

    def lines(self, width: int, height: int) -> list[str]:
        """The live table, with the number of trials by state and the time left below."""
        self._bring_rows()
        trials = list(self._rows.values())
        total = f"{numbered(len(trials), 'trial')}: {counts_text(trials)}{self._remaining()}"
        if time.monotonic() - self.last_news >= HEARTBEAT_SECONDS:
            total += self._silence()
        # Three lines: the space around the table, and the total.
        table = cell_lines(self._labels, trials, self.primary, width=width, height=height - 4)
        return ["", *table, "", total]

    def _bring_rows(self) -> None:
        """Brings the rows of trials that have changed since the last drawing up to date: most of
        thousands have not."""
        wanted = self.search.decision.wanted
        if wanted is not self._drawn:
            self._drawn, before = wanted, self._rows
            shown = {trial.name: trial for trial in (*wanted, *self.trials.values())}
            self._labels = {trial.cell.cell: trial.cell.label for trial in shown.values()}
            self._rows = {
                name: before.get(name) or self._now(trial) for name, trial in shown.items()
            }
        for name, trial in self._changed.items():
            self._labels[trial.cell.cell] = trial.cell.label
            self._rows[name] = self._now(trial)
        self._changed.clear()

    def _now(self, trial: Trial) -> TrialNow:
        state = self.known.get(trial.name) or State(trial.name)
        doing = self.running.get(trial.name, "")
        status = TrialStatus.RUNNING if doing else self.statuses.get(trial.name, state.status)
        dev = self.dev.get(trial.name, state.dev.get(self.primary))
        cell, attempts = trial.cell.cell, state.num_attempts
        return TrialNow(cell, trial.seed, status, attempts, dev=dev, doing=doing)

    def _remaining(self) -> str:
        """The time left by the computing time per encoder token, of finished trials and of the
        steps of running ones, and by the usual start of an attempt: that of a group of workers
        takes longer than a small trial, that of a reused process nothing."""
        ahead, to_do = self.search.work_ahead
        to_do += sum(
            trial.cost - self._share.get(name, 0.0) * _cost_of_steps(trial.cell)
            for name, trial in self._open.items()
        )
        seconds, cost = self._seconds, self._cost
        for name, pace in self._paces.items():
            seconds += pace.seconds
            cost += pace.share * _cost_of_steps(self.trials[name].cell)
        # An estimate from the first steps of one trial would mislead: it needs a tenth of a mean
        # trial.
        mean = (self._cost + to_do) / max(1, len(self.trials) + ahead)
        if not to_do or not cost or cost < ENOUGH_TO_ESTIMATE * mean:
            return ""
        # Seconds per token of what is done, times what is to do, shared by the trials that run at a
        # time.
        waiting = ahead + len(self._open.keys() - self._began.keys())
        left = (to_do * seconds / cost + waiting * median(self._starts or [0.0])) / self.slots
        return f"  (about {about(left)} left)" if left >= 0.5 else ""


@cache
def _cost_of_steps(cell: PlannedCell) -> float:
    """The part of a trial's cost that its steps and their validations have: all but test."""
    tokens = planned_tokens(cell.config, cell.inputs, cell.chunks)
    return cell.cost * (1 - tokens.tested / max(1.0, tokens.cost))
