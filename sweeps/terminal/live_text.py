"""A text that is updated in place on a terminal or in a notebook; other output stands beside it."""

import html
import logging
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any, Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

from rank_core.lines import visible

_LOST = r"\b(FAILED|failed|diverged|collapsed|damaged|interrupted|silent)\b"
_RUNNING = r"\b(step \d+/\d+|starting)\b"


def is_live_terminal() -> bool:
    """True if standard output is a terminal that can redraw; rich heeds `NO_COLOR` for colours."""
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def in_notebook() -> bool:
    """True in a cell of a notebook. IPython is asked only where it runs: nothing is imported."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return getattr(shell, "kernel", None) is not None  # a shell in a terminal has none


class Updated(Protocol):
    """A text that is shown once and then updated."""

    def show(self, lines: Sequence[str]) -> None:
        """Replaces the text."""

    def close(self, *, keep: bool = True) -> None:
        """Ends the updates; the last version stays, or is removed."""

    def size(self) -> tuple[int, int]:
        """Its columns and lines."""


class NotebookText:
    """The text below a cell of a notebook: one output, however often it is updated."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, lines: Sequence[str]) -> None:
        """Replaces the text."""
        from IPython.display import display

        text = visible("\n".join(lines).strip("\n"))
        shown = {"text/plain": text, "text/html": f"<pre>{html.escape(text)}</pre>"}
        if self._handle is None:
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)

    def close(self, *, keep: bool = True) -> None:
        """Leaves the last version below the cell, or an empty text."""
        if self._handle is not None and not keep:
            self.show([])
        self._handle = None

    def size(self) -> tuple[int, int]:
        """A page scrolls: every cell of a sweep has room."""
        return 100, 10_000


class LiveText:
    """The text on the terminal from the first `show` to `close`. The state of the terminal and its
    cursor do not change, so a killed process leaves nothing to repair."""

    def __init__(self) -> None:
        self._live: Live | None = None

    def show(self, lines: Sequence[str]) -> None:
        """Replaces the text; lines beyond the terminal's width are cut."""
        text = Text(visible("\n".join([*lines, ""])), no_wrap=True, overflow="crop")
        text.highlight_regex(_LOST, "red")
        text.highlight_regex(_RUNNING, "green")
        if self._live is None:
            self._live = Live(
                console=_Console(file=sys.stdout, highlight=False, markup=False, emoji=False),
                auto_refresh=False,
                redirect_stderr=sys.stderr.isatty(),
                vertical_overflow="crop",
            )
            self._live.start()
            _log_to_stderr()
        self._live.update(text, refresh=True)

    def size(self) -> tuple[int, int]:
        """The columns and lines of the terminal."""
        return shutil.get_terminal_size()

    def close(self, *, keep: bool = True) -> None:
        """Leaves the last version on the terminal, or removes it; later output follows."""
        if self._live is not None:
            self._live.transient = not keep
            self._live.stop()
            _log_to_stderr()
            self._live = None


class _Console(Console):
    def show_cursor(self, show: bool = True) -> bool:
        """Keep the cursor visible."""
        return False


def _log_to_stderr() -> None:
    """Let the log follow `sys.stderr`, which the live text replaces."""
    for handler in logging.getLogger().handlers:
        if type(handler) is logging.StreamHandler:
            handler.setStream(sys.stderr)
