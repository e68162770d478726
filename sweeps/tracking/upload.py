"""Passes over the outbox: everything that is new goes to MLflow, in order within each trial."""

import logging
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from sweeps.plan.secrets import redact_text
from sweeps.tracking.answers import Answer, meaning
from sweeps.tracking.columns import Columns
from sweeps.tracking.dead_letters import bury
from sweeps.tracking.projection import MAX_METRICS, Projection
from sweeps.tracking.state import UploadState
from sweeps.tracking.trial_file import Line, read_header, read_lines, trial_files

_log = logging.getLogger("sweeps.tracking")
_SAVE_EVERY_S = 2.0  # within a long pass
_TRIES = 5  # definite refusals before a record goes to the dead letters


class _Postponed(Exception):
    """This trial waits for the next pass; the other trials go on."""


class Upload:
    """One outbox on its way to one experiment. Not for use by two threads."""

    def __init__(self, folder: Path, projection: Projection, state: UploadState) -> None:
        self.folder = folder
        self.projection = projection
        self.state = state
        self.columns = Columns(state.final_metrics, state.curves)
        self._headers: dict[str, dict[str, Any]] = {}
        self._refusals: dict[tuple[str, int, str], int] = {}
        self._one_by_one: dict[str, int] = {}  # file: byte up to which batches are split
        self._first = 0
        self._unsaved = False
        self._saved_at = time.monotonic()

    def one_pass(self, keep_going: Callable[[], bool]) -> bool:
        """Send what is new; True if all of it arrived. Raises when the store is away."""
        files = trial_files(self.folder)
        complete = True
        # A record that the server chokes on must not keep the other trials waiting for ever.
        self._first %= max(1, len(files))
        try:
            for path in files[self._first :] + files[: self._first]:
                self._first += 1
                try:
                    complete &= self._send_file(path, keep_going)
                except _Postponed:
                    complete = False
                if time.monotonic() - self._saved_at > _SAVE_EVERY_S:
                    self._save()
                if not keep_going():
                    return False
            self._first = 0
        finally:
            self._save()
        return complete

    def _save(self) -> None:
        if self._unsaved:
            self.state.final_metrics = self.columns.final_metrics
            self.state.curves = sorted(self.columns.curves)
            self.state.save()
            self._unsaved = False
            self._saved_at = time.monotonic()

    def _send_file(self, path: Path, keep_going: Callable[[], bool]) -> bool:
        name = path.name
        offset = self.state.offsets.get(name, 0)
        size = path.stat().st_size
        if offset > size:  # not the file that it was
            offset = 0
        header = self._header(path)
        if offset == size:
            return True
        while keep_going():
            split = offset < self._one_by_one.get(name, 0)
            group = _next_group(read_lines(path, offset), 1 if split else MAX_METRICS)
            if not group:
                return True
            if header is None:
                self._bury(path, group, "record", "the file does not begin with its trial")
            else:
                self._send_group(path, header, offset, group)
            offset = self.state.offsets[name] = group[-1].end
            self._unsaved = True
        return False

    def _send_group(
        self, path: Path, header: dict[str, Any], offset: int, group: list[Line]
    ) -> None:
        records = [line.record for line in group if line.record is not None]
        if not records:
            self._bury(path, group, "record", "no JSON record")
            return

        def send() -> None:
            self._run_id(path, header)

        if not self._deliver(path, offset, group, "run", send):
            return
        run_id = self.state.run_ids[path.name]
        split = offset < self._one_by_one.get(path.name, 0)
        tried = self._refusals.get((path.name, offset, "whole"), 0) > 0
        try:
            calls = self.projection.calls(run_id, records, one_by_one=split or tried)
        except Exception as error:
            self._bury(path, group, "record", repr(error))
            return
        for part, call in calls:
            self._deliver(path, offset, group, part, call)
        for record in records:
            self.columns.add(record)

    def _deliver(
        self, path: Path, offset: int, group: list[Line], part: str, call: Callable[[], object]
    ) -> bool:
        """Make one call; False if it was given up. Raises `_Postponed` to try again later."""
        key = (path.name, offset, part)
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
                self._start_over(path)
            elif len(group) > 1:
                self._one_by_one[path.name] = group[-1].end
                raise _Postponed from error
            self._refusals[key] = self._refusals.get(key, 0) + 1
            self._refusals[(path.name, offset, "whole")] = 1
            if self._refusals[key] < _TRIES:
                raise _Postponed from error
            self._bury(path, group, part, str(error))
            return False

    def _start_over(self, path: Path) -> None:
        """The run was removed from MLflow: forget it and send the trial from its beginning."""
        self.state.run_ids.pop(path.name, None)
        self.state.offsets.pop(path.name, None)
        self._unsaved = True

    def _run_id(self, path: Path, header: dict[str, Any]) -> None:
        if path.name not in self.state.run_ids:
            self.state.run_ids[path.name] = self.projection.find_or_create(header)
            self._unsaved = True

    def _header(self, path: Path) -> dict[str, Any] | None:
        if path.name not in self._headers:
            header = read_header(path)
            if header is None:
                return None
            self._headers[path.name] = header
            self.columns.add(header)
        return self._headers[path.name]

    def _bury(self, path: Path, group: list[Line], part: str, reason: str) -> None:
        bury(self.folder, path.name, group, part=part, reason=reason)
        _log.warning(
            "MLflow refuses %s of %s: %s; kept in %s",
            part,
            path.name,
            redact_text(reason)[:300],
            self.folder / "dead",
        )


def _next_group(lines: Iterator[Line], max_points: int) -> list[Line]:
    """The next lines that one batch can hold: points and tags together, anything else alone."""
    group: list[Line] = []
    points = 0
    for line in islice(lines, max_points):
        kind = None if line.record is None else line.record["kind"]
        if kind not in ("metrics", "tags"):
            return group or [line]
        points += len(line.record.get("values", ())) if line.record else 0
        if group and points > max_points:
            break
        group.append(line)
    return group
