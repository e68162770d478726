"""The truth of a sweep's tracking: one JSONL file per trial, written by the driver alone.

Appending takes a fraction of a millisecond and waits for no server; a folder that is away for a
while is waited for. Every point gets its timestamp here, so that sending a file again adds nothing
(MLflow keys a point by timestamp, too).
"""

import math
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rank_core.errors import BadInput
from sweeps.plan.secrets import redact
from sweeps.store.storage_retry import patiently
from sweeps.tracking.state import UploadState
from sweeps.tracking.trial_file import append, file_name, read_lines, trial_files
from sweeps.tracking.writer import this_writer

Status = Literal["FINISHED", "FAILED", "KILLED"]


class _Recorded:
    """What a trial file already holds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.attempts = 0
        self.finished = False
        self.points: set[tuple[str, int]] = set()  # (metric, step)
        self.provisional: dict[str, float] = {}  # finals of attempts that did not finish
        self.nonfinite: set[str] = set()
        if path.exists():
            for line in read_lines(path):
                if line.record is not None:
                    self.add(line.record)

    def add(self, record: Mapping[str, Any]) -> None:
        """Take note of a record that is in the file."""
        kind = record["kind"]
        if kind in ("trial", "attempt"):
            self.attempts = int(record["attempt"])
        elif kind == "metrics":
            self.points.update((name, record["step"]) for name in record["values"])
        elif kind == "tags":
            prefix = "nonfinite."
            self.nonfinite.update(
                name.removeprefix(prefix) for name in record["tags"] if name.startswith(prefix)
            )
        elif kind == "finish":
            self.points.update((name, 0) for name in record["metrics"])
            self.finished = record["status"] == "FINISHED"
            if record["status"] == "FINISHED":
                self.provisional.clear()
            else:
                self.provisional.update(record["metrics"])


class Outbox:
    """Appends the trials of one sweep to `folder`; safe to call from several threads."""

    def __init__(self, folder: Path, sweep_id: str) -> None:
        self.folder = Path(folder)
        self.sweep_id = sweep_id
        self.folder.mkdir(parents=True, exist_ok=True)
        self._open: dict[str, _Recorded] = {}
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[type["Outbox"], tuple[Path, str]]:
        """Pickled as its place on disk: what it knows is read from there again."""
        return (Outbox, (self.folder, self.sweep_id))

    def open_trial(
        self, trial_key: str, *, name: str, params: Mapping[str, Any], tags: Mapping[str, str]
    ) -> None:
        """Begin an attempt. The first one writes the header, a later one only its tags."""
        if {"'", '"'} & set(trial_key):
            raise BadInput(f"a trial key must not contain quotes, got {trial_key}")
        with self._lock:
            self._open.pop(trial_key, None)
            recorded = self._recorded(trial_key)
            attempt = recorded.attempts + 1
            record: dict[str, Any] = {
                "kind": "trial" if attempt == 1 else "attempt",
                "time": _now(),
                "attempt": attempt,
                "writer": this_writer(),
                "tags": {"attempts": str(attempt)} | _texts(redact(tags)),
            }
            if attempt == 1:
                record |= {
                    "trial_key": self._full_key(trial_key),
                    "sweep_id": self.sweep_id,
                    "name": name,
                    "params": _texts(redact(params)),
                }
                record["tags"] |= {
                    "rank.trial_key": record["trial_key"],
                    "sweep.id": self.sweep_id,
                }
            self._append(recorded, record)

    def knows(self, trial_key: str) -> bool:
        """Whether the trial was ever opened, by this process or an earlier one."""
        with self._lock:
            return self._recorded(trial_key).attempts > 0

    def is_finished(self, trial_key: str) -> bool:
        """Whether the trial's last attempt ended FINISHED."""
        with self._lock:
            return self._recorded(trial_key).finished

    def metrics(self, trial_key: str, metrics: Mapping[str, float], step: int) -> None:
        """Record values at `step` (of the optimiser). A point that is already there stays."""
        with self._lock:
            recorded = self._known(trial_key)
            values, flags = _split_nonfinite(metrics, step)
            self._flag(recorded, flags)
            new = {
                name: value
                for name, value in values.items()
                if (name, int(step)) not in recorded.points
            }
            if new:
                self._append(
                    recorded,
                    {"kind": "metrics", "time": _now(), "step": int(step), "values": new},
                )

    def tags(self, trial_key: str, tags: Mapping[str, str]) -> None:
        """Set tags; the last value of a tag counts."""
        with self._lock:
            self._append(
                self._known(trial_key),
                {"kind": "tags", "time": _now(), "tags": _texts(redact(tags))},
            )

    def finish(
        self,
        trial_key: str,
        status: Status,
        metrics: Mapping[str, float] | None = None,
        tags: Mapping[str, str] | None = None,
        artifacts: Sequence[tuple[Path | str, str]] = (),
    ) -> None:
        """End an attempt in one record: status, final metrics (step 0), tags, artifacts.

        `artifacts` are (local file, artifact folder). Finals of a finished trial replace those of
        an attempt that failed; nothing else replaces a recorded final.
        """
        with self._lock:
            recorded = self._known(trial_key)
            values, flags = _split_nonfinite(metrics or {}, 0)
            self._flag(recorded, flags)
            stale = recorded.provisional if status == "FINISHED" else {}
            new = {
                name: value
                for name, value in values.items()
                if (name, 0) not in recorded.points or (name in stale and stale[name] != value)
            }
            record = {
                "kind": "finish",
                "time": _now(),
                "status": status,
                "metrics": new,
                "tags": _texts(redact(tags or {})),
                "artifacts": [[str(Path(file).absolute()), where] for file, where in artifacts],
            }
            self._append(recorded, record, durable=True)
            # Thousands of trials with hundreds of points each would stay in memory otherwise.
            self._open.pop(trial_key, None)

    def _full_key(self, trial_key: str) -> str:
        prefix = f"{self.sweep_id}/"
        return trial_key if trial_key.startswith(prefix) else prefix + trial_key

    def _recorded(self, trial_key: str) -> _Recorded:
        if trial_key not in self._open:
            path = self.folder / file_name(self._full_key(trial_key))
            what = f"{self.folder} cannot be read"
            self._open[trial_key] = patiently(lambda: self._read(path), what)
        return self._open[trial_key]

    def _read(self, path: Path) -> _Recorded:
        if not self.folder.is_dir():  # else a trial would seem to be a new one
            raise FileNotFoundError(f"no folder {self.folder}")
        return _Recorded(path)

    def _known(self, trial_key: str) -> _Recorded:
        recorded = self._recorded(trial_key)
        if recorded.attempts == 0:
            raise KeyError(f"trial {trial_key!r} was never opened in {self.folder}")
        return recorded

    def _flag(self, recorded: _Recorded, flags: Mapping[str, str]) -> None:
        new = {name: text for name, text in flags.items() if name not in recorded.nonfinite}
        if new:
            tags = {f"nonfinite.{name}": text for name, text in new.items()}
            record = {"kind": "tags", "time": _now(), "tags": tags | {"diverged": "true"}}
            self._append(recorded, record)

    def _append(
        self, recorded: _Recorded, record: dict[str, Any], *, durable: bool = False
    ) -> None:
        what = f"{self.folder} does not take a record"
        patiently(lambda: append(recorded.path, record, durable=durable), what)
        recorded.add(record)


def pending(folder: Path, target: str | None = None) -> int:
    """The number of records that are not uploaded yet (to `target`, or to the latest one)."""
    folder = Path(folder)
    offsets = UploadState.load(folder, target).offsets
    return sum(
        sum(1 for _ in read_lines(path, min(offsets.get(path.name, 0), path.stat().st_size)))
        for path in trial_files(folder)
    )


def _split_nonfinite(
    metrics: Mapping[str, float], step: int
) -> tuple[dict[str, float], dict[str, str]]:
    """(finite values, {metric: what it was instead}); MLflow stores infinity as 1.8e308."""
    values, flags = {}, {}
    for name, value in metrics.items():
        number = float(value)
        if math.isfinite(number):
            values[name] = number
        else:
            flags[name] = f"{number} at step {step}"
    return values, flags


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): _text(value) for name, value in values.items()}


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(_text(item) for item in value)
    return str(value)


def _now() -> int:
    """Milliseconds since the epoch, as MLflow counts."""
    return time.time_ns() // 1_000_000
