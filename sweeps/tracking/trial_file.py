"""One trial's JSONL file: appended in single writes of whole lines, read by whole lines."""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Line:
    """A complete line of a trial file; `record` is None where the bytes are no JSON object."""

    raw: bytes
    record: dict[str, Any] | None
    end: int  # byte offset behind the line


def file_name(trial_key: str) -> str:
    """A readable file name for a trial key; the digest keeps different keys apart."""
    readable = re.sub(r"[^A-Za-z0-9.-]+", "_", trial_key).strip("._")[:80]
    digest = hashlib.sha256(trial_key.encode()).hexdigest()[:10]
    return f"{readable}-{digest}.jsonl"


def append(path: Path, record: dict[str, Any], *, durable: bool = False) -> None:
    """Add `record` as one line in one write; `durable` also waits for the disk.

    A torn last line of a killed writer is cut off first, so that it never joins with this one. May
    be repeated after an error: what is the last line already is not added again.
    """
    data = json.dumps(record, allow_nan=False, ensure_ascii=False).encode() + b"\n"
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        _cut_torn_line(handle)
        if not _ends_with(handle, data):
            written = os.write(handle, data)
            if written != len(data):
                raise OSError(f"{path}: {written} of {len(data)} bytes written; is the disk full?")
        if durable:
            os.fsync(handle)
    finally:
        os.close(handle)


def _ends_with(handle: int, data: bytes) -> bool:
    """Whether these bytes are the file's last ones. A record has its time, to the millisecond:
    there are no two alike."""
    start = os.lseek(handle, 0, os.SEEK_END) - len(data)
    return start >= 0 and os.pread(handle, len(data), start) == data


def _cut_torn_line(handle: int) -> None:
    end = os.lseek(handle, 0, os.SEEK_END)
    if end == 0 or os.pread(handle, 1, end - 1) == b"\n":
        return
    keep = end
    while keep > 0:
        start = max(0, keep - 65536)
        found = os.pread(handle, keep - start, start).rfind(b"\n")
        if found >= 0:
            keep = start + found + 1
            break
        keep = start
    os.ftruncate(handle, keep)


def read_lines(path: Path, offset: int = 0) -> Iterator[Line]:
    """The complete lines from byte `offset` on; a torn last line is left for later."""
    with path.open("rb") as file:
        file.seek(offset)
        for raw in file:
            if not raw.endswith(b"\n"):
                return
            offset += len(raw)
            yield Line(raw, _parse(raw), offset)


def read_header(path: Path) -> dict[str, Any] | None:
    """The record that opened the trial, None if it was never written completely."""
    for line in read_lines(path):
        if line.record is not None and line.record["kind"] == "trial":
            return line.record
        return None
    return None


def _parse(raw: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(raw)
    except ValueError:
        return None
    return record if isinstance(record, dict) and "kind" in record else None


def trial_files(folder: Path) -> list[Path]:
    """All trial files of an outbox, in a stable order."""
    return sorted(folder.glob("*.jsonl"))
