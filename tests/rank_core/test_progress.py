"""Progress lines of long steps."""

import io

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
