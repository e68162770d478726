"""Passes over a sweep's event log and its reports: new records are sent to MLflow, in order within
each trial. Records that MLflow rejects for good are set aside with the reason. Uploaded reports are
not read again."""

import heapq
import json
import logging
import re
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.plan.secrets import redact_text
from sweeps.store.driver_lock import is_alive
from sweeps.store.outage import Outage
from sweeps.store.trial_events import (
    EVENTS,
    PROGRESS,
    CommandBegan,
    Line,
    Reported,
    TrialEnded,
    TrialEvent,
    append_lines,
    now,
    read_history,
    read_lines,
)
from sweeps.store.trial_status import TrialStatus
from sweeps.tracking.cursor import FOLDER, Cursor
from sweeps.tracking.mlflow_writer import MAX_METRICS, RunWriter, age
from sweeps.tracking.records import Record, RunRecords
from sweeps.tracking.views import Columns

if TYPE_CHECKING:
    from mlflow.entities import Run

REFUSED = "refused.jsonl"
_log = logging.getLogger("sweeps.tracking")
_SAVE_EVERY_S = 2.0  # within a long pass
_TRIES = 5  # rejections before a record is set aside
_NO_COMMAND = CommandBegan(time=0, writer={}, model="", model_label="", tags={})


class _Postponed(Exception):
    """This trial waits for the next pass; the other trials do not."""


@dataclass(frozen=True)
class _Pending:
    """A record to send, and its line in a log; numbered as they are read."""

    number: int
    log: str
    line: Line
    record: Record

    @property
    def start(self) -> int:
        return self.line.end - len(self.line.raw)


class Upload:
    """The upload of a sweep to an experiment, for a single thread."""

    def __init__(self, folder: Path, writer: RunWriter, cursor: Cursor, sweep_id: str) -> None:
        self.folder = folder
        self.writer = writer
        self.cursor = cursor
        self.columns = Columns(cursor.curves)
        self._sweep_id = sweep_id
        self._read_to = {EVENTS: 0, PROGRESS: cursor.progress_offset}
        self._number = 0
        self._command = _NO_COMMAND
        self._runs: dict[str, RunRecords] = {}
        self._pending: dict[str, deque[_Pending]] = defaultdict(deque)
        self._sent: dict[str, int] = {}  # trial: byte up to which its events are sent
        self._refusals: dict[tuple[int, str], int] = {}  # (number, part): how often
        self._refused = 0  # lines of the log that were set aside
        self._refusal_lines = Outage()
        self._one_by_one: dict[str, int] = {}  # trial: number up to which batches are split
        self.first = 0  # the trial that the next pass begins with
        self._unsaved = False
        self._saved_at = time.monotonic()

    def one_pass(self, keep_going: Callable[[], bool]) -> bool:
        """Send new records; True if all arrived. Raises if the store is unavailable."""
        self._read_on()
        trials = [trial for trial, records in self._pending.items() if records]
        complete = True
        # A record that the server cannot process must not block the other trials.
        self.first %= max(1, len(trials))
        try:
            for trial in trials[self.first :] + trials[: self.first]:
                self.first += 1
                try:
                    complete &= self._send_trial(trial, keep_going)
                except _Postponed:
                    complete = False
                if time.monotonic() - self._saved_at > _SAVE_EVERY_S:
                    self._save()
                if not keep_going():
                    return False
            self.first = 0  # the trial that the next pass begins with
        finally:
            self._save()
        return complete

    def reconcile(self) -> None:
        """Repairs after a crash, once the log is uploaded: duplicates are tagged, and runs whose
        driver has died are ended."""
        runs_of_key: dict[str, list[Run]] = defaultdict(list)
        for run in self.writer.all_runs():
            if key := run.data.tags.get("rank.trial_key"):
                runs_of_key[key].append(run)
        for key, runs in runs_of_key.items():
            first, *duplicates = sorted(runs, key=age)
            for run in duplicates:
                if run.data.tags.get("rank.duplicate_of") != first.info.run_id:
                    self.writer.client.set_tag(
                        run.info.run_id, "rank.duplicate_of", first.info.run_id
                    )
                if run.info.status == "RUNNING":
                    self.writer.end(run.info.run_id, "KILLED", now())
            if first.info.status == "RUNNING":
                status = self.status_of(key.removeprefix(f"{self._sweep_id}/"))
                if status != "RUNNING":
                    self.writer.end(first.info.run_id, status, now())

    def status_of(self, trial: str) -> str:
        """The status of a trial's run by the log: RUNNING only while its driver lives."""
        if trial not in self._runs:
            return "KILLED"
        run = self._runs[trial]
        return "KILLED" if run.status == "RUNNING" and not is_alive(run.writer) else run.status

    def _read_on(self) -> None:
        for log, line in _merged(self.folder, self._read_to):
            self._read_to[log] = line.end
            if isinstance(line.event, CommandBegan):
                self._command = line.event
            elif isinstance(line.event, TrialEvent):
                self._take(log, line, line.event)
            elif line.end > (self.cursor.offset if log == EVENTS else self.cursor.progress_offset):
                self._set_aside([line], part="event", reason="no event that this version knows")
            self._unsaved = True

    def _take(self, log: str, line: Line, event: TrialEvent) -> None:
        step = self.cursor.steps.get(event.trial, 0)
        run = self._runs.setdefault(event.trial, RunRecords(self._sweep_id, step))
        sent = log == EVENTS and self.cursor.has_sent(event.trial, line.end)
        if sent:
            self._sent[event.trial] = line.end
            if record := run.add(event, self._command):
                self.columns.add(record)
        elif run.created is None and isinstance(event, Reported | TrialEnded):
            self._set_aside([line], part="event", reason="the log lacks the trial's start")
        else:
            self._queue(run, self._command, log, line, event)

    def _queue(
        self, run: RunRecords, command: CommandBegan, log: str, line: Line, event: TrialEvent
    ) -> None:
        """Queues the records of an unsent event; a result adds reports that never arrived."""
        record = run.add(event, command)
        if isinstance(event, TrialEnded) and TrialStatus(event.status).used:
            for rest in run.rest(read_history(self.folder / "runs" / event.trial)):
                self._pending[event.trial].append(_Pending(self._next(), log, line, rest))
        if record is not None:
            self._pending[event.trial].append(_Pending(self._next(), log, line, record))

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _save(self) -> None:
        """Saves the cursor before the first unsent record."""
        if not self._unsaved:
            return
        first = dict(self._read_to)
        for item in (item for records in self._pending.values() for item in records):
            first[item.log] = min(first[item.log], item.start)
        self.cursor.offset, self.cursor.progress_offset = first[EVENTS], first[PROGRESS]
        ahead = {trial: end for trial, end in self._sent.items() if end > self.cursor.offset}
        self.cursor.ahead, self.cursor.curves = ahead, sorted(self.columns.curves)
        self.cursor.save()
        self._unsaved = False
        self._saved_at = time.monotonic()

    def _send_trial(self, trial: str, keep_going: Callable[[], bool]) -> bool:
        records = self._pending[trial]
        while records:
            if not keep_going():
                return False
            split = records[0].number <= self._one_by_one.get(trial, 0)
            group = _next_group(records, 1 if split else MAX_METRICS)
            self._send_group(trial, group, split=split)
            for item in group:
                records.popleft()
                self.columns.add(item.record)
                if item.log == EVENTS and item.record.kind != "points":
                    self._sent[trial] = item.line.end
                step = max(self.cursor.steps.get(trial, 0), item.record.step)
                self.cursor.steps[trial] = step
            self._unsaved = True
            if group[-1].record.status == "FINISHED":
                self.cursor.run_ids.pop(trial, None)
        return True

    def _send_group(self, trial: str, group: list[_Pending], *, split: bool) -> None:
        created = self._runs[trial].created
        if created is None:
            raise AssertionError(f"{trial} has records before its first one")

        def send() -> None:
            if trial not in self.cursor.run_ids:
                self.cursor.run_ids[trial] = self.writer.find_or_create(created)

        if not self._deliver(trial, group, "run", send):
            return
        tried = self._refusals.get((group[0].number, "whole"), 0) > 0
        calls = self.writer.calls(
            self.cursor.run_ids[trial], [item.record for item in group], one_by_one=split or tried
        )
        for part, call in calls:
            self._deliver(trial, group, part, call)

    def _deliver(
        self, trial: str, group: list[_Pending], part: str, call: Callable[[], object]
    ) -> bool:
        """Makes one call; False if it was given up. Raises `_Postponed` to try again later."""
        key, whole = (group[0].number, part), (group[0].number, "whole")
        if self._refusals.get(key, 0) >= _TRIES:
            return False  # given up in an earlier pass over this group
        try:
            call()
            return True
        except Exception as error:
            answer = meaning(error)
            if answer is Answer.LATER or (answer is Answer.GONE and part == "run"):
                raise  # the second: the whole experiment is gone
            if answer is Answer.GONE:
                self._start_over(trial)
            elif len(group) > 1:
                self._one_by_one[trial] = group[-1].number
                raise _Postponed from error
            self._refusals[key] = self._refusals.get(key, 0) + 1
            self._refusals[whole] = 1
            if self._refusals[key] >= _TRIES:
                self._set_aside([item.line for item in group], part=part, reason=str(error))
            raise _Postponed from error

    def _start_over(self, trial: str) -> None:
        """The run was removed from MLflow: the trial is sent from its beginning."""
        self.cursor.run_ids.pop(trial, None)
        self._runs[trial] = run = RunRecords(self._sweep_id)
        self._pending[trial] = deque()
        self._sent.pop(trial, None)
        self.cursor.steps.pop(trial, None)
        command = _NO_COMMAND
        for log, line in _merged(self.folder, {}, self._read_to):
            if isinstance(line.event, CommandBegan):
                command = line.event
            elif isinstance(line.event, TrialEvent) and line.event.trial == trial:
                self._queue(run, command, log, line, line.event)
        self._unsaved = True

    def _set_aside(self, lines: Sequence[Line], *, part: str, reason: str) -> None:
        """Store rejected lines with the reason; the log has them as well."""
        path = self.folder / FOLDER / REFUSED
        path.parent.mkdir(exist_ok=True)
        record = {
            "time": now(),
            "refused": part,
            "reason": redact_text(reason)[:2000],
            "events": [line.raw.decode(errors="replace").rstrip("\n") for line in lines],
        }
        append_lines(path, json.dumps(record, ensure_ascii=False).encode() + b"\n")
        self._refused += len(lines)
        if self._refusal_lines.line_due(reason):
            names = {line.event.trial for line in lines if isinstance(line.event, TrialEvent)}
            _log.warning(
                "MLflow rejects %s of %s: %s; kept in %s (%d so far)",
                part,
                ", ".join(sorted(names)) or EVENTS,
                redact_text(reason.partition("\n")[0])[:300],
                path,
                self._refused,
            )


def _merged(
    folder: Path, start: Mapping[str, int], end: Mapping[str, int] | None = None
) -> Iterator[tuple[str, Line]]:
    """The lines of both logs by their time. The size of the reports is read first, so that the
    log has the start of every trial that reports."""
    end = end or {log: _size(folder / log) for log in (PROGRESS, EVENTS)}

    def of(log: str) -> Iterator[tuple[str, Line]]:
        return ((log, line) for line in read_lines(folder / log, start.get(log, 0), end[log]))

    lines = of(EVENTS), of(PROGRESS)
    return heapq.merge(*lines, key=lambda item: item[1].event.time if item[1].event else 0)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _next_group(records: Sequence[_Pending], max_points: int) -> list[_Pending]:
    """The next records that one batch can hold: points together, anything else alone."""
    group: list[_Pending] = []
    points = 0
    for item in records:
        points += len(item.record.points)
        if item.record.kind != "points":
            return group or [item]
        if group and (points > max_points or len(group) >= max_points):
            break
        group.append(item)
    return group


class Answer(Enum):
    """The consequence of an MLflow error for the record that was being sent."""

    LATER = "the store is unavailable or busy: the same record again, after a pause"
    REFUSED = "this record is rejected: a few tries, then it is set aside"
    GONE = "the run or experiment no longer exists there: start over with this trial"


_BUSY = ("QueuePool limit", "database is locked", "Too many connections", "too many clients")
_REFUSALS = {
    "INVALID_PARAMETER_VALUE",
    "BAD_REQUEST",
    "RESOURCE_ALREADY_EXISTS",
    "ALREADY_EXISTS",
    "RESOURCE_CONFLICT",
    "NOT_IMPLEMENTED",
}
# Not about the record: authentication, overload, or a proxy's page.
_ABOUT_THE_SERVER = {401, 403, 404, 407, 408, 425, 429, 499}
# A user deleted the experiment and may restore it; the record is valid.
_DELETED_EXPERIMENT = re.compile(r"experiment \S+ must be in the 'active' state")
_STATUS = re.compile(r"failed with error code (\d{3})")


def meaning(error: Exception) -> Answer:
    """The consequence of an error while sending a record."""
    import requests
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    text = str(error)
    # A server whose pool is exhausted answers 400, which says nothing about the record.
    if any(sign in text for sign in _BUSY) or _DELETED_EXPERIMENT.search(text):
        return Answer.LATER
    if isinstance(error, MlflowException):
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return Answer.GONE
        status = _STATUS.search(text)
        if status:
            return _by_status(int(status[1]))
        return Answer.REFUSED if error.error_code in _REFUSALS else Answer.LATER
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return _by_status(error.response.status_code)
    if isinstance(error, (FileNotFoundError, IsADirectoryError, PermissionError)):
        return Answer.REFUSED  # an artifact that cannot be read
    if isinstance(error, (requests.RequestException, SQLAlchemyError, OSError)):
        return Answer.LATER
    return Answer.REFUSED  # the record itself is malformed


def _by_status(status: int) -> Answer:
    definite = 400 <= status < 500 and status not in _ABOUT_THE_SERVER
    return Answer.REFUSED if definite else Answer.LATER
