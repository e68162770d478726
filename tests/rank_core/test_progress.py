"""Progress lines of long steps."""

import io

import pytest

from rank_core.progress import reported


class Output(io.StringIO):
    def __init__(self, at_terminal):
        super().__init__()
        self.at_terminal = at_terminal

    def isatty(self):
        return self.at_terminal


def said(monkeypatch, *, at_terminal, seconds, number=500):
    """The output of 500 items that take this long each."""
    out, now = Output(at_terminal), [0.0]
    monkeypatch.setattr("sys.stderr", out)
    seen = []
    for item in reported(range(number), "making tiny", clock=lambda: now[0]):
        seen.append(item)
        now[0] += seconds
    assert seen == list(range(number))
    return out.getvalue()


def test_a_file_gets_a_line_every_half_minute(monkeypatch):
    lines = said(monkeypatch, at_terminal=False, seconds=0.5).splitlines()
    assert lines[0] == "making tiny: 60 of 500, 2.0/s, about 3 min left"
    assert lines[-2] == "making tiny: 480 of 500, 2.0/s, about 10 s left"
    assert lines[-1] == "making tiny: done after 250 s" and len(lines) == 9


def test_a_terminal_gets_one_line_that_is_written_again(monkeypatch):
    text = said(monkeypatch, at_terminal=True, seconds=0.5)
    assert text.count("\n") == 1 and text.endswith("making tiny: done after 250 s\x1b[K\n")
    assert text.startswith(
        "\rmaking tiny: 6 of 500, 2.0/s, about 4 min left\x1b[K\rmaking tiny: 12 of"
    )


@pytest.mark.parametrize("number", [0, 20])
def test_short_steps_print_nothing(monkeypatch, number):
    assert said(monkeypatch, at_terminal=True, seconds=0.1, number=number) == ""


def test_without_a_length_progress_has_count_and_rate(monkeypatch):
    out, now = Output(False), [0.0]
    monkeypatch.setattr("sys.stderr", out)
    for _ in reported(iter(range(600)), "reading", clock=lambda: now[0]):
        now[0] += 0.0625
    assert out.getvalue().splitlines()[0] == "reading: 480, 16/s"


def test_a_resumed_step_is_timed_by_its_own_items(monkeypatch):
    out, now = Output(False), [0.0]
    monkeypatch.setattr("sys.stderr", out)
    for _ in reported(range(300), "reading", total=1300, first=1000, clock=lambda: now[0]):
        now[0] += 0.25
    assert out.getvalue().splitlines()[0] == "reading: 1,120 of 1,300, 4.0/s, about 45 s left"
