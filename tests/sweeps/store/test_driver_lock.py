"""Who drives a sweep."""

from filelock import FileLock

from sweeps.store.driver_lock import is_alive, lock_state, this_process


def test_a_lock_that_nobody_holds_is_no_driver(tmp_path):
    assert lock_state(tmp_path / ".driver.lock") == "gone"
    assert not (tmp_path / ".driver.lock").exists()
    lock = FileLock(tmp_path / ".driver.lock")
    with lock:
        assert lock_state(tmp_path / ".driver.lock") == "alive"
    assert lock_state(tmp_path / ".driver.lock") == "gone"


def test_a_reused_pid_is_not_mistaken_for_the_writer():
    me = this_process()
    assert is_alive(me)
    assert not is_alive(me | {"started": "1"})
    assert not is_alive(me | {"host": "elsewhere"})
