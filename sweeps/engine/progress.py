"""The monitor of a running sweep: it records events and shows them as lines or, on a terminal, as a
table drawn in place."""

import shutil
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TextIO

from rank_core.trial.trial import Progress
from sweeps.engine.cell_table import TrialNow, cell_lines, counts_text, step_text
from sweeps.engine.time_left import TimeLeft
from sweeps.engine.trial_task import End
from sweeps.plan.live_text import LiveText
from sweeps.plan.plan import Trial
from sweeps.plan.secrets import redact_text
from sweeps.plan.terminal import about, duration, numbered, shortened, terminal_columns, wrapped
from sweeps.search.feed import Feed
from sweeps.store.failures import Failure
from sweeps.store.kept_weights import KeptWeights
from sweeps.store.storage_retry import patiently
from sweeps.store.trial_status import TrialStatus
from sweeps.store.trial_table import TrialTable

HEARTBEAT_SECONDS = 30.0
DRAW_SECONDS = 0.5  # at least, between two drawings of the table
ENOUGH_TO_ESTIMATE = 0.1  # share of the work before the time left is shown
TITLE, SHORTEST_TITLE = 28, 20  # columns of a trial's name
MOST_RUNNING = 8  # trials named in a line


@dataclass
class Monitor:
    """The monitor of a sweep, in its driver; it keeps the launched trials."""

    table: TrialTable
    feed: Feed
    primary: str
    weights: KeptWeights | None = None
    live: LiveText | None = None  # None: lines alone
    out: TextIO | None = None  # None: standard output

    def __post_init__(self) -> None:
        self.trials: dict[str, Trial] = {}  # by name, those that were launched
        self.running: dict[str, str] = {}  # trial name: its state
        self.ended: dict[str, TrialStatus] = {}  # by trial name
        self.time_left = TimeLeft()
        self.last_line = self.last_news = time.monotonic()
        self.last_drawn = 0.0

    def launched(self, trial: Trial) -> None:
        """A trial waits for its process."""
        self.trials[trial.name] = trial
        self.running[trial.name] = "waiting for a process"
        self.time_left.started(trial)
        self.ended.pop(trial.name, None)  # it may have paused at a rung
        self._draw()

    def started(self, trial: Trial) -> None:
        """A trial starts, perhaps again."""
        self.launched(trial)
        attempt = self.table.started(trial)
        self.running[trial.name] = step_text(None, None)
        if attempt > 1:
            self._say(f"attempt {attempt}", trial)

    def news(self, trial: Trial, news: Progress) -> None:
        """A trial reports its progress."""
        self.running[trial.name] = step_text(news.step, news.num_steps)
        self.last_news = time.monotonic()
        self.time_left.news(trial, news)
        self.table.reported(trial, asdict(news))
        self.heartbeat()

    def failed(self, trial: Trial, failure: Failure, *, again: bool, traceback: str = "") -> None:
        """An attempt ended without a result, and the trial with it unless it runs `again`."""
        failure = replace(failure, reason=redact_text(failure.reason))
        self._over(trial)
        if not again:
            self.ended[trial.name] = TrialStatus.FAILED
        self.table.failed(trial, failure, again=again)
        if again:
            self._say(f"{failure.kind}, runs again: {failure.reason}", trial)
        else:
            self._say_lost(trial, "FAILED:", failure.reason, traceback)

    def tell(self, text: str) -> None:
        """Prints a message about the whole sweep."""
        self._say(text)

    def close(self) -> None:
        """Leave the final table on the terminal."""
        if self.live:
            self._draw(now=True)
            self.live.close()

    def interrupted(self) -> None:
        """The driver stops early, at any point: running trials count as not run, except those with
        a reported end and a result in the store."""
        for name, trial in self.trials.items():
            if self.table.status(trial) is TrialStatus.RUNNING and name not in self.ended:
                self.table.lost(trial, TrialStatus.PLANNED, "interrupted")
        self.running.clear()

    def finished(self, trial: Trial, end: End) -> None:
        """A trial has reached its end or its rung."""
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
            self._say(detail, trial, in_table=status is TrialStatus.DONE)
        else:
            reason = redact_text(end.reason)
            self.table.lost(trial, status, reason)
            paused = status is TrialStatus.STOPPED  # by design, at a rung
            word = "pauses" if paused else f"{status.upper()}:"
            self._say_lost(trial, word, reason, end.traceback, in_table=paused)

    def _say_lost(
        self, trial: Trial, word: str, reason: str, traceback: str, *, in_table: bool = False
    ) -> None:
        if traceback:
            self._keep_traceback(trial, traceback)
        self._say(f"{word} {reason.splitlines()[0]}", trial, in_table=in_table)

    def _over(self, trial: Trial, seconds: float | None = None) -> None:
        """Removes an ended attempt."""
        self.time_left.ended(trial, seconds)
        self.running.pop(trial.name, None)

    def _keep_traceback(self, trial: Trial, text: str) -> None:
        store = self.table.store

        def write() -> None:
            folder: Path = store.folder / "failures"
            folder.mkdir(exist_ok=True)
            (folder / f"{trial.name}.txt").write_text(redact_text(text))
            store.push("failures")

        patiently(write, f"{store.storage} rejected a traceback")

    def heartbeat(self) -> None:
        """Show running trials, as lines only after a pause, with the time since the last report if
        it is long."""
        self.table.heartbeat()
        self._draw()
        now = time.monotonic()
        if now - self.last_line < HEARTBEAT_SECONDS:
            return
        named = [
            f"{self._title(self.trials[name])} {state}"
            for name, state in list(self.running.items())[:MOST_RUNNING]
        ]
        more = len(self.running) - len(named)
        running = ", ".join([*named, f"{more} more"] if more else named)
        silent = self._silence() if self.last_news < self.last_line else ""
        self._say(f"running: {running or 'nothing'}{silent}", in_table=True)

    def _silence(self) -> str:
        return f"; no reports for {duration(time.monotonic() - self.last_news)}"

    def _title(self, trial: Trial, columns: int = TITLE) -> str:
        seed = f" seed {trial.seed}"
        return shortened(trial.cell.label, columns - len(seed)) + seed

    def _say(self, text: str, trial: Trial | None = None, *, in_table: bool = False) -> None:
        """Print a line unless the live table has it (`in_table`). To fit the terminal a label is
        shortened, then the text is wrapped."""
        self.last_line = time.monotonic()
        if self.live and in_table:
            self._draw()
            return
        failed = sum(status.lost for status in self.ended.values())
        lost = f", {failed} failed" if failed else ""
        total = len(self.trials.keys() | {trial.name for trial in self.feed.ahead})
        progress = f"[{len(self.ended):>{len(str(total))}}/{total}{lost}] "
        remaining = self._remaining()
        if trial:
            room = terminal_columns() - len(f"{progress} {text}{remaining}")
            room = min(TITLE, room) if room >= SHORTEST_TITLE else TITLE
            text = f"{self._title(trial, room):<{room}} {text}"
        print(
            wrapped(f"{progress}{text}{remaining}", len(progress)),
            file=self.out or sys.stdout,
            flush=True,
        )

    def _draw(self, *, now: bool = False) -> None:
        """Draws the live table, at most every `DRAW_SECONDS`."""
        if self.live and (now or time.monotonic() - self.last_drawn >= DRAW_SECONDS):
            self.last_drawn = time.monotonic()
            self.live.show(self.lines(*shutil.get_terminal_size()))

    def lines(self, width: int, height: int) -> list[str]:
        """The live table, with the number of trials by state and the time left below."""
        shown = {trial.name: trial for trial in (*self.feed.wanted, *self.trials.values())}
        trials = [self._now(trial) for trial in shown.values()]
        labels = {trial.cell.cell: trial.cell.label for trial in shown.values()}
        total = f"{numbered(len(trials), 'trial')}: {counts_text(trials)}{self._remaining()}"
        if time.monotonic() - self.last_news >= HEARTBEAT_SECONDS:
            total += self._silence()
        # Three lines: the space around the table, and the total.
        table = cell_lines(labels, trials, self.primary, width=width, height=height - 4)
        return ["", *table, "", total]

    def _now(self, trial: Trial) -> TrialNow:
        state = self.table.state.trial(trial.name)
        doing = self.running.get(trial.name, "")
        return TrialNow(
            trial.cell.cell,
            trial.seed,
            TrialStatus.RUNNING if doing else state.status,
            state.attempts,
            dev=state.dev.get(self.primary),
            doing=doing,
        )

    def _remaining(self) -> str:
        cost = {name: trial.cell.cost * trial.share for name, trial in self.trials.items()}
        done = sum(cost[name] for name in self.ended)
        waiting = {name: self.trials[name] for name in self.trials.keys() - self.ended}
        waiting |= {trial.name: trial for trial in self.feed.ahead}
        for name in self.running:
            waiting.pop(name, None)
        to_do = sum(trial.cell.cost * trial.share for trial in waiting.values())
        to_do += sum(cost[name] for name in self.running)
        if not done or not (waiting or self.running) or done < ENOUGH_TO_ESTIMATE * (done + to_do):
            return ""
        seconds = self.time_left.estimate(list(waiting.values()))
        return "" if seconds is None else f"  (about {about(seconds)} left)"
