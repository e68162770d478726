"""A text that a terminal shows in place, and who gets plain lines instead."""

import io
import logging
import sys

import pytest

from sweeps.terminal.live_text import LiveText, is_live_terminal


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def attach(monkeypatch) -> Terminal:
    """A terminal in place of what pytest captures, from within the test."""
    out = Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", out)
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "40"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    return out


def test_each_version_replaces_the_last_and_other_output_scrolls_above(monkeypatch):
    terminal = attach(monkeypatch)
    logging.basicConfig(force=True, stream=sys.stderr, format="%(message)s")
    live = LiveText()
    live.show(["step 1/9", "x" * 60])
    print("a line")
    logging.warning("a warning")
    live.show(["step 2/9", "y"])
    live.close()
    text = terminal.getvalue()
    assert "\x1b[1A" in text, "it goes up to draw again"
    assert "x" * 40 in text and "x" * 41 not in text, "cut, not wrapped"
    assert text.index("a line") < text.index("a warning") < text.index("step 2/9")
    assert "\x1b[?25l" not in text, "the cursor stays"
    assert sys.stdout is terminal and sys.stderr is terminal
    assert logging.getLogger().handlers[0].stream is terminal


@pytest.mark.parametrize("value", ["dumb", ""])
def test_plain_lines_are_a_matter_of_the_terminal(monkeypatch, value):
    attach(monkeypatch)
    assert is_live_terminal()
    monkeypatch.setenv("TERM", value)
    assert not is_live_terminal()
