"""The lease of a sweep: one command at a time drives it. The lease is a file of the storage, so
that it is valid between machines. It is created only where none exists (`If-None-Match` on S3, a
generation on GCS, `O_EXCL` in a folder) and its driver refreshes it. Ages are differences of the
storage's times: clocks of machines are never compared.
"""

import getpass
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rank_core.errors import BadInput
from rank_core.files import atomic_write
from sweeps.store.trial_store import Store

LEASE = "driver.json"
REFRESH_SECONDS = 15.0
STALE_SECONDS = 120.0
"""Seconds without a refresh after which the driver on another machine is dead."""
SETTLE_SECONDS = 1.0
"""The wait between taking over a lease and checking it: the later of two commands wins."""
TAKEN_OVER = 130  # exit code of a driver whose lease another one took over


@dataclass(frozen=True)
class Lease:
    """The process that drives a sweep. It writes to `mirror` before a remote storage."""

    token: str
    host: str
    pid: int
    started: str  # of the process, see `this_process`
    user: str
    since: float  # seconds since the epoch, by its own clock
    mirror: str

    def text(self) -> str:
        """The driver in messages."""
        since = datetime.fromtimestamp(self.since).strftime("%Y-%m-%d %H:%M")
        return f"process {self.pid} of {self.user} on {self.host}, since {since}"

    @property
    def is_here(self) -> bool:
        """True on the host of the process."""
        return self.host == socket.gethostname()


@contextmanager
def only_driver(store: Store) -> Iterator[None]:
    """The lease of a store for as long as the block runs; raises `BadInput` where another command
    has it. Two drivers would run every trial twice and mix their events in one log."""
    lease = Lease(
        token=uuid.uuid4().hex,
        user=_user(),
        since=time.time(),
        mirror=str(store.folder),
        **this_process(),
    )
    try:
        _acquire(store, lease)
    except BadInput:
        raise
    except Exception as error:  # every filesystem has its own kinds
        raise BadInput(
            f"--storage must be writable, got {store.uri}: {type(error).__name__}: {error}"
        ) from None
    over = threading.Event()
    refresher = threading.Thread(
        target=_refresh, args=(store, lease, over, _end_this_process), daemon=True, name="lease"
    )
    refresher.start()
    try:
        yield
    finally:
        over.set()
        refresher.join(SETTLE_SECONDS)
        with suppress(Exception):  # otherwise it is taken over once this process has ended
            if read_lease(store) == lease:
                store.fs.rm_file(_path(store))


def living_driver(store: Store) -> Lease | None:
    """The lease of the command that drives a sweep now; None without one. Changes nothing: the age
    of another machine's lease is measured by this machine's clock."""
    lease = read_lease(store)
    if lease is None:
        return None
    if lease.is_here:
        return lease if is_alive(vars(lease)) else None
    try:
        age = time.time() - store.fs.modified(_path(store)).timestamp()
    except FileNotFoundError:  # released meanwhile
        return None
    except NotImplementedError:
        return lease
    return lease if age < STALE_SECONDS else None


def read_lease(store: Store) -> Lease | None:
    """The lease of a store, of any holder and age; None without one."""
    store.fs.invalidate_cache()
    try:
        content = store.fs.cat_file(_path(store))
    except FileNotFoundError:
        return None
    try:
        stored = json.loads(content)
        return Lease(**stored | {"pid": int(stored["pid"]), "since": float(stored["since"])})
    except (ValueError, TypeError, KeyError):  # of another version, or half written
        return Lease("", "another host", 0, "", "somebody", 0.0, "")


def _acquire(store: Store, lease: Lease) -> None:
    holder = read_lease(store)
    if holder is None:
        try:
            _write(store, lease, create=True)
        except Exception:  # every filesystem has its own kinds
            if read_lease(store) is None:
                raise
        holder = read_lease(store)
    elif _is_stale(store, holder):
        _write(store, lease)
        time.sleep(SETTLE_SECONDS)
        holder = read_lease(store)
    if holder != lease:
        raise BadInput(
            f"one command at a time may drive a sweep, and {store.uri} is driven by "
            f"{holder.text() if holder else 'another command'}. Wait for it or end it there; it "
            f"is considered dead {STALE_SECONDS:.0f} s after its last refresh of {LEASE}"
        )


def _is_stale(store: Store, lease: Lease) -> bool:
    if lease.is_here:
        return not is_alive(vars(lease))
    clock = f"{store.root}/.clock-{uuid.uuid4().hex[:8]}"
    try:
        store.fs.pipe_file(clock, b"now")
        age = store.fs.modified(clock) - store.fs.modified(_path(store))
        return bool(age.total_seconds() > STALE_SECONDS)
    except (FileNotFoundError, NotImplementedError):
        return False
    finally:
        with suppress(Exception):
            store.fs.rm_file(clock)


def _refresh(
    store: Store, lease: Lease, over: threading.Event, taken_over: Callable[[Store, Lease], None]
) -> None:
    """Refresh the lease until it is `over`, or another driver's. An unavailable storage is tried
    again: no other driver can reach it either."""
    while not over.wait(REFRESH_SECONDS):
        with suppress(Exception):
            store.require()
            current = read_lease(store)
            if current is None:
                _write(store, lease, create=True)
            elif current != lease:
                taken_over(store, current)
                return
            elif store.is_local:
                os.utime(_path(store))
            else:
                _write(store, lease)


def _end_this_process(store: Store, other: Lease) -> None:
    """End this process as a kill does, which loses nothing: its writes would mix with those of the
    other driver."""
    print(
        f"error: this command was silent for more than {STALE_SECONDS:.0f} s, and {store.uri} is "
        f"driven by {other.text()} now. It ends here; finished trials are kept",
        flush=True,
    )
    os._exit(TAKEN_OVER)


def _write(store: Store, lease: Lease, *, create: bool = False) -> None:
    """Writes a lease atomically; `create` fails if one exists."""
    content = json.dumps(asdict(lease)).encode()
    path = _path(store)
    if not store.is_local:
        store.fs.pipe_file(path, content, mode="create" if create else "overwrite")
    elif create:
        with open(path, "xb") as file:
            file.write(content)
    else:
        with atomic_write(Path(path)) as unfinished:
            unfinished.write_bytes(content)


def _path(store: Store) -> str:
    return f"{store.root}/{LEASE}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may have a number without a name
        return str(os.getuid())


def this_process() -> dict[str, Any]:
    """The identity of this process, stored with its events and lease."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "started": _started(os.getpid())}


def is_alive(process: Mapping[str, Any]) -> bool:
    """True while a process runs. A process on another host cannot be checked: False."""
    if process.get("host") != socket.gethostname():
        return False
    try:
        os.kill(int(process["pid"]), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True  # another user's process: it exists
    return bool(_started(int(process["pid"])) == process.get("started"))


def _started(pid: int) -> str:
    """Start time of a process in clock ticks since boot, so that a reused pid is noticed."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""  # no /proc on this system: the pid alone
    # The command may contain spaces and brackets; field 22 is counted behind its last bracket.
    return text.rpartition(")")[2].split()[19]
