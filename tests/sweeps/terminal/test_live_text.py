"""A text that a terminal shows in place, and who gets plain lines instead."""

import io
import logging
import sys
from types import SimpleNamespace

import pytest

from sweeps.terminal.live_text import LiveText, in_notebook, is_live_terminal

KERNEL = SimpleNamespace(kernel=object())
"""The shell of a notebook."""


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


def test_a_shell_in_a_terminal_and_plain_python_are_no_notebook(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not in_notebook() and "IPython" not in sys.modules
    for shell, is_one in ((None, False), (SimpleNamespace(), False), (KERNEL, True)):
        stand_in = SimpleNamespace(get_ipython=lambda own=shell: own)
        monkeypatch.setitem(sys.modules, "IPython", stand_in)
        assert in_notebook() is is_one


@pytest.mark.slow
def test_a_notebook_has_one_output_that_is_updated(tmp_path):
    """In a real kernel: two cells of a sweep's screen, each with one table, the last version."""
    nbformat, nbclient = map(pytest.importorskip, ("nbformat", "nbclient"))
    pytest.importorskip("ipykernel")
    code = (
        "from sweeps.terminal.live_text import NotebookText, in_notebook\n"
        "assert in_notebook()\n"
        "live = NotebookText()\n"
        "for step in range(3):\n"
        "    live.show(['', f'<step {step}/2>'])\n"
        "live.close()"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for _ in range(2)])
    nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    for cell in notebook.cells:
        [output] = cell.outputs
        assert output.output_type == "display_data"
        assert output.data["text/plain"] == "<step 2/2>"
        assert output.data["text/html"] == "<pre>&lt;step 2/2&gt;</pre>"
