"""The way of a checkpoint from the disk of its node to the storage, while the trial computes."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from filelock import FileLock, Timeout

from rank_core.cache import cache_root
from rank_core.errors import BadInput


class Upload:
    """At most one upload of a trial at a time, in a thread, and one of a user's trials on a node:
    side by side, each would take as long as all of them, and be old when it arrives."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._thread: threading.Thread | None = None
        self._lock: FileLock | None = None
        self.seconds = 0.0  # that the last one took

    @property
    def running(self) -> bool:
        """Whether one is on its way."""
        return self._thread is not None and self._thread.is_alive()

    def turn(self) -> bool:
        """True if it is this trial's turn on its node, until its next upload has ended."""
        try:
            if self._lock is None:
                name = f".upload-{socket.gethostname()}.lock"  # nodes may share a cache
                # Released by the thread.
                self._lock = FileLock(cache_root() / name, thread_local=False)
            if not self._lock.is_locked:
                self._lock.acquire(timeout=0)
        except Timeout:
            return False
        except (OSError, NotImplementedError, BadInput):  # a cache that is read alone: no turns
            return True
        return True

    def start(self, send: Callable[[], None]) -> None:
        """Runs `send`, which raises nothing, after an upload that is on its way."""
        self.wait()

        def run() -> None:
            begun = self._clock()
            try:
                send()
            finally:
                self.seconds = self._clock() - begun
                self.end_turn()

        # A daemon: a storage that never answers must not keep the process alive.
        self._thread = threading.Thread(target=run, daemon=True, name="upload")
        self._thread.start()

    def wait(self, seconds: float | None = None) -> None:
        """Waits for the upload on its way, at most so many seconds."""
        if self._thread:
            self._thread.join(seconds)

    def end_turn(self) -> None:
        """Lets other trials of the node have their turn."""
        if self._lock:
            with suppress(OSError):
                self._lock.release()
