"""What the uploader says of an unavailable store."""

import sqlite3

import pytest
from filelock import FileLock

from sweeps.store.outage import Outage
from sweeps.tracking.uploader import Uploader
from tests.sweeps.made_log import MadeLog


class Tried:
    """An uploader whose passes are made here, one after the other, at times of ours."""

    def __init__(self, folder, uri):
        MadeLog(folder).whole("c-seed1")
        self.uploader, self.now = Uploader(folder, uri, "rank/ws"), 0.0
        self.uploader._outage = Outage(lambda: self.now)
        self.lock = FileLock(folder / "lock")

    def __call__(self, *seconds):
        """What the passes at these times came to."""
        results = []
        for self.now in seconds:
            results.append(self.uploader._try(self.lock))
        return results


@pytest.fixture
def lines(caplog, capfd):
    """All that was written by whatever logger, a line each."""

    def written():
        out, err = capfd.readouterr()
        return [line for record in caplog.records for line in record.message.splitlines()] + [
            line for line in (out + err).splitlines() if "sweeps.tracking" not in line
        ]

    return written


def test_a_locked_database_has_a_line_a_minute(uri, tmp_path, lines):
    tried = Tried(tmp_path / "s", f"{uri}?timeout=0.01")
    holder = sqlite3.connect(tmp_path / "mlflow.db")
    holder.execute("BEGIN EXCLUSIVE")
    assert tried(0, 1, 2, 59, 61) == [None] * 5
    assert tried.uploader.trouble == "database is locked"
    said = lines()
    assert len(said) == 2, said
    assert "is unavailable now (database is locked). Nothing is lost" in said[0]
    assert "is unavailable for 1 min 1 s (database is locked)" in said[1]
    holder.rollback()
    holder.close()
    assert tried(70)[0] is not None and tried.uploader.trouble == ""
    assert lines()[2:] == [f"MLflow at {uri}?timeout=0.01 is back after 1 min 10 s"]


def test_a_full_disk_is_said_once_by_its_own_name(uri, tmp_path, lines, monkeypatch):
    tried = Tried(tmp_path / "s", uri)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sweeps.tracking.uploader.ensure_experiment", full)
    assert tried(*range(20)) == [None] * 20
    [line] = lines()
    assert "is unavailable now (No space left on device)" in line


def test_an_unreachable_server_is_said_in_a_line(tmp_path, lines):
    tried = Tried(tmp_path / "s", "http://127.0.0.1:9")
    assert tried(0, 1, 2) == [None] * 3
    [line] = lines()
    assert "MLflow at http://127.0.0.1:9 is unavailable now (Connection refused)" in line


def test_why_a_database_cannot_be_made_is_said_at_once(tmp_path, lines):
    tried = Tried(tmp_path / "s", "sqlite:////proc/x.db")
    assert tried(0) == [None]
    [line] = lines()
    assert "(No such file or directory: /proc/x.db.lock)" in line


def test_refusals_of_one_kind_have_one_line(uri, tmp_path, lines, monkeypatch):
    log = MadeLog(tmp_path / "s")
    tried = Tried(tmp_path / "s", uri)
    for seed in range(2, 12):
        log.whole(f"c-seed{seed}", steps=1)

    def refuse(*_, **__):
        raise ValueError("no such thing\nand more")

    monkeypatch.setattr("sweeps.tracking.mlflow_writer.RunWriter.find_or_create", refuse)
    tried(*range(8))
    [line] = lines()
    assert "MLflow rejects run of c-seed1: no such thing; kept in" in line
    assert (tmp_path / "s" / "mlflow" / "refused.jsonl").read_text().count("no such thing") >= 11
