"""The file for the lines of Ray itself: dozens for each process that dies, some of them wrong, such
as "Trials did not complete" after a sweep in which a trial ran twice and all finished."""

import logging
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TextIO, cast

RAY_LOG = "ray.log"


@contextmanager
def ray_lines_to(path: Path) -> Iterator[None]:
    """Sends what Ray writes to file descriptor 2, also from its C++ parts, what its threads print,
    and errors in the destructors of its objects to a file. Our own lines still reach the
    terminal."""
    before, unraisable = (sys.stdout, sys.stderr), sys.unraisablehook
    before[1].flush()
    terminal = os.dup(2)
    ours = open(os.dup(2), "w", buffering=1, errors="backslashreplace")
    theirs = open(path, "a", buffering=1, errors="backslashreplace")
    os.dup2(theirs.fileno(), 2)
    handlers = [
        one
        for one in logging.getLogger().handlers
        if isinstance(one, logging.StreamHandler) and _is_2(one.stream)
    ]
    try:
        sys.stdout = cast(TextIO, _ByThread(theirs, sys.stdout))
        sys.stderr = cast(TextIO, _ByThread(theirs, ours if _is_2(before[1]) else before[1]))
        for handler in handlers:
            handler.setStream(ours)
        sys.unraisablehook = partial(_write_unraisable, theirs)
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
        sys.unraisablehook = unraisable
        sys.stdout, sys.stderr = before
        for handler in handlers:
            handler.setStream(before[1])
        ours.close()
        theirs.close()


def _write_unraisable(file: TextIO, error: Any) -> None:
    lines = traceback.format_exception(error.exc_type, error.exc_value, error.exc_traceback)
    file.write(f"{error.err_msg or 'Exception ignored in'}: {error.object!r}\n{''.join(lines)}")


class _ByThread:
    """A standard stream, which in Ray's threads is `theirs`."""

    def __init__(self, theirs: TextIO, ours: TextIO) -> None:
        self._theirs, self._ours = theirs, ours

    def __getattr__(self, name: str) -> Any:
        of_ray = threading.current_thread().name.startswith("ray_")
        return getattr(self._theirs if of_ray else self._ours, name)


def _is_2(stream: object) -> bool:
    try:
        return stream.fileno() == 2  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return False  # a test's, or a notebook's
