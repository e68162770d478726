"""Records that MLflow refuses for good: set aside with the reason, so that the rest goes on."""

import time
from pathlib import Path
from typing import Any

from sweeps.plan.secrets import redact_text
from sweeps.tracking.trial_file import Line, append


def bury(folder: Path, trial_file: str, lines: list[Line], *, part: str, reason: str) -> None:
    """Append `lines` to `dead/<trial file>`; the outbox itself keeps them, too."""
    dead = folder / "dead"
    dead.mkdir(exist_ok=True)
    record: dict[str, Any] = {
        "kind": "dead",
        "time": time.time_ns() // 1_000_000,
        "refused": part,
        "reason": redact_text(reason)[:2000],
        "records": [
            line.raw.decode(errors="replace") if line.record is None else line.record
            for line in lines
        ],
    }
    append(dead / trial_file, record)
