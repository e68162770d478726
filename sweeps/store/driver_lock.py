"""The lock of a sweep's folder: one command at a time drives it, and others can see whether."""

import fcntl
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from rank_core.errors import BadInput
from sweeps.store.trial_store import Store

LOCK = ".driver.lock"
Driver = Literal["alive", "gone", "elsewhere"]


@contextmanager
def only_driver(store: Store) -> Iterator[None]:
    """Two drivers on one store would run every trial twice and mix their events in one log."""
    lock = FileLock(store.folder / LOCK)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise BadInput(
            f"one command at a time may drive a sweep; another one is running on {store.folder}"
        ) from None
    try:
        yield
    finally:
        lock.release()


def lock_state(path: Path) -> Driver:
    """Whether some process holds the driver's lock. The probe shares the lock for microseconds and
    opens the file for reading alone, so that not even its time of change moves."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return "gone"
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "alive"
    finally:
        os.close(handle)  # which gives the lock back
    return "gone"


def this_process() -> dict[str, Any]:
    """The identity of this process as it is stored with what it writes."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "started": _started(os.getpid())}


def is_alive(process: Mapping[str, Any]) -> bool:
    """Whether a process still runs. One of another host cannot be asked and counts as gone."""
    if process.get("host") != socket.gethostname():
        return False
    try:
        os.kill(int(process["pid"]), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True  # somebody else's process: it exists
    return bool(_started(int(process["pid"])) == process.get("started"))


def _started(pid: int) -> str:
    """Start time of a process in clock ticks since boot, so that a reused pid is noticed."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""  # no /proc on this system: the pid alone has to do
    # The command may contain spaces and brackets; field 22 is counted behind its last bracket.
    return text.rpartition(")")[2].split()[19]
