"""One line per outage and kind of error, repeated by the minute."""

import errno

import pytest

from sweeps.store import storage_retry
from sweeps.store.outage import Outage, reason_of
from sweeps.store.storage_retry import StorageAway, patiently


class Clock:
    """Time that passes when it is told to."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now

    monotonic = __call__

    def sleep(self, seconds):
        self.now += seconds


def test_an_outage_has_a_line_for_each_kind_and_minute():
    clock = Clock()
    outage, lines = Outage(clock), []
    for second in range(150):
        clock.now = 1000.0 + second
        reason = f"disk is full, try {second}" if second % 2 else "database is locked"
        if outage.line_due(reason):
            lines.append((second, reason))
    assert [second for second, _ in lines] == [0, 1, 60, 61, 120, 121]
    assert outage.over() == 149 and outage.over() is None


def test_what_comes_and_goes_has_no_more_lines_than_what_stays_away():
    clock = Clock()
    outage, lines, backs = Outage(clock), 0, 0
    for _ in range(100):
        lines += outage.line_due("database is locked")
        clock.now += 1
        backs += outage.over() is not None
    assert lines == backs == 2


def test_a_wait_for_the_storage_says_so_by_the_minute(monkeypatch, caplog):
    clock = Clock()
    monkeypatch.setattr(storage_retry, "time", clock)

    def full():
        raise OSError(errno.ENOSPC, "No space left on device", "/x/a", None, "/y/b")

    with pytest.raises(StorageAway):
        patiently(full, "/y rejected b")
    lines = [record.message for record in caplog.records]
    assert lines[0] == ("/y rejected b: No space left on device: /y/b; trying again for 5 min")
    assert len(lines) == 5 and lines[1].endswith("trying again for 4 min")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.EACCES, "Permission denied", "/x"), "Permission denied: /x"),
        (RuntimeError("first\n  second"), "first"),
        (RuntimeError("\n (a) b"), "(a) b"),
        (
            RuntimeError("(sqlite3.OperationalError) database is locked\n(Back"),
            "database is locked",
        ),
        (KeyError(), "KeyError"),
        (RuntimeError("for https://me:hunter2@host"), "for https://[redacted]@host"),
    ],
)
def test_the_reason_is_one_line(error, reason):
    assert reason_of(error) == reason


def test_the_reason_is_what_the_system_said_first():
    try:
        try:
            raise ConnectionRefusedError(111, "Connection refused")
        except OSError as error:
            raise ValueError("Max retries exceeded with url /x?y=1") from error
    except ValueError as error:
        assert reason_of(error) == "Connection refused"
