"""The progress of a sweep's upload, kept next to its logs. Without it all events are sent again,
which changes nothing."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rank_core.files import write_json
from sweeps.store.trial_events import (
    EVENTS,
    PROGRESS,
    AttemptStarted,
    Reported,
    TrialEnded,
    TrialEvent,
    read_lines,
)

FOLDER = "mlflow"
"""Files in a sweep's folder: the cursor, the uploader's lock, and the records that MLflow
refused."""
SENT = (AttemptStarted, Reported, TrialEnded)
"""The events with a record in MLflow."""
_TAIL = 64  # bytes before the cursor that identify a log


@dataclass
class Cursor:
    """The position up to which logs are sent to a target: the events up to byte `offset`, for some
    trials more; `progress.jsonl` up to its own offset; the reports of each trial up to a step."""

    path: Path
    target: str = ""
    offset: int = 0
    tail: str = ""  # digest of the bytes before `offset`
    ahead: dict[str, int] = field(default_factory=dict)  # trial: its offset
    progress_offset: int = 0
    progress_tail: str = ""
    steps: dict[str, int] = field(default_factory=dict)  # trial: step of its last report sent
    curves: list[str] = field(default_factory=list)  # metrics sent by step
    run_ids: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path, target: str | None = None) -> "Cursor":
        """The stored cursor; one at the beginning if it is missing, damaged, of another `target` or
        of another log."""
        path = folder / FOLDER / "cursor.json"
        try:
            stored = json.loads(path.read_text())
            cursor = cls(
                path,
                str(stored["target"]),
                int(stored["offset"]),
                str(stored["tail"]),
                {str(trial): int(end) for trial, end in stored["ahead"].items()},
                int(stored["progress_offset"]),
                str(stored["progress_tail"]),
                {str(trial): int(step) for trial, step in stored["steps"].items()},
                [str(name) for name in stored["curves"]],
                {str(trial): str(run_id) for trial, run_id in stored["run_ids"].items()},
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return cls(path, target or "")
        if cursor.progress_tail != _digest(folder / PROGRESS, cursor.progress_offset):
            cursor.progress_offset = 0
        same = cursor.tail == _digest(folder / EVENTS, cursor.offset)
        return cursor if same and target in (None, cursor.target) else cls(path, target or "")

    def save(self) -> None:
        """Write it atomically."""
        folder = self.path.parents[1]
        self.tail = _digest(folder / EVENTS, self.offset)
        self.progress_tail = _digest(folder / PROGRESS, self.progress_offset)
        stored = asdict(self)
        del stored["path"]
        self.path.parent.mkdir(exist_ok=True)
        write_json(self.path, stored)

    def has_sent(self, trial: str, end: int) -> bool:
        """True if the trial's event that ends at this byte was sent."""
        return end <= max(self.offset, self.ahead.get(trial, 0))


def target_of(tracking_uri: str, experiment: str) -> str:
    """A digest of the target, since the URI may hold a password."""
    return hashlib.sha256(f"{tracking_uri}\n{experiment}".encode()).hexdigest()[:16]


def pending(folder: Path, target: str | None = None) -> int:
    """The number of events that are not uploaded yet (to `target`, or to the latest one)."""
    return sum(1 for _ in _pending(folder, Cursor.load(folder, target)))


def _pending(folder: Path, cursor: Cursor) -> Iterator[TrialEvent]:
    for line in read_lines(folder / EVENTS, cursor.offset):
        event = line.event
        if isinstance(event, SENT) and not cursor.has_sent(event.trial, line.end):
            yield event
    for line in read_lines(folder / PROGRESS, cursor.progress_offset):
        event = line.event
        if isinstance(event, Reported) and event.step > cursor.steps.get(event.trial, 0):
            yield event


def _digest(path: Path, offset: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, offset - _TAIL))
            tail = file.read(min(offset, _TAIL))
    except OSError:
        return ""
    return hashlib.sha256(tail).hexdigest()[:16]
