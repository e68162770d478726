"""Follows a running sweep: records what happens, tells the person watching."""

import sys
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TextIO

from rank_core.trial.trial import Progress
from sweeps.engine.time_left import TimeLeft
from sweeps.engine.trial_task import End
from sweeps.plan.plan import Trial
from sweeps.plan.secrets import redact_text
from sweeps.plan.terminal import about, duration, shortened, terminal_columns, wrapped
from sweeps.search.feed import Feed
from sweeps.store.failures import Failure
from sweeps.store.kept_weights import KeptWeights
from sweeps.store.storage_retry import patiently
from sweeps.store.trial_status import TrialStatus
from sweeps.store.trial_table import TrialTable

HEARTBEAT_SECONDS = 30.0
ENOUGH_TO_TELL = 0.1  # share of the work after which the time left is told
TITLE, SHORTEST_TITLE = 28, 20  # columns of a trial's name
MOST_RUNNING = 8  # trials that a line names


@dataclass
class Monitor:
    """One per sweep, in the driver. Learns of a trial when it is launched."""

    table: TrialTable
    feed: Feed  # what it has ahead is what is left to do
    primary: str
    weights: KeptWeights | None = None
    out: TextIO = field(default_factory=lambda: sys.stdout)

    def __post_init__(self) -> None:
        self.trials: dict[str, Trial] = {}  # by name, those that were launched
        self.running: dict[str, str] = {}  # trial name: what it is doing
        self.ended: dict[str, TrialStatus] = {}  # by trial name
        self.time_left = TimeLeft()
        self.last_line = self.last_news = time.monotonic()

    def launched(self, trial: Trial) -> None:
        """A trial waits for its process."""
        self.trials[trial.name] = trial
        self.running[trial.name] = "waits for a process"
        self.time_left.started(trial)
        self.ended.pop(trial.name, None)  # it may have rested at a rung

    def started(self, trial: Trial) -> None:
        """A trial begins, or begins again."""
        self.launched(trial)
        attempt = self.table.started(trial)
        self.running[trial.name] = "starting"
        if attempt > 1:
            self._say(f"attempt {attempt}", trial)

    def news(self, trial: Trial, news: Progress) -> None:
        """A trial tells how far it is."""
        self.running[trial.name] = f"step {news.step}/{news.num_steps}"
        self.last_news = time.monotonic()
        self.time_left.news(trial, news)
        self.table.reported(trial, asdict(news))
        self.heartbeat()

    def failed(self, trial: Trial, failure: Failure, *, again: bool, traceback: str = "") -> None:
        """An attempt ended without a result; the trial with it, unless it is tried `again`."""
        failure = replace(failure, reason=redact_text(failure.reason))
        self._over(trial)
        if not again:
            self.ended[trial.name] = TrialStatus.FAILED
        self.table.failed(trial, failure, again=again)
        if again:
            self._say(f"{failure.kind}, is run again: {failure.reason}", trial)
        else:
            self._say_lost(trial, "FAILED:", failure.reason, traceback)

    def stopped(self, trial: Trial) -> None:
        """The feed has ended a trial early."""
        doing = self._over(trial)
        self.ended[trial.name] = TrialStatus.STOPPED
        reason = f"stopped early, {doing}"
        self.table.lost(trial, TrialStatus.STOPPED, reason)
        self._say(reason, trial)

    def tell(self, text: str) -> None:
        """Something about the whole sweep."""
        self._say(text)

    def interrupted(self) -> None:
        """The driver stops early, at whatever line it is: what the table has as running counts as
        not run, but for a trial whose end has been heard: a result is in the store by then."""
        for name, trial in self.trials.items():
            if self.table.status(trial) is TrialStatus.RUNNING and name not in self.ended:
                self.table.lost(trial, TrialStatus.PLANNED, "interrupted")

    def finished(self, trial: Trial, end: End) -> None:
        """A trial has come to its end, or to its rung."""
        result = end.result
        seconds = result.train_seconds + result.eval_seconds if result else None
        self._over(trial, seconds)
        self.ended[trial.name] = status = end.status
        if result:
            self.table.finished(trial)
            if self.weights:
                self.weights.finished(trial.name)
            detail = f"dev {self.primary} {result.dev[self.primary]:.3f}  {seconds:.0f} s"
            detail += "  COLLAPSED" if status is TrialStatus.COLLAPSED else ""
            self._say(detail, trial)
        else:
            reason = redact_text(end.reason)
            self.table.lost(trial, status, reason)
            paused = status is TrialStatus.STOPPED  # by design, at a rung
            word = "rests" if paused else f"{status.upper()}:"
            self._say_lost(trial, word, reason, end.traceback)

    def _say_lost(self, trial: Trial, word: str, reason: str, traceback: str) -> None:
        if traceback:
            self._keep_traceback(trial, traceback)
        self._say(f"{word} {reason.splitlines()[0]}", trial)

    def _over(self, trial: Trial, seconds: float | None = None) -> str:
        """An attempt has ended; what it was doing."""
        self.time_left.ended(trial, seconds)
        return self.running.pop(trial.name, "")

    def _keep_traceback(self, trial: Trial, text: str) -> None:
        store = self.table.store

        def write() -> None:
            folder: Path = store.folder / "failures"
            folder.mkdir(exist_ok=True)
            (folder / f"{trial.name}.txt").write_text(redact_text(text))
            store.push("failures")

        patiently(write, f"{store.storage} does not take a traceback")

    def heartbeat(self) -> None:
        """Says what runs where nothing has been said for a while, and that nothing reports."""
        self.table.heartbeat()
        now = time.monotonic()
        if now - self.last_line < HEARTBEAT_SECONDS:
            return
        named = [
            f"{self._title(self.trials[name])} {state}"
            for name, state in list(self.running.items())[:MOST_RUNNING]
        ]
        more = len(self.running) - len(named)
        running = ", ".join([*named, f"{more} more"] if more else named)
        silent = self.last_news < self.last_line
        words = f"; no news for {duration(now - self.last_news)}" if silent else ""
        self._say(f"running: {running or 'nothing'}{words}")

    def _title(self, trial: Trial, columns: int = TITLE) -> str:
        seed = f" seed {trial.seed}"
        return shortened(trial.cell.label, columns - len(seed)) + seed

    def _say(self, text: str, trial: Trial | None = None) -> None:
        """A line within the terminal: the trial's label is shortened where that is enough; a reason
        goes on in the next line."""
        failed = sum(status.lost for status in self.ended.values())
        lost = f", {failed} failed" if failed else ""
        total = len(self.trials.keys() | {trial.name for trial in self.feed.ahead})
        done = f"[{len(self.ended):>{len(str(total))}}/{total}{lost}] "
        left = self._remaining()
        if trial:
            room = terminal_columns() - len(f"{done} {text}{left}")
            room = min(TITLE, room) if room >= SHORTEST_TITLE else TITLE
            text = f"{self._title(trial, room):<{room}} {text}"
        print(wrapped(f"{done}{text}{left}", len(done)), file=self.out, flush=True)
        self.last_line = time.monotonic()

    def _remaining(self) -> str:
        """The time left; empty before there is anything to go by."""
        cost = {name: trial.cell.cost * trial.share for name, trial in self.trials.items()}
        done = sum(cost[name] for name in self.ended)
        waiting = {name: self.trials[name] for name in self.trials.keys() - self.ended}
        waiting |= {trial.name: trial for trial in self.feed.ahead}
        for name in self.running:
            waiting.pop(name, None)
        to_do = sum(trial.cell.cost * trial.share for trial in waiting.values())
        to_do += sum(cost[name] for name in self.running)
        if not done or not (waiting or self.running) or done < ENOUGH_TO_TELL * (done + to_do):
            return ""
        seconds = self.time_left.estimate(list(waiting.values()))
        return "" if seconds is None else f"  (about {about(seconds)} left)"
