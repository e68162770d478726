"""The lock of a sweep's folder: one command at a time drives it, and others can see whether."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from rank_core.errors import BadInput
from sweeps.store.trial_store import Store

LOCK = ".driver.lock"
Driver = Literal["alive", "gone", "elsewhere"]


@contextmanager
def only_driver(store: Store) -> Iterator[None]:
    """Two drivers on one store would run every trial twice and overwrite each other's ledger."""
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
