"""Which process writes a trial, and whether it still lives."""

import os
import socket
from pathlib import Path
from typing import Any


def this_writer() -> dict[str, Any]:
    """The identity of this process as it is stored with an attempt."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "started": _started(os.getpid())}


def is_alive(writer: dict[str, Any]) -> bool:
    """Whether `writer` still runs. A process of another host cannot be asked and counts as gone."""
    if writer.get("host") != socket.gethostname():
        return False
    try:
        os.kill(int(writer["pid"]), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True  # somebody else's process: it exists
    return bool(_started(int(writer["pid"])) == writer.get("started"))


def _started(pid: int) -> str:
    """Start time of a process in clock ticks since boot, so that a reused pid is noticed."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""  # no /proc on this system: the pid alone has to do
    # The command may contain spaces and brackets; field 22 is counted behind its last bracket.
    return text.rpartition(")")[2].split()[19]
