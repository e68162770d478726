"""How far a sweep's event log has been uploaded, kept beside it. Losing it costs time, never data:
sending an event again changes nothing."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rank_core.files import write_json
from sweeps.store.trial_events import (
    EVENTS,
    AttemptStarted,
    Reported,
    TrialEnded,
    TrialEvent,
    read_lines,
)

FOLDER = "mlflow"
"""Of a sweep's folder: the cursor, the uploader's lock, and what MLflow refused."""
SENT = (AttemptStarted, Reported, TrialEnded)
"""The events that MLflow gets something of."""
_TAIL = 64  # bytes before the cursor, by which a log is known again


@dataclass
class Cursor:
    """The events up to byte `offset` are sent, and for some trials more; for one target."""

    path: Path
    target: str = ""
    offset: int = 0
    tail: str = ""  # digest of the bytes before `offset`
    ahead: dict[str, int] = field(default_factory=dict)  # trial: its offset
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
                {str(trial): str(run_id) for trial, run_id in stored["run_ids"].items()},
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return cls(path, target or "")
        same = target in (None, cursor.target) and cursor.tail == _digest(folder, cursor.offset)
        return cursor if same else cls(path, target or "")

    def save(self) -> None:
        """Writes it atomically."""
        self.tail = _digest(self.path.parents[1], self.offset)
        stored = asdict(self)
        del stored["path"]
        self.path.parent.mkdir(exist_ok=True)
        write_json(self.path, stored)

    def has_sent(self, trial: str, end: int) -> bool:
        """Whether the trial's event that ends at this byte was sent."""
        return end <= max(self.offset, self.ahead.get(trial, 0))


def target_of(tracking_uri: str, experiment: str) -> str:
    """A digest that names where the log goes; the URI itself may hold a password."""
    return hashlib.sha256(f"{tracking_uri}\n{experiment}".encode()).hexdigest()[:16]


def pending(folder: Path, target: str | None = None) -> int:
    """The number of events that are not uploaded yet (to `target`, or to the latest one)."""
    return sum(1 for _ in _pending(folder, Cursor.load(folder, target)))


def _pending(folder: Path, cursor: Cursor) -> Iterator[TrialEvent]:
    for line in read_lines(folder / EVENTS, cursor.offset):
        event = line.event
        if isinstance(event, SENT) and not cursor.has_sent(event.trial, line.end):
            yield event


def _digest(folder: Path, offset: int) -> str:
    try:
        with (folder / EVENTS).open("rb") as file:
            file.seek(max(0, offset - _TAIL))
            tail = file.read(min(offset, _TAIL))
    except OSError:
        return ""
    return hashlib.sha256(tail).hexdigest()[:16]
