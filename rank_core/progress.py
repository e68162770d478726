"""Progress of a step that takes minutes, on standard error: how far it is, how long it takes."""

import sys
import time
from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

TERMINAL_SECONDS, FILE_SECONDS = 3.0, 30.0
T = TypeVar("T")


def reported(
    items: Collection[T], what: str, *, clock: Callable[[], float] = time.monotonic
) -> Iterator[T]:
    """The items, while a line says how many are done: the same line again and again at a terminal,
    a new one every half minute elsewhere. What is over sooner says nothing."""
    at_terminal = sys.stderr.isatty()
    between = TERMINAL_SECONDS if at_terminal else FILE_SECONDS
    start = last = clock()
    for done, item in enumerate(items):
        if done and clock() - last >= between:
            last = clock()
            minutes, seconds = divmod(round((last - start) / done * (len(items) - done)), 60)
            left = f"{minutes} min" if minutes > 1 else f"{60 * minutes + seconds} s"
            line = f"{what}: {done:,} of {len(items):,}, about {left} left"
            _write(f"\r{line}\x1b[K" if at_terminal else f"{line}\n")
        yield item
    if last > start:
        line = f"{what}: done after {clock() - start:.0f} s"
        _write(f"\r{line}\x1b[K\n" if at_terminal else f"{line}\n")


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
