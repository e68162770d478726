"""`driver.json`: one command at a time drives a sweep. The file is created only where none exists
and its driver touches it every ten seconds; untouched for a minute it is taken over, and at once
where its process on this machine has ended. The last touch of a killed driver ends the attempts
that it drove: they used their slots until then, also where a trial that scores reports nothing."""

import getpass
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime

from rank_core.errors import BadInput
from rank_core.lines import put
from rank_core.parsing import parsed_json
from sweeps.store.records import Records
from sweeps.store.storage import PROGRAM_ERRORS, reason
from sweeps.store.sweep_file import described

FILE = "driver.json"
TOUCH_SECONDS = 10.0
AGAIN_SECONDS = 1.0  # while the storage is away: who waits is to hear that it is back
STALE_SECONDS = 60.0
SETTLE_SECONDS = 1.0
"""The wait between taking over and checking it: the later of two commands wins."""
TAKEN_OVER = 130  # exit code of a driver whose sweep another one took over


@dataclass(frozen=True)
class Driver:
    """The process that drives a sweep; `command` is its token in the attempts of its trials."""

    host: str
    pid: int
    command: str
    user: str = ""
    since: float = 0.0  # seconds since the epoch, by its own clock
    touched: float = field(default=0.0, compare=False)  # likewise; 0 of drivers before 0.5

    def text(self) -> str:
        """The driver in messages."""
        since = datetime.fromtimestamp(self.since).strftime("%Y-%m-%d %H:%M")
        return f"process {self.pid} of {self.user} on {self.host}, since {since}"

    @property
    def is_here(self) -> bool:
        """True on the host of the process."""
        return self.host == socket.gethostname()

    @property
    def is_alive(self) -> bool:
        """True while a process of its number runs on this host."""
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
        except PermissionError:
            pass  # another user's process: it exists
        return True


def read_driver(records: Records, *, wait: bool = True) -> Driver | None:
    """The driver of a sweep, alive or dead; None without one."""
    content = records.storage.read(records.path(FILE), wait=wait)
    if content is None:
        return None
    try:
        stored = parsed_json(content)
        times = {name: float(stored.get(name, 0.0)) for name in ("since", "touched")}
        return Driver(**stored | {"pid": int(stored["pid"]), **times})
    except (ValueError, TypeError, KeyError, AttributeError):  # of another version
        return Driver("another host", 0, "")


def living_driver(records: Records, now: Callable[[], float] = time.time) -> Driver | None:
    """The command that drives a sweep now; None without one. Changes nothing: the age of another
    machine's file is measured by this machine's clock."""
    driver = read_driver(records)
    return None if driver is None or _is_stale(records, driver, now) else driver


def follow_driver(records: Records) -> Driver | None:
    """The command that drives a sweep now; None without one. From here on `records` read its
    attempts as running, and those of a killed driver as ended with it."""
    driver = read_driver(records)
    lives = driver is not None and not _is_stale(records, driver, time.time)
    records.command = driver.command if driver and lives else ""
    records.killed = {} if driver is None or lives else _last_touch(records, driver)
    return driver if lives else None


def _last_touch(records: Records, driver: Driver) -> dict[str, int]:
    """{token of a killed driver: milliseconds of its last touch}."""
    seconds = driver.touched or records.storage.modified(records.path(FILE)) or 0.0
    return {driver.command: int(1000 * seconds)} if driver.command and seconds else {}


def user_name() -> str:
    """The user's name, or the number where a container has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


@contextmanager
def only_driver(records: Records, now: Callable[[], float] | None = None) -> Iterator[Driver]:
    """This process as the driver of a sweep while the block runs; raises `BadInput` where another
    command drives it. Two drivers would run every trial twice."""
    driver = Driver(socket.gethostname(), os.getpid(), uuid.uuid4().hex, user_name(), time.time())
    _acquire(records, driver, now or records.storage.now)
    records.command = driver.command
    over = threading.Event()
    touching = threading.Thread(target=touch, args=(records, driver, over), daemon=True)
    touching.start()
    try:
        yield driver
    finally:
        over.set()
        touching.join(SETTLE_SECONDS)
        with suppress(Exception):  # otherwise it is taken over once this process has ended
            if (now_driving := read_driver(records)) and now_driving.command == driver.command:
                records.storage.remove(records.path(FILE))
                records.storage.tell_back()  # the touches may have ended before they saw it


def _acquire(records: Records, driver: Driver, now: Callable[[], float]) -> None:
    path = records.path(FILE)
    if records.storage.create(path, _content(driver)):
        return
    holder = read_driver(records)
    if holder is None or _is_stale(records, holder, now):
        if holder:
            _end_attempts(records, holder)  # before its last touch is gone with its file
        records.storage.write(path, _content(driver))
        # Another command may take over at the same moment. The last write wins; after the wait both
        # read the same token, and one of them ends.
        time.sleep(SETTLE_SECONDS)
        holder = read_driver(records)
    if holder is None or holder.command != driver.command:
        raise BadInput(
            f"one command at a time may drive a sweep, and {records.uri} is driven by "
            f"{holder.text() if holder else 'another command'}. Wait for it or end it there; it "
            f"is considered dead {STALE_SECONDS:.0f} s after it last touched {FILE}"
        )


def _end_attempts(records: Records, killed: Driver) -> None:
    records.killed = _last_touch(records, killed)
    with suppress(BadInput):  # without its description a sweep has no trials
        if file := described(records):
            records.end_killed(file.trials)


def _is_stale(records: Records, driver: Driver, now: Callable[[], float]) -> bool:
    # On this machine the process table knows at once; of other machines only the file's age is
    # known.
    if driver.is_here and not driver.is_alive:
        return True
    modified = records.storage.modified(records.path(FILE))
    return modified is not None and now() - modified > STALE_SECONDS


def touch(
    records: Records,
    driver: Driver,
    over: threading.Event,
    taken_over: "Callable[[Records, Driver], None] | None" = None,
    seconds: float = TOUCH_SECONDS,
) -> None:
    """Touches the file until it is `over`, or another driver's. A storage that is away is tried
    again: no other driver can reach it either. The processes of trials may wait for it unheard, so
    the driver says so."""
    failed = False
    while not over.wait(min(seconds, AGAIN_SECONDS) if failed else seconds):
        try:
            # Read before it is written: a machine that slept must not take the sweep back from its
            # successor.
            current = read_driver(records, wait=False)
            if current is not None and current.command != driver.command:
                (taken_over or _end_this_process)(records, current)
                return
            records.storage.write(records.path(FILE), _content(driver), wait=False)
            if failed:
                records.storage.tell_back()
            failed = False
        except PROGRAM_ERRORS:
            raise
        except Exception as error:  # every filesystem has its own kinds
            records.storage.tell_away(f"{FILE}: {reason(error)}; trying again")
            failed = True


def _end_this_process(records: Records, other: Driver) -> None:
    """Ends this process as a kill does, which loses nothing: its writes would mix with those of the
    other driver."""
    put(
        f"error: this command was silent for more than {STALE_SECONDS:.0f} s, and {records.uri} is "
        f"driven by {other.text()} now. It ends here; finished trials are kept"
    )
    # No cleanup: handlers would write to the sweep, which is the other driver's now.
    os._exit(TAKEN_OVER)


def _content(driver: Driver) -> bytes:
    return json.dumps(asdict(replace(driver, touched=time.time())), indent=1).encode()
