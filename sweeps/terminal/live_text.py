"""A text that is updated in place on a terminal; other output scrolls above it."""

import logging
import os
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live
from rich.text import Text

_LOST = r"\b(FAILED|failed|diverged|collapsed|damaged|interrupted|silent)\b"
_RUNNING = r"\b(step \d+/\d+|starting)\b"


def is_live_terminal() -> bool:
    """True if standard output is a terminal that can redraw; rich heeds `NO_COLOR` for colours."""
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


class LiveText:
    """The text on the terminal from the first `show` to `close`. The state of the terminal and its
    cursor do not change, so a killed process leaves nothing to repair."""

    def __init__(self) -> None:
        self._live: Live | None = None

    def show(self, lines: Sequence[str]) -> None:
        """Replaces the text; lines beyond the terminal's width are cut."""
        text = Text("\n".join([*lines, ""]), no_wrap=True, overflow="crop")
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
