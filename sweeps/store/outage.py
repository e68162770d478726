"""Messages while a service is unavailable: a line per kind of error, repeated every minute."""

import re
import time
from collections.abc import Callable

from sweeps.plan.secrets import redact_text

REPEAT_SECONDS = 60.0
_CLASS = re.compile(r"^\(\w+\.\w+\) ")  # SQLAlchemy's prefix
_VARIES = re.compile(r"\d+|/\S+")  # within one kind: attempts, ports, endpoints


class Outage:
    """The decision whether an error is reported. Failures with successes in between get no more
    lines than a permanent failure."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None
        self._reported = False  # of this outage
        self._lines: dict[str, float] = {}  # kind of error: time of its last line

    @property
    def seconds(self) -> float:
        """The length of the outage so far, in seconds."""
        return 0.0 if self._since is None else self._clock() - self._since

    def line_due(self, reason: str) -> bool:
        """Records an error; True if a line about its kind is due."""
        now, kind = self._clock(), _VARIES.sub("", reason)
        if self._since is None:
            self._since, self._reported = now, False
        if now - self._lines.get(kind, float("-inf")) < REPEAT_SECONDS:
            return False
        self._lines[kind] = now
        self._reported = True
        return True

    def over(self) -> float | None:
        """End the outage; returns its seconds, None if none was reported."""
        seconds, reported = self.seconds, self._since is not None and self._reported
        self._since = None
        return seconds if reported else None


def reason_of(error: BaseException) -> str:
    """The cause of an error in a line: the system's message, or else its first line."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            path = cause.filename2 or cause.filename
            return redact_text(cause.strerror + (f": {path}" if path else ""))
        cause = cause.__cause__ or cause.__context__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return redact_text(_CLASS.sub("", lines[0]) if lines else type(error).__name__)[:300]
