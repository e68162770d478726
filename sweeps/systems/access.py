"""The log of accesses to test values: a line whenever a report opens trials not yet opened."""

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from rank_core.errors import BadInput
from rank_core.files import atomic_write, read_file
from rank_core.parsing import parsed_json
from rank_core.secrets import redact_text
from sweeps.systems.load import Sweep
from sweeps.terminal.text import warn

ACCESS_FILE = "test_access.jsonl"


@dataclass(frozen=True)
class Access:
    """The first access to the test values of one set of trials."""

    time: str  # UTC, ISO 8601
    command: str
    split: str
    num_cells: int
    num_trials: int
    seeds: list[int]
    hash: str  # of split, measures and trials; a cell's name is the hash of its settings


def record_access(sweep: Sweep, command: str) -> list[Access]:
    """All accesses to this sweep's test values, the present one included; a set of trials that was
    reported before adds no line, and values on dev need no log."""
    path = sweep.folder / ACCESS_FILE
    accesses = read_accesses(path)
    own, trials = access_hash(sweep), _trials(sweep)
    if not own or own in {access.hash for access in accesses}:
        return accesses
    access = Access(
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        command=redact_text(command),
        split=sweep.split,
        num_cells=len({cell for cell, _ in trials}),
        num_trials=len(trials),
        seeds=sorted({seed for _, seed in trials}),
        hash=own,
    )
    accesses.append(access)
    # The report of a read-only sweep shows it all the same.
    with suppress(PermissionError):
        write_accesses(path, accesses)
    return accesses


def access_hash(sweep: Sweep) -> str:
    """What identifies a look at the sweep's test values; "" where it needs no record."""
    trials = _trials(sweep)
    if sweep.split == "dev" or not trials:
        return ""
    content = json.dumps([sweep.split, sorted(sweep.measures), trials])
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def _trials(sweep: Sweep) -> list[tuple[str, int]]:
    ran = zip(sweep.used["cell"], sweep.used["seed"], strict=True)
    return sorted((str(cell), int(seed)) for cell, seed in ran)


def write_accesses(path: Path, accesses: Sequence[Access]) -> None:
    """Write the record, a line an access."""
    with atomic_write(path) as unfinished:
        unfinished.write_text("".join(f"{json.dumps(asdict(one))}\n" for one in accesses))


def read_accesses(path: Path) -> list[Access]:
    """The recorded accesses, oldest first; none where the file is missing. A half-written last
    line counts as none."""
    content, _, torn = (read_file(path) if os.path.lexists(path) else b"").rpartition(b"\n")
    if torn:
        warn(f"{path}: its last line is cut and counts as none")
    try:
        return [Access(**parsed_json(line)) for line in content.splitlines()]
    except (ValueError, TypeError) as error:
        raise BadInput(f"{path}: must have an access a line as written; {error}") from None


def access_sentence(accesses: Sequence[Access]) -> str:
    """The number of sets of trials whose test values were read; "" for one or none."""
    if len(accesses) < 2:
        return ""
    first = accesses[0]
    when = datetime.fromisoformat(first.time).strftime("%Y-%m-%d %H:%M UTC")
    return (
        f"The {first.split} values of {len(accesses)} different sets of trials were read, first "
        f"on {when}: trials added later may have been chosen by these values ({ACCESS_FILE})."
    )
