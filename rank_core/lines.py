"""The one door of printed lines: whatever a command prints, on standard output or beside it, passes
`visible`. `tests/architecture/test_doors.py` finds every other way."""

import logging
import re
import sys
from typing import TextIO

from rank_core.secrets import redact_text

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
ERASE_REST = "\x1b[K"  # of a line of a terminal


def visible(text: str) -> str:
    """The text without secrets, such as the password of a URI, and with control characters as
    `\\x1b`: names come from files, and a terminal obeys them."""
    return without_control(redact_text(text))


def without_control(text: str) -> str:
    """The text with control characters but tab and line break as `\\x1b`."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def put(text: str = "", *, end: str = "\n", to: TextIO | None = None) -> None:
    """Print text at once, on standard output or `to` a stream."""
    print(visible(text), end=end, file=to, flush=True)


def beside(text: str) -> None:
    """Print a line at once on standard error, beside the output."""
    put(text, to=sys.stderr)


def put_program(text: str, *, end: str = "\n") -> None:
    """Print a file of this package as it is, such as a schema or a shell's completion: nobody else
    wrote a word of it, and a word such as `--judge-key` in it is no secret."""
    print(text, end=end, flush=True)


def rewrite(text: str) -> None:
    """Write a line over the last one of a terminal, without a line break."""
    sys.stderr.write(f"\r{visible(text)}{ERASE_REST}")
    sys.stderr.flush()


class VisibleLog(logging.Formatter):
    """The form of a log's lines."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, which passes `visible`."""
        return visible(super().format(record))


def show_log() -> None:
    """Let warnings of a program that has no log of its own pass here too."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(VisibleLog())
