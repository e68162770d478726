"""Real faults on a real cluster of three raylets: a killed process and a lost node. The trials are
made up: their processes run a fault, and then report an end."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from sweeps.engine.trial_task import End
from sweeps.plan.options import parse
from sweeps.ray_engine.cluster import OF_PROCESSES, Resources
from sweeps.store.trial_status import TrialStatus
from tests.chaos.victims import Machines
from tests.sweeps.conftest import follow

pytestmark = [pytest.mark.ray, pytest.mark.chaos]

END = End(TrialStatus.DIVERGED, reason="this stands for any end")
EIGHT = ("chunking.window=48", "chunking.stride=32", "--num-seeds", "4")  # 2 cells x 4 seeds


@pytest.fixture(scope="module")
def machines():
    """Two nodes of a core each."""
    import ray

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
        patch.setenv("RAY_memory_monitor_refresh_ms", "0")  # it would kill trials of a full machine
        for name, value in OF_PROCESSES.items():
            patch.setenv(name, value)
        with closing(Machines(2)) as machines:
            ray.init(address=machines.address, log_to_driver=False, logging_level="ERROR")
            yield machines
            ray.shutdown()


@pytest.fixture
def run(machines, records, plan_of, monkeypatch):
    """Runs eight trials whose processes call a function first: (the attempts that failed, the
    numbers of attempts, what was said)."""
    from sweeps.ray_engine import runner
    from sweeps.ray_engine.nodes import Nodes

    plan, slots = plan_of(*EIGHT), Resources(num_workers=1, cpus=1, gpus=0, threads=1, slots=2)

    def run(fault):
        end = END  # Ray sends the function by value, with what it closes over

        def pretend(config):
            from ray import tune

            fault(config["task"].name)
            tune.report({"report": end})

        monkeypatch.setattr(runner, "run_in_tune", pretend)
        events = follow(records, plan)
        options = parse([], prog="window_stride.py", description="")
        runner.run_on_slots(events, options, slots, Nodes())
        states = list(records.states(events.screen.statuses).values())
        text = events.screen.out.getvalue()
        assert [state.status for state in states] == ["diverged"] * 8, text
        lost = [attempt for state in states for attempt in state.attempts if attempt.lost]
        return lost, sorted(state.num_attempts for state in states), text

    return run


def first_of_all(path: str) -> bool:
    """True if nobody has asked before, in any process."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def wait_for(path: str) -> None:
    """Returns once a file exists."""
    while not os.path.exists(path):
        time.sleep(0.1)


def test_a_killed_process_costs_one_attempt(run, tmp_path):
    flag, first = str(tmp_path / "killed"), first_of_all

    def fault(name):
        if first(flag):
            os.kill(os.getpid(), signal.SIGKILL)

    [lost], attempts, text = run(fault)
    assert lost.kind == "process died" and lost.node
    assert attempts == [1] * 7 + [2]
    assert "process died, runs again" in text


@pytest.mark.long
def test_a_killed_process_of_a_busy_node_is_not_taken_for_a_lost_node(run, tmp_path, machines):
    killed, stopped = str(tmp_path / "killed"), str(tmp_path / "stopped")
    first, node = first_of_all, machines.nodes[1].node_id
    raylet = machines.nodes[1].all_processes["raylet"][0].process.pid

    def stop_the_raylet():
        wait_for(killed)
        os.kill(raylet, signal.SIGSTOP)
        first(stopped)
        time.sleep(3.0)  # by default Ray gives a death one second
        os.kill(raylet, signal.SIGCONT)

    def fault(name):
        import ray

        if ray.get_runtime_context().get_node_id() == node and first(killed):
            wait_for(stopped)
            os.kill(os.getpid(), signal.SIGKILL)
        wait_for(killed)

    with ThreadPoolExecutor() as pool:
        told = pool.submit(stop_the_raylet)
        [lost], attempts, _ = run(fault)
        told.result()
    assert lost.kind == "process died"
    assert attempts == [1] * 7 + [2]


@pytest.mark.long
def test_a_lost_node_costs_an_attempt_and_another_one_takes_over(run, tmp_path, machines):
    flag, first, node = str(tmp_path / "killed"), first_of_all, machines.nodes[0].node_id
    raylet = machines.nodes[0].all_processes["raylet"][0].process.pid

    def fault(name):
        import ray

        if ray.get_runtime_context().get_node_id() == node and first(flag):
            os.kill(raylet, signal.SIGKILL)
            signal.pause()
        wait_for(flag)  # else one quick process would take all the trials

    [lost], attempts, _ = run(fault)
    assert lost.kind == "node lost"
    assert attempts == [1] * 7 + [2]
