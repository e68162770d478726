"""A text that a terminal shows in place, and who gets plain lines instead."""

import io
import logging
import sys
from itertools import takewhile

import pytest

from sweeps.plan.live_text import LiveText, is_live_terminal


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def attach(monkeypatch) -> Terminal:
    """A terminal in place of what pytest captures, from within the test."""
    out = Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "40")
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
    print("after")
    text = terminal.getvalue()
    assert "\x1b[1A" in text, "it goes up to draw again"
    assert "x" * 40 in text and "x" * 41 not in text, "cut, not wrapped"
    rows = screen(text)
    assert rows[:4] == ["a line", "a warning", "step 2/9", "y"] and rows[-2:] == ["after", ""]
    assert sys.stdout is terminal and sys.stderr is terminal
    assert logging.getLogger().handlers[0].stream is terminal


@pytest.mark.parametrize("value", ["dumb", "", None])
def test_plain_lines_are_a_matter_of_the_terminal(monkeypatch, value):
    attach(monkeypatch)
    assert is_live_terminal()
    monkeypatch.delenv("TERM") if value is None else monkeypatch.setenv("TERM", value)
    assert not is_live_terminal()


def screen(text: str) -> list[str]:
    """The rows that a terminal shows after this output."""
    rows, row, column = [""], 0, 0
    parts = iter(text.split("\x1b["))
    rest = next(parts)
    while True:
        for letter in rest:
            if letter == "\n":
                row, column = row + 1, 0
                rows += [""] * (row + 1 - len(rows))
            elif letter == "\r":
                column = 0
            else:
                rows[row] = rows[row][:column].ljust(column) + letter + rows[row][column + 1 :]
                column += 1
        if (part := next(parts, None)) is None:
            return rows
        number = "".join(takewhile(lambda letter: letter in "0123456789;", part))
        code, rest = part[len(number)], part[len(number) + 1 :]
        if code == "A":
            row -= int(number or 1)
        elif code == "K":
            rows[row] = "" if number == "2" else rows[row][:column]
        else:
            assert code == "m", f"unexpected control code {code}"
