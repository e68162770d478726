"""The trials of a sweep by its event log: their state and two tables, `trials.parquet` (a row per
started trial) and `failures.parquet` (a row per lost attempt). The store decides which trials are
finished; the log has attempts, reasons and costs.
"""

import io
import math
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from rank_core.errors import BadInput
from rank_core.files import atomic_write
from rank_core.models import ignored_settings, model_class
from sweeps.plan.secrets import redact, redact_text
from sweeps.plan.terminal import say
from sweeps.store.checksums import COSTS, read_whole_result
from sweeps.store.driver_lock import this_process
from sweeps.store.failures import Failure
from sweeps.store.storage_retry import patient_read, patiently
from sweeps.store.trial_events import (
    AnyEvent,
    AttemptLost,
    AttemptStarted,
    CommandBegan,
    EventLog,
    Line,
    Reported,
    TrialEnded,
    TrialEvent,
    TrialPlanned,
    read_log,
    read_progress,
)
from sweeps.store.trial_status import TrialStatus
from sweeps.store.trial_store import Store

if TYPE_CHECKING:
    from sweeps.plan.plan import Plan, Trial

TRIALS, FAILURES = "trials.parquet", "failures.parquet"


@dataclass
class TrialState:
    """A trial after some events."""

    cell: str
    seed: int
    status: TrialStatus = TrialStatus.PLANNED
    reason: str = ""
    begun: int = 0  # attempts
    paused: bool = False  # the last one, at a rung: the next resumes it
    since: int = 0  # when the last attempt started, in milliseconds since the epoch
    seconds: float = 0.0  # of the ended attempts; 0 for a trial of another sweep
    step: int | None = None  # of the running attempt
    num_steps: int | None = None
    dev: Mapping[str, Any] = field(default_factory=dict)  # its latest means; at its end the best
    settings: Mapping[str, Any] = field(default_factory=dict)  # the swept ones
    costs: Mapping[str, float] = field(default_factory=dict)

    @property
    def attempts(self) -> int:
        """Attempts so far, at least one if the trial has a result or a rung."""
        left = self.status.used or self.status is TrialStatus.STOPPED
        return max(self.begun, int(left))

    @property
    def next_attempt(self) -> int:
        """The number of the next attempt; resuming from a rung is not a new one."""
        return max(1, self.begun + (not self.paused))

    def apply(self, event: TrialEvent) -> None:
        """Applies an event."""
        if self.status is TrialStatus.RUNNING and isinstance(event, TrialEnded | AttemptLost):
            # The driver may have died before it could record this end.
            result = event.result if isinstance(event, TrialEnded) else {}
            longest = result["train_seconds"] + result["eval_seconds"] if result else math.inf
            self.seconds += max(0.0, min((event.time - self.since) / 1000, longest))
            self.since = event.time
        if isinstance(event, AttemptStarted):
            self.begun, self.paused = event.attempt, False
            self.status, self.reason = TrialStatus.RUNNING, ""
            self.step, self.dev, self.since = None, {}, event.time
            names = ("model.name", *event.swept)
            self.settings = {name: event.settings.get(name) for name in names}
        elif isinstance(event, Reported):
            self.step, self.num_steps = event.step, event.num_steps
            self.dev = event.dev or self.dev
        elif isinstance(event, TrialPlanned):
            if self.status.used:  # damaged, or run again for a file: no attempt was lost
                self.begun = 0
            self.status, self.reason = TrialStatus(event.status), event.reason
        elif isinstance(event, TrialEnded):
            self.status, self.reason = TrialStatus(event.status), event.reason
            self.paused = self.status is TrialStatus.STOPPED
            self.costs = {name: float(event.result[name]) for name in COSTS if event.result}
            self.dev = event.result.get("dev", self.dev)

    def row(self) -> dict[str, Any]:
        """The trial's row of `trials.parquet`."""
        return {
            "cell": self.cell,
            "seed": self.seed,
            "status": str(self.status),
            "stop_reason": self.reason,
            "attempts": self.attempts,
            **self.settings,
            **dict.fromkeys(COSTS, float("nan")),
            **self.costs,
        }


@dataclass
class SweepState:
    """All trials of a folder after some events, by name."""

    trials: dict[str, TrialState] = field(default_factory=dict)
    lost: list[AttemptLost] = field(default_factory=list)
    command: CommandBegan | None = None  # the last one
    news: TrialEvent | None = None  # the last one

    def apply(self, event: AnyEvent) -> None:
        """Applies an event."""
        if isinstance(event, CommandBegan):
            self.command = event
            return
        self.news = event
        if isinstance(event, AttemptLost):
            self.lost.append(event)
        self.trial(event.trial).apply(event)

    def trial(self, name: str) -> TrialState:
        """The state of a trial, which may be new."""
        if name not in self.trials:
            cell, _, seed = name.rpartition("-seed")
            self.trials[name] = TrialState(cell, int(seed))
        return self.trials[name]

    def rows(self) -> list[dict[str, Any]]:
        """The rows of `trials.parquet`: trials that never started are not in the table."""
        return [state.row() for state in self.trials.values() if state.attempts]

    def failures(self) -> list[dict[str, Any]]:
        """The rows of `failures.parquet`."""
        columns = ("cell", "seed", "attempt", "time", "node", "kind", "reason", "again")
        return [
            {name: getattr(event, name) for name in columns} | {"time": _iso(event.time)}
            for event in self.lost
        ]


def replay(lines: Iterable[Line]) -> SweepState:
    """The state after all events of a log; damaged lines are skipped."""
    state = SweepState()
    for line in lines:
        if line.event is not None:
            state.apply(line.event)
    return state


def read_state(store: Store, *, live: bool = False) -> SweepState:
    """The state of a sweep that another process may drive (`live`), read only. A folder of version
    0.1 has no log, but two tables."""
    lines = read_log(store, live=live)
    if lines:
        state = replay(lines)
        for event in read_progress(store, live=live):
            trial = state.trials.get(event.trial)
            if trial and trial.status is TrialStatus.RUNNING and event.time >= trial.since:
                state.apply(event)
        return state
    state = SweepState()
    for row in _rows(store, TRIALS, ("cell", "seed", "status", "stop_reason", "attempts")):
        trial = state.trial(f"{row['cell']}-seed{row['seed']}")
        trial.status, trial.reason = TrialStatus(row["status"]), str(row["stop_reason"] or "")
        trial.begun = int(row["attempts"])
    for row in _rows(store, FAILURES, ("cell", "seed", "kind")):
        state.lost.append(
            AttemptLost(
                time=0,
                trial=f"{row['cell']}-seed{row['seed']}",
                attempt=0,
                kind=row["kind"],
                reason="",
                node="",
                again=False,
            )
        )
    return state


def _rows(store: Store, name: str, columns: Sequence[str]) -> list[dict[Any, Any]]:
    """The rows of a table; empty without the file."""
    content = store.read_file(name)
    if content is None:
        return []
    import pandas as pd

    try:
        table = pd.read_parquet(io.BytesIO(content), columns=list(columns))
    except (ValueError, OSError) as error:
        raise BadInput(
            f"{store.root}/{name} must be a table of a sweep with {', '.join(columns)}: {error}"
        ) from None
    return [dict(row) for row in table.to_dict("records")]


class TrialTable:
    """The trials of a sweep for its driver: every change is an event, which is in the log before
    the method returns."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.log = EventLog(store)
        lines = self.log.read()
        self.state = replay(lines)
        if not lines and store.pull_file(TRIALS).exists():
            say(
                f"warning: {store.root} has no readable {self.log.path.name}: attempts and "
                "failures of earlier commands are lost, the trials in runs/ are not"
            )

    def begin(self, plan: "Plan") -> None:
        """Record that a command takes up the sweep."""
        model, inputs = plan.base.model.name, plan.inputs
        tags = {
            "collection": inputs.collection.name,
            "collection.hash": inputs.collection.content_hash,
            "backbone.hash": inputs.backbone.content_hash,
            **code_tags(),
            **source_tags(plan.experiment.source),
        }
        command = CommandBegan(
            writer=this_process(),
            model=model,
            model_label=model_class(model).label,
            tags=redact(tags),
        )
        self._add(command)

    def plan(
        self, plan: "Plan", finished: set[str], resting: Mapping[str, str] | None = None
    ) -> list["Trial"]:
        """Records a plan and returns the trials that still have to run. Those `resting` at a rung
        may have to run; the mapping has their results so far."""
        self.store.pull({trial.name for trial in plan.trials()} & finished)
        missing = []
        events: list[TrialEvent] = []
        for trial in plan.trials():
            state = self._state(trial)
            if trial.name in finished:
                events += self._end_of(trial)
            elif state.status is not TrialStatus.DIVERGED:  # never runs again
                missing.append(trial)
                reached = (resting or {}).get(trial.name)
                status = TrialStatus.STOPPED if reached else TrialStatus.PLANNED
                if (state.status, state.reason) != (status, reached or ""):
                    planned = TrialPlanned(trial=trial.name, status=status, reason=reached or "")
                    events.append(planned)
        self._add(*events)
        return missing

    def started(self, trial: "Trial") -> int:
        """Counts an attempt and returns its number."""
        event = self._start_of(trial)
        self._add(event)
        return event.attempt

    def reported(self, trial: "Trial", news: Mapping[str, Any]) -> None:
        """Add the report of a running trial, written with the others."""
        event = Reported.of(trial.name, news)
        self.log.report(event)
        self.state.apply(event)

    def heartbeat(self) -> None:
        """Writes pending reports when no new ones arrive."""
        self.log.write_due_reports()

    def finished(self, trial: "Trial") -> None:
        """Records the result that is in the store."""

        def read() -> list[TrialEvent]:
            self.store.pull({trial.name})
            return self._end_of(trial)

        self._add(*patient_read(self.store, read))

    def failed(self, trial: "Trial", failure: Failure, *, again: bool) -> None:
        """Record the end of an attempt without a result, and whether another follows. Otherwise the
        trial has failed."""
        reason = redact_text(failure.reason)
        lost = AttemptLost(
            trial=trial.name,
            attempt=self._state(trial).begun,
            kind=failure.kind,
            reason=reason,
            node=failure.where,
            again=again,
        )
        end = TrialEnded(trial=trial.name, status=TrialStatus.FAILED, reason=reason)
        self._add(lost, *(() if again else (end,)))

    def lost(self, trial: "Trial", status: str, reason: str) -> None:
        """Records that a trial failed, diverged, stopped, or was interrupted before it was done."""
        status = TrialStatus(status)
        self._add(TrialEnded(trial=trial.name, status=status, reason=redact_text(reason)))

    def status(self, trial: "Trial") -> TrialStatus:
        """The trial's status now."""
        return self._state(trial).status

    def write_tables(self) -> None:
        """`trials.parquet`, and `failures.parquet` where an attempt was lost."""
        self.log.write_reports()
        rows = self.state.rows()
        columns = dict.fromkeys(name for row in rows for name in row)
        plain = ("cell", "seed", "status", "stop_reason", "attempts", *COSTS)
        self._write(TRIALS, rows, list(columns or plain))
        if self.state.lost:
            failures = self.state.failures()
            self._write(FAILURES, failures, list(failures[0]))

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Write the tables also after an error or an interrupt."""
        try:
            yield
        except BaseException:
            with suppress(Exception):  # the first error is more important, and the log is complete
                self.write_tables()
            raise

    def _write(self, name: str, rows: list[dict[str, Any]], columns: list[str]) -> None:
        import pandas as pd

        table = pd.DataFrame(rows, columns=columns)

        def write() -> None:
            with atomic_write(self.store.folder / name) as unfinished:
                table.to_parquet(unfinished, index=False, write_page_checksum=True)
            self.store.push(name)

        patiently(write, f"{self.store.storage} rejected {name}")

    def _add(self, *events: AnyEvent) -> None:
        """Append to the log, then apply: an interrupted event has not happened."""
        ends = any(isinstance(event, TrialEnded) for event in events)
        for event in self.log.append(*events, durable=ends):
            self.state.apply(event)
        if events:
            self.log.push()

    def _state(self, trial: "Trial") -> TrialState:
        return self.state.trial(trial.name)

    def _start_of(self, trial: "Trial") -> AttemptStarted:
        ignored = ignored_settings(trial.config)
        return AttemptStarted(
            trial=trial.name,
            attempt=self._state(trial).next_attempt,
            label=trial.cell.label,
            settings=redact(trial.config.settings()),
            swept=trial.swept,
            ignored=ignored,
            data=redact(_data_of(trial, ignored)),
        )

    def _end_of(self, trial: "Trial") -> list[TrialEvent]:
        """The events that the log lacks of a trial in the store; none if the log has its end."""
        state = self._state(trial)
        if state.status.used:
            return []
        folder = self.store.folder / "runs" / trial.name
        result = read_whole_result(folder).facts
        events: list[TrialEvent] = [] if state.begun else [self._start_of(trial)]
        return [
            *events,
            TrialEnded(
                trial=trial.name,
                status=TrialStatus(result["status"]),
                reason="completed",
                result=redact(result),
                files=tuple(sorted(path.name for path in folder.iterdir())),
            ),
        ]


def _iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")


def _data_of(trial: "Trial", ignored: Sequence[str]) -> dict[str, Any]:
    """The collection of a trial, with the numbers of its queries by split."""
    collection, trained = trial.cell.inputs.collection, "training.batch_size" not in ignored
    return {
        "name": collection.name,
        "hash": collection.content_hash,
        "documents": len(collection.documents),
        "queries": {
            name: len(split.queries)
            for name, split in collection.splits.items()
            if trained or name != "train"
        },
    }


def code_tags() -> dict[str, str]:
    """Commit and cleanliness of this package, where it runs from a checkout."""
    state = git_state(__file__)
    return {"git.sha": state[0], "git.dirty": state[1]} if state else {}


def source_tags(file: str) -> dict[str, str]:
    """A sweep's file under MLflow's own names, with the commit of its checkout; nothing for ""."""
    if not file:
        return {}
    tags = {"mlflow.source.name": file, "mlflow.source.type": "LOCAL"}
    if state := git_state(file):
        tags |= {"mlflow.source.git.commit": state[0], "source.git.dirty": state[1]}
    return tags


@cache
def git_state(file: str) -> tuple[str, str] | None:
    """Commit of the checkout that a file belongs to, and "True" where that has changes; None
    outside of one, as in an environment that the checkout ignores."""
    folder, name = os.path.split(os.path.abspath(file))
    with suppress(OSError, subprocess.SubprocessError):
        if _git(folder, "check-ignore", name):
            return None
    try:
        sha = _git(folder, "rev-parse", "HEAD")
        return sha, str(bool(_git(folder, "status", "--porcelain")))
    except (OSError, subprocess.SubprocessError):
        return None


def _git(here: str, *words: str) -> str:
    command = ["git", "-C", here, *words]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    return result.stdout.strip()
