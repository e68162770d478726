"""Ray's own memory monitor kills a trial's process, which ends Tune, and the sweep goes on."""

import mmap
import time

import pytest

from tests.chaos.pretend import kinds, once, statuses

MARGIN = 0.4  # of the memory that is free now: the monitor strikes when so much more is used
LEAST = 8 * 2**30  # bytes that must be free: other processes use more or less meanwhile
STEP = 2**28  # bytes that the hog takes at once

pytestmark = [pytest.mark.ray, pytest.mark.chaos, pytest.mark.long]


@pytest.fixture
def ray_with_monitor(monkeypatch):
    """Ray on two cores, whose monitor strikes long before the memory is full; the bytes that a hog
    may take at most."""
    import ray
    from ray._common.utils import get_system_memory
    from ray._private.utils import get_used_memory

    used, total = get_used_memory(), get_system_memory()
    if total - used < LEAST:
        pytest.skip("needs 8 GiB of free memory")
    margin = MARGIN * (total - used)
    share = (used + margin) / total
    monkeypatch.setenv("RAY_memory_usage_threshold", f"{share:.4f}")
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "100")
    monkeypatch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    ray.init(
        address="local",
        num_cpus=2,
        object_store_memory=80 * 2**20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    yield int(1.5 * margin)
    ray.shutdown()


def test_a_trial_that_fills_the_memory_is_killed_and_the_sweep_goes_on(
    ray_with_monitor, run_pretended, tmp_path
):
    flag, first, step, most = str(tmp_path / "hog"), once, STEP, ray_with_monitor

    def fault(name):
        if not first(flag):
            return
        hoard = []
        for _ in range(most // step):
            hoard.append(mmap.mmap(-1, step))
            hoard[-1].write(b"x" * step)
            time.sleep(0.05)
        time.sleep(30)

    table, text = run_pretended(fault)
    assert set(kinds(table)) == {"host memory"}
    status, attempts = statuses(table)
    assert status == ["diverged"] * 8 and max(attempts) > 1
    assert "host memory, runs again" in text
    assert "out of memory: 1 trial at a time from now on" in text
