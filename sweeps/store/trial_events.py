"""`events.jsonl`: the append-only log of a sweep's trials. A line is an event and never changes.
Status, tables and MLflow's runs are derived from it (`trial_table`, `sweeps.tracking`). The driver
alone writes it; others may read it at any time, since only whole lines count.

Reports of running trials are in `progress.jsonl`: the log has a few lines per trial, so that a
command starts in O(trials). No later command reads these reports: a finished trial has its own in
its folder.
"""

import io
import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from rank_core.files import atomic_write
from sweeps.store.storage_retry import patient_read, patiently
from sweeps.store.trial_status import TrialStatus
from sweeps.store.trial_store import HISTORY, Store

EVENTS = "events.jsonl"
PROGRESS = "progress.jsonl"
NEWS = ("step", "num_steps", "curve", "dev")
PIECES = "events"
"""Folder of a remote storage with the log in pieces, since an object store cannot append."""
PIECE_BYTES = 2**18
TAIL_BYTES = 2**22
"""Bytes at the end of `progress.jsonl` that hold the progress of the running trials."""
REPORTS_SECONDS = 1.0  # between writes of reports, for any number of trials


def now() -> int:
    """Milliseconds since the epoch, as MLflow counts."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, kw_only=True)
class Event:
    """An event, with its time in milliseconds since the epoch. MLflow keys a point by its time,
    too: sending an event again adds nothing there."""

    time: int = field(default_factory=now)


@dataclass(frozen=True, kw_only=True)
class CommandBegan(Event):
    """A command took up the sweep, with the facts that its trials share."""

    writer: Mapping[str, Any]  # its process
    model: str  # of the sweep's base configuration
    model_label: str
    tags: Mapping[str, str]  # collection, backbone, the sweep's file, commits


@dataclass(frozen=True, kw_only=True)
class TrialEvent(Event):
    """An event of a trial, which is named `<cell>-seed<seed>`."""

    trial: str

    @property
    def cell(self) -> str:
        """The configuration's name."""
        return self.trial.rpartition("-seed")[0]

    @property
    def seed(self) -> int:
        """The trial's seed."""
        return int(self.trial.rpartition("-seed")[2])


@dataclass(frozen=True, kw_only=True)
class AttemptStarted(TrialEvent):
    """A trial began, began again, or resumed from a rung."""

    attempt: int
    label: str  # of its cell
    settings: Mapping[str, Any]
    swept: Sequence[str]
    ignored: Sequence[str] = ()  # settings without effect on the trial
    data: Mapping[str, Any] = field(default_factory=dict)  # its part of the collection


@dataclass(frozen=True, kw_only=True)
class Reported(TrialEvent):
    """A report of a running trial: `curve` has the points since the last report, `dev` the means of
    the measures after a validation. Infinities and NaN are texts."""

    step: int
    num_steps: int
    curve: Sequence[Mapping[str, Any]]
    dev: Mapping[str, Any] | None

    @classmethod
    def of(cls, trial: str, news: Mapping[str, Any]) -> "Reported":
        """The event of a trial's progress report."""
        return cls(trial=trial, **{name: news[name] for name in NEWS})


@dataclass(frozen=True, kw_only=True)
class AttemptLost(TrialEvent):
    """The end of an attempt without a result, and whether another follows."""

    attempt: int
    kind: str
    reason: str
    node: str
    again: bool


@dataclass(frozen=True, kw_only=True)
class TrialPlanned(TrialEvent):
    """A trial of earlier commands that waits or is paused at a rung."""

    status: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class TrialEnded(TrialEvent):
    """A trial ended, paused, or was interrupted (status planned)."""

    status: str
    reason: str
    result: Mapping[str, Any] = field(default_factory=dict)  # `result.json`, if it exists
    files: Sequence[str] = ()  # of the trial's folder, if it exists


KINDS: dict[str, type[CommandBegan | TrialEvent]] = {
    "command began": CommandBegan,
    "attempt started": AttemptStarted,
    "reported": Reported,
    "attempt lost": AttemptLost,
    "trial planned": TrialPlanned,
    "trial ended": TrialEnded,
}
_KIND_OF = {cls: kind for kind, cls in KINDS.items()}
AnyEvent = CommandBegan | TrialEvent


@dataclass(frozen=True)
class Line:
    """A complete line of the log; `event` is None for an invalid line."""

    raw: bytes
    event: AnyEvent | None
    end: int  # byte offset behind the line


def line_of(event: AnyEvent) -> bytes:
    """An event as a line."""
    record = {"event": _KIND_OF[type(event)], **asdict(event)}
    try:
        text = json.dumps(record, allow_nan=False, ensure_ascii=False)
    except ValueError:
        text = json.dumps(_finite(record), allow_nan=False, ensure_ascii=False)
    return text.encode() + b"\n"


def parse_line(raw: bytes) -> AnyEvent | None:
    """The event of a line; None if this version does not know it."""
    try:
        record = json.loads(raw)
        event = KINDS[record.pop("event")](**record)
        if isinstance(event, TrialEvent):
            _ = event.seed  # every trial's name has one
        if isinstance(event, TrialPlanned | TrialEnded):
            TrialStatus(event.status)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return event


def read_lines(path: Path, offset: int = 0, end: int | None = None) -> Iterator[Line]:
    """The complete lines of a log from byte `offset` on, to byte `end`; none without a log. A torn
    last line is skipped."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        file.seek(offset)
        yield from _lines(file, offset, end)


def _lines(file: IO[bytes], offset: int, end: int | None = None) -> Iterator[Line]:
    for raw in file:
        offset += len(raw)
        if not raw.endswith(b"\n") or (end is not None and offset > end):
            return
        yield Line(raw, parse_line(raw), offset)


def read_log(store: Store, *, live: bool = False) -> list[Line]:
    """The log of a sweep that another process may drive, read only. The disk of a `live` driver is
    ahead of a remote storage."""
    path = store.folder / EVENTS
    if store.is_local or (live and path.exists()):
        return list(read_lines(path))
    content = b"".join(remote_pieces(store).values())
    return list(_lines(io.BytesIO(content), 0)) if content else list(read_lines(path))


def read_history(folder: Path) -> Iterator[Reported]:
    """The reports of a finished trial, from its folder; none if they are lost or damaged."""
    with suppress(OSError, ValueError, KeyError, TypeError), (folder / HISTORY).open() as file:
        for line in file:
            yield Reported.of(folder.name, json.loads(line))


def read_progress(store: Store, *, live: bool = False) -> list[Reported]:
    """The last reports of running trials, changing nothing."""
    if store.is_local:
        content = _tail(store.folder / PROGRESS, TAIL_BYTES)
    else:
        content = store.read_file(PROGRESS, live=live) or b""
    events = (line.event for line in _lines(io.BytesIO(content), 0))
    return [event for event in events if isinstance(event, Reported)]


def _tail(path: Path, size: int) -> bytes:
    """The whole lines within the last bytes of a file; empty without the file."""
    try:
        with path.open("rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - size)
            file.seek(start)
            content = file.read(size)
    except FileNotFoundError:
        return b""
    return content if not start else content.partition(b"\n")[2]


class EventLog:
    """The log of a sweep for its driver, in `folder`; a remote storage gets it in pieces."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.path = store.folder / EVENTS
        self._piece = 0  # first byte of the piece that still grows
        self._reports: list[bytes] = []  # lines for the next write
        self._reports_due = 0.0
        if not store.is_local:
            patiently(self._pull, f"{store.storage} cannot be read")

    def read(self) -> list[Line]:
        """Every line of the log; retried while the storage is unavailable."""
        return patient_read(self.store, lambda: list(read_lines(self.path)))

    def append(self, *events: AnyEvent, durable: bool = False) -> list[AnyEvent]:
        """Add events in one write, after pending reports, and return them as they will be read;
        `durable` also waits for the disk."""
        lines = [line_of(event) for event in events]
        if lines:
            self.write_reports()
            what = f"{self.path.parent} rejected a record"
            patiently(lambda: append_lines(self.path, b"".join(lines), durable=durable), what)
        return [event for line in lines if (event := parse_line(line)) is not None]

    def report(self, event: Reported) -> None:
        """Add a report, written together with the others since the last write."""
        self._reports.append(line_of(event))
        self.write_due_reports()

    def write_due_reports(self) -> None:
        """Writes the pending reports if the last write was long enough ago."""
        if time.monotonic() >= self._reports_due:
            self.write_reports()

    def write_reports(self) -> None:
        """Writes the pending reports."""
        if not self._reports:
            return
        path, data = self.path.with_name(PROGRESS), b"".join(self._reports)
        patiently(lambda: append_lines(path, data), f"{path.parent} rejected a record")
        self._reports.clear()
        self._reports_due = time.monotonic() + REPORTS_SECONDS

    def push(self) -> None:
        """Send the growing piece and later ones to the storage, and the last reports for `status`
        on other machines."""
        if self.store.is_local:
            return

        def send() -> None:
            size = self.path.stat().st_size if self.path.exists() else 0
            with self.path.open("rb") as file:
                while self._piece < size:
                    file.seek(self._piece)
                    data = file.read(PIECE_BYTES)
                    if len(data) == PIECE_BYTES:  # ends with a line
                        data += file.readline()
                    self.store.fs.pipe_file(f"{self._pieces}/{self._piece:012}.jsonl", data)
                    if len(data) < PIECE_BYTES:
                        return
                    self._piece += len(data)

        if tail := _tail(self.path.with_name(PROGRESS), PIECE_BYTES):
            self.store.fs.pipe_file(f"{self.store.root}/{PROGRESS}", tail)
        if self.path.exists():
            patiently(send, f"{self.store.storage} rejected {EVENTS}")

    @property
    def _pieces(self) -> str:
        return f"{self.store.root}/{PIECES}"

    def _pull(self) -> None:
        """Fetch the storage's log, unless the local one continues it. An emptied storage has no
        log: its first piece is written before a trial begins."""
        pieces = remote_pieces(self.store)
        content = b"".join(pieces.values())
        here = self.path.read_bytes() if self.path.exists() else b""
        if not content:
            self.path.unlink(missing_ok=True)
            self.path.with_name(PROGRESS).unlink(missing_ok=True)
        elif not here.startswith(content):
            with atomic_write(self.path) as unfinished:
                unfinished.write_bytes(content)
        self._piece = max(pieces, default=0)


def remote_pieces(store: Store) -> dict[int, bytes]:
    """{first byte: piece} of a log in a remote storage, without a gap."""
    store.fs.invalidate_cache()
    folder = f"{store.root}/{PIECES}"
    paths = sorted(str(path) for path in store.fs.glob(f"{folder}/*.jsonl"))
    pieces: dict[int, bytes] = {}
    end = 0
    for path in paths:
        start = int(path.rpartition("/")[2].removesuffix(".jsonl"))
        if start != end:
            break
        pieces[start] = bytes(store.fs.cat_file(path))
        end = start + len(pieces[start])
    return pieces


def append_lines(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Adds whole lines in one write. A torn last line of a killed writer is cut off first. May be
    repeated after an error: data at the end of the file is not added again (no two events are
    equal, since they have their time in milliseconds)."""
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        _cut_torn_line(handle)
        start = os.lseek(handle, 0, os.SEEK_END) - len(data)
        if start < 0 or os.pread(handle, len(data), start) != data:
            written = os.write(handle, data)
            if written != len(data):
                # Otherwise the written part would be read as events, and written again.
                os.ftruncate(handle, start + len(data))
                raise OSError(f"{written} of {len(data)} bytes were written: the disk may be full")
        if durable:
            os.fsync(handle)
    finally:
        os.close(handle)


def _cut_torn_line(handle: int) -> None:
    end = os.lseek(handle, 0, os.SEEK_END)
    if end == 0 or os.pread(handle, 1, end - 1) == b"\n":
        return
    keep = end
    while keep > 0:
        start = max(0, keep - 65536)
        newline = os.pread(handle, keep - start, start).rfind(b"\n")
        if newline >= 0:
            keep = start + newline + 1
            break
        keep = start
    os.ftruncate(handle, keep)


def _finite(value: Any) -> Any:
    """A value with texts for infinities and NaN, which JSON lacks; `float` reads them back."""
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
