"""A Tuner in a thread that can be given up: without Ray's GCS, calls to Ray never return."""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ray

from sweeps.plan.terminal import duration

if TYPE_CHECKING:
    from sweeps.ray_engine.attempts import Attempts

LOOK_SECONDS = 0.5  # between looks at Ray's processes
PROBE_SECONDS = 5.0  # between questions to the GCS
SILENT_SECONDS = 45.0  # without an answer of the GCS, after which Ray counts as dead
GOODBYE_SECONDS = 5.0  # for a Tuner that was given up


class Turn:
    """The attempts, used by one thread at a time, and by the Tuner only until it is given up."""

    def __init__(self, attempts: "Attempts") -> None:
        self._attempts, self._lock, self._over = attempts, threading.Lock(), False

    def __enter__(self) -> "Attempts":
        self._lock.acquire()
        if self._over:
            self._lock.release()
            raise RuntimeError("this Tuner was given up")
        return self._attempts

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def end(self) -> None:
        """Refuses further use; waits a while for a use that has begun."""
        begun = not self._lock.acquire(timeout=GOODBYE_SECONDS)
        self._over = True
        if not begun:
            self._lock.release()


def run_until_lost(work: Callable[[], Any], turn: Turn) -> str:
    """Runs `work` in a thread to its end, and raises its error. Where Ray dies, gives it up and
    returns the reason."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True, name="tune")
    thread.start()
    probe = _Probe()
    try:
        while thread.is_alive():
            thread.join(LOOK_SECONDS)
            if thread.is_alive() and (lost := _dead_process() or probe.silence()):
                return lost
    finally:
        turn.end()
        thread.join(GOODBYE_SECONDS)
    if errors:
        raise errors[0]
    return ""


def _dead_process() -> str:
    """What of a Ray that this command has started has died; "" for nothing."""
    node = ray._private.worker._global_node
    processes: dict[str, list[Any]] = node.all_processes if node else {}
    for name in ("gcs_server", "raylet"):
        for info in processes.get(name, []):
            if info.process.poll() is not None:
                return f"Ray has died on this machine (its {name})"
    return ""


class _Probe:
    """A question to the GCS every few seconds, from threads of its own."""

    def __init__(self) -> None:
        self._asked, self._answered = 0.0, True

    def silence(self) -> str:
        """The reason to give Ray up, "" while it answers."""
        now = time.monotonic()
        if not self._answered:
            if now - self._asked < SILENT_SECONDS:
                return ""
            return f"Ray has not answered for {duration(now - self._asked)}"
        if now - self._asked >= PROBE_SECONDS:
            self._asked, self._answered = now, False
            threading.Thread(target=self._ask, daemon=True, name="probe").start()
        return ""

    def _ask(self) -> None:
        try:
            ray.nodes()
        except Exception:  # an answer, too: Tune meets the same error
            pass
        self._answered = True
