"""Who drives a sweep: one command at a time, wherever it runs."""

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import asdict, replace
from datetime import timedelta

import pytest

from rank_core.errors import BadInput
from sweeps.store import driver_lock
from sweeps.store.driver_lock import (
    LEASE,
    STALE_SECONDS,
    Lease,
    is_alive,
    living_driver,
    only_driver,
    read_lease,
    this_process,
)
from sweeps.store.trial_store import Store

ELSEWHERE = Lease("1" * 32, "node7", 4242, "99", "ada", 1_700_000_000.0, "/cache/mirror")


@pytest.fixture(params=["folder", "memory"])
def store(request, tmp_path, monkeypatch):
    monkeypatch.setattr(driver_lock, "SETTLE_SECONDS", 0.0)
    storage = str(tmp_path / "s") if request.param == "folder" else f"memory://{uuid.uuid4().hex}"
    store = Store(storage, "ws")
    store.open()
    return store


def leave(store, lease, age=0.0):
    """The lease as a driver left it that refreshed it `age` seconds ago, by the storage's clock."""
    path = f"{store.root}/{LEASE}"
    store.fs.pipe_file(path, json.dumps(asdict(lease)).encode())
    if store.is_local:
        os.utime(path, (time.time() - age,) * 2)
    else:
        store.fs.store[path].modified -= timedelta(seconds=age)


def test_one_command_drives_and_leaves_nothing_behind(store):
    with only_driver(store):
        mine = read_lease(store)
        assert (mine.host, mine.pid) == (this_process()["host"], os.getpid())
        assert living_driver(store) == mine
        with pytest.raises(BadInput, match=r"one command at a time.*is driven by process") as told:
            with only_driver(Store(store.storage, "ws")):
                pytest.fail("two drivers")
        assert str(os.getpid()) in str(told.value) and mine.host in str(told.value)
        assert store.uri in str(told.value)
    assert living_driver(store) is None and store.fs.ls(store.root) == []


def test_the_lease_is_released_where_the_command_ends_by_an_interrupt(store):
    with pytest.raises(KeyboardInterrupt), only_driver(store):
        raise KeyboardInterrupt
    assert read_lease(store) is None


def test_a_driver_of_another_machine_is_named_and_left_in_peace(store):
    leave(store, ELSEWHERE, age=STALE_SECONDS - 30)
    with pytest.raises(BadInput, match="process 4242 of ada on node7, since 2023-11-1"):
        with only_driver(store):
            pytest.fail("two drivers")
    assert living_driver(store) == ELSEWHERE and read_lease(store) == ELSEWHERE


def test_a_lease_that_nobody_refreshed_for_long_is_taken_over(store):
    leave(store, ELSEWHERE, age=STALE_SECONDS + 30)
    assert living_driver(store) is None
    with only_driver(store):
        assert read_lease(store).pid == os.getpid()


def test_a_killed_driver_of_this_machine_is_followed_at_once(store):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = driver_lock._started(child.pid)
    killed = replace(ELSEWHERE, host=this_process()["host"], pid=child.pid, started=started)
    leave(store, killed)
    assert living_driver(store) == killed
    child.kill()
    child.wait()
    assert living_driver(store) is None
    with only_driver(store):
        assert read_lease(store).pid == os.getpid()


def test_of_two_that_take_over_at_once_one_drives(store, monkeypatch):
    leave(store, ELSEWHERE, age=STALE_SECONDS + 30)
    other = replace(ELSEWHERE, token="2" * 32, host="node8")
    monkeypatch.setattr(driver_lock.time, "sleep", lambda seconds: leave(store, other))
    with pytest.raises(BadInput, match="node8"), only_driver(store):
        pytest.fail("two drivers")
    assert read_lease(store) == other


def test_of_two_that_begin_at_once_one_drives(store, monkeypatch):
    read = driver_lock.read_lease
    leave(store, ELSEWHERE)
    monkeypatch.setattr(driver_lock, "read_lease", _first_none(read))
    with pytest.raises(BadInput, match="node7"), only_driver(store):
        pytest.fail("two drivers")
    assert read(store) == ELSEWHERE


def _first_none(read):
    seen = []

    def faked(store):
        seen.append(store)
        return None if len(seen) == 1 else read(store)

    return faked


def test_a_driver_refreshes_its_lease(store, monkeypatch):
    monkeypatch.setattr(driver_lock, "REFRESH_SECONDS", 0.01)
    with only_driver(store):
        mine = read_lease(store)
        leave(store, mine, age=3 * STALE_SECONDS)
        deadline = time.monotonic() + 60
        while driver_lock._is_stale(store, replace(mine, host="node7")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert read_lease(store) == mine


def test_a_driver_whose_place_was_taken_ends_and_touches_nothing(store, monkeypatch):
    monkeypatch.setattr(driver_lock, "REFRESH_SECONDS", 0.0)
    leave(store, ELSEWHERE)
    told = []
    mine = replace(ELSEWHERE, token="2" * 32)
    driver_lock._refresh(store, mine, threading.Event(), lambda *found: told.append(found))
    assert told == [(store, ELSEWHERE)] and read_lease(store) == ELSEWHERE


def test_a_released_lease_that_is_anothers_stays(store):
    with only_driver(store):
        leave(store, ELSEWHERE)
    assert read_lease(store) == ELSEWHERE


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": "x"}'])
def test_a_lease_that_says_nothing_is_somebodys_until_it_is_old(store, content):
    store.fs.pipe_file(f"{store.root}/{LEASE}", content)
    with pytest.raises(BadInput, match="somebody"), only_driver(store):
        pytest.fail("two drivers")


def test_a_reused_pid_is_not_mistaken_for_the_writer():
    me = this_process()
    assert is_alive(me)
    assert not is_alive(me | {"started": "1"})
    assert not is_alive(me | {"host": "elsewhere"})
