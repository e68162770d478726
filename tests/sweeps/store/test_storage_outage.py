"""A driver whose storage goes away for a while: it waits, goes on, and no record is lost."""

import json
import os
import threading
import time
from contextlib import contextmanager

import pytest

from rank_core.errors import BadInput
from sweeps.search import proposing
from sweeps.search.search import make_search
from sweeps.store import storage_retry as patience
from sweeps.store.plan_description import manifest
from sweeps.store.rungs import Rung, leave_rung
from sweeps.store.storage_retry import StorageAway
from sweeps.store.trial_events import read_lines, read_progress
from sweeps.store.trial_store import Store
from sweeps.store.trial_table import TrialTable

AWAY_SECONDS = 0.15


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(patience, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(patience, "WAIT_SECONDS", 5.0)


@pytest.fixture
def share(tmp_path):
    """A folder that can go away, as a mount does: at its path there is no folder then."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "share").symlink_to("disk")
    return tmp_path / "share"


@contextmanager
def away(share, seconds=AWAY_SECONDS, noticed=lambda: True):
    """Takes it away at once, and brings it back once somebody has noticed, after some time."""
    folder = share.with_name("disk")
    share.unlink()

    def bring_back():
        give_up = time.monotonic() + 300
        while not noticed() and time.monotonic() < give_up:
            time.sleep(0.01)
        time.sleep(seconds)
        share.symlink_to(folder.name)

    thread = threading.Thread(target=bring_back)
    thread.start()
    yield
    thread.join()


@pytest.fixture
def follows(share, plan_of):
    """A driver over the share, with its first trial."""
    store = Store(str(share), "window_stride")
    store.open()
    table = TrialTable(store)
    return table, table.plan(plan_of(), store.finished())[0]


def kinds(table):
    return [type(line.event).__name__ for line in read_lines(table.log.path)]


def news(step):
    return {"step": step, "num_steps": 9, "curve": [], "dev": None}


def test_events_of_an_outage_are_there_once_and_in_order(share, follows, caplog):
    table, trial = follows
    table.started(trial)
    start = time.monotonic()
    with away(share):
        for step in range(3):
            table.reported(trial, news(step))
        table.lost(trial, "failed", "x")
    assert time.monotonic() - start >= AWAY_SECONDS
    assert kinds(table) == ["AttemptStarted", "TrialEnded"]
    assert [report.step for report in read_progress(table.store)] == [0, 1, 2]
    assert "the storage is back" in caplog.text


def test_a_log_that_cannot_be_read_is_not_taken_for_an_empty_one(share, follows):
    table, trial = follows
    table.started(trial)
    with away(share):
        again = TrialTable(table.store)  # of a driver that goes on
    with away(share):
        assert again.started(trial) == 2


def test_what_was_written_before_the_error_is_not_written_again(follows, monkeypatch):
    table, trial = follows
    table.started(trial)
    sync, calls = os.fsync, []

    def fails_once(handle):
        calls.append(handle)
        if len(calls) == 1:
            raise OSError("stale file handle")
        sync(handle)

    monkeypatch.setattr(os, "fsync", fails_once)
    table.lost(trial, "failed", "x")
    assert len(calls) == 2
    assert kinds(table) == ["AttemptStarted", "TrialEnded"]


def test_a_folder_that_stays_away_ends_the_wait(share, follows, monkeypatch):
    monkeypatch.setattr(patience, "WAIT_SECONDS", 0.05)
    table, trial = follows
    table.started(trial)
    with away(share, seconds=0.3), pytest.raises(StorageAway, match="rejected a record"):
        table.reported(trial, news(1))
    table.reported(trial, news(2))
    assert [report.step for report in read_progress(table.store)] == [1, 2], "nothing is lost"


def test_a_result_is_taken_over_that_can_be_read_only_later(share, follows, leave_result):
    table, trial = follows
    leave_result(table.store, trial.name)
    with away(share):
        table.started(trial)
    with away(share):
        table.finished(trial)
    assert TrialTable(table.store).status(trial) == "done"


SIX = ("chunking.window=16,24,32", "chunking.stride=8,16")
SEARCHES = {
    "grid": (),
    "race": ("--search", "race", "--num-seeds", "3", *SIX),
    "tpe": ("--search", "tpe", "--num-configs", "5", "--num-seeds", "1", *SIX),
    "halving": ("--search", "halving", "training.num_epochs=9", *SIX),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_that_cannot_read_or_write_decides_later(
    name, share, plan_of, leave_result, caplog
):
    plan, store = plan_of(*SEARCHES[name]), Store(str(share), "window_stride")
    store.open()
    path = share.with_name("disk") / "window_stride" / "sweep.json"
    manifest(plan, []).write(path.parent)
    search = make_search(plan, lambda trial: None, store)
    for _ in range(4):
        trial = search.next()
        end = "stopped" if trial.epochs else "done"
        if trial.epochs:
            leave_rung(store, trial.name, Rung(trial.epochs, 9, 2, 18, "nDCG@10", 0.5))
        else:
            leave_result(store, trial.name)
        caplog.clear()
        with away(share, seconds=0.0, noticed=lambda: "trying again" in caplog.text):
            search.ended(trial, end)
        assert "the storage is back" in caplog.text
        assert json.loads(path.read_text())["search"] == json.loads(json.dumps(search.described()))
        assert search.status(trial) == end


def test_a_proposal_is_kept_before_it_is_launched_however_long_that_takes(
    share, plan_of, monkeypatch
):
    plan, store = plan_of(*SEARCHES["tpe"]), Store(str(share), "window_stride")
    store.open()
    write, calls = proposing.write_json, []

    def fails_once(*args):
        calls.append(args)
        if len(calls) == 1:
            raise OSError("stale file handle")
        write(*args)

    monkeypatch.setattr(proposing, "write_json", fails_once)
    search = make_search(plan, lambda trial: None, store)
    wanted = {trial.cell.cell for trial in search.decision.wanted}
    [path] = (share / "window_stride").glob("search-*.json")
    kept = {one["cell"] for one in json.loads(path.read_text())["proposals"]}
    assert len(kept) == 4 and kept < wanted
    path.write_text("[")
    with pytest.raises(BadInput, match=rf"{path} must hold the proposals of this search"):
        make_search(plan, lambda trial: None, store)
