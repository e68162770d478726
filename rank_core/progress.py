"""Progress lines for steps that take minutes, on standard error."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TypeVar

from rank_core.lines import beside, rewrite

TERMINAL_SECONDS, FIRST_SECONDS, FILE_SECONDS = 3.0, 5.0, 30.0
T = TypeVar("T")


def reported(
    items: Iterable[T],
    what: str,
    *,
    total: int | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[T]:
    """The items, with a progress line: rewritten in place at a terminal; elsewhere a new line after
    five seconds, then more and more rarely, in the end every half minute. Shorter steps print
    nothing.

    `total` is their number where they have no length.
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    at_terminal = sys.stderr.isatty()
    between = TERMINAL_SECONDS if at_terminal else FIRST_SECONDS
    start = last = clock()
    for done, item in enumerate(items):
        if done and clock() - last >= between:
            last = clock()
            _write(f"{what}: {_state(done, total, (last - start) / done)}", at_terminal)
            between = between if at_terminal else min(2 * between, FILE_SECONDS)
        yield item
    if last > start:
        _write(f"{what}: done after {clock() - start:.0f} s", at_terminal)
        if at_terminal:
            beside("")


def _state(done: int, total: int | None, seconds_each: float) -> str:
    """`12 of 500, 2.0/s, about 4 min left`; of slow steps `1 of 4, 40 s each`."""
    rate = 1 / seconds_each
    text = f"{done:,}" if total is None else f"{done:,} of {total:,}"
    if rate < 0.5:
        text += f", {seconds_each:.0f} s each"
    else:
        text += f", {rate:,.0f}/s" if rate >= 10 else f", {rate:.1f}/s"
    if total is None:
        return text
    seconds = round(seconds_each * (total - done))
    return f"{text}, about {f'{seconds // 60} min' if seconds >= 120 else f'{seconds} s'} left"


def _write(line: str, at_terminal: bool) -> None:
    (rewrite if at_terminal else beside)(line)
