"""The looks at a sweep's test values, as they are recorded."""

import hashlib
import json
from contextlib import suppress
from datetime import UTC, datetime

from rank_core.secrets import redact_text
from sweeps.systems.access_log import ACCESS_FILE, Access, read_accesses, write_accesses
from sweeps.systems.load import Sweep


def record_access(sweep: Sweep, command: str) -> list[Access]:
    """All accesses to this sweep's test values, the present one included; a set of trials that was
    reported before adds no line, and values on dev need no log."""
    path = sweep.folder / ACCESS_FILE
    accesses = read_accesses(path)
    digest, trials = access_hash(sweep), _trials(sweep)
    if not digest or digest in {access.hash for access in accesses}:
        return accesses
    access = Access(
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        command=redact_text(command),
        split=sweep.split,
        num_cells=len({cell for cell, _ in trials}),
        num_trials=len(trials),
        seeds=sorted({seed for _, seed in trials}),
        hash=digest,
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
