"""Real faults on a real cluster of three raylets; the trials are made up, and over in no time."""

import os
import signal
import time
from contextlib import closing

import pytest

from tests.chaos.pretend import kinds, once, statuses
from tests.chaos.victims import Machines

pytestmark = [pytest.mark.ray, pytest.mark.chaos]


@pytest.fixture(scope="module")
def machines():
    """Two nodes of a core each."""
    import ray

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
        patch.setenv("RAY_memory_monitor_refresh_ms", "0")  # another test's matter
        with closing(Machines(2)) as machines:
            ray.init(address=machines.address, log_to_driver=False, logging_level="ERROR")
            yield machines
            ray.shutdown()


@pytest.fixture
def run(machines, run_pretended):
    return run_pretended


def test_a_killed_process_costs_one_attempt(run, tmp_path):
    flag, first = str(tmp_path / "killed"), once

    def fault(name):
        if first(flag):
            os.kill(os.getpid(), signal.SIGKILL)

    table, text = run(fault)
    assert kinds(table) == ["process died"]
    assert all(a.node for state in table for a in state.attempts if a.lost)
    assert statuses(table) == (["diverged"] * 8, [1] * 7 + [2])
    assert "process died, runs again" in text


def test_a_lost_node_costs_an_attempt_and_another_one_takes_over(run, tmp_path, machines):
    flag, first = str(tmp_path / "killed"), once
    raylet, node = machines.raylets()[0], machines.nodes[0].node_id

    def fault(name):
        import ray

        if ray.get_runtime_context().get_node_id() == node and first(flag):
            os.kill(raylet, signal.SIGKILL)
            signal.pause()
        while not os.path.exists(flag):  # else one quick process would take all the trials
            time.sleep(0.1)

    table, _ = run(fault)
    assert kinds(table) == ["node lost"]
    assert statuses(table) == (["diverged"] * 8, [1] * 7 + [2])
    machines.cluster.remove_node(machines.nodes.pop(0), allow_graceful=False)
    machines.nodes.append(machines.cluster.add_node(num_cpus=1))
