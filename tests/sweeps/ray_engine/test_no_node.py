"""Where no node is left that can run a trial: this machine's Ray is started again, a cluster is
waited for, and neither is silent."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from ray.tune import TuneError

from sweeps.engine import EngineLost
from sweeps.engine import progress as progress_module
from sweeps.engine.trial_task import End
from sweeps.plan.options import parse
from sweeps.ray_engine import attempts as module
from sweeps.ray_engine import cluster, runner
from sweeps.ray_engine.attempts import CHECK_SECONDS, WAIT_SECONDS, WARN_SECONDS, NoNode
from sweeps.store.storage import StorageAway
from sweeps.store.trial_status import TrialStatus
from tests.sweeps.ray_engine.conftest import SLOTS, begin


@pytest.fixture
def clock(attempts, monkeypatch):
    """The clock of attempts and progress, in a list; no node can run a trial."""
    now = [1000.0]
    for used in (module, progress_module):
        monkeypatch.setattr(used, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(module, "can_run", lambda *needs: False)
    attempts.events.screen.last_line = attempts.events.screen.last_news = now[0]
    return now


def lines(attempts):
    """What was printed, lines that go on in the next one put together."""
    return attempts.events.screen.out.getvalue().replace("\n      ", " ").splitlines()


def test_a_cluster_without_nodes_is_waited_for_and_every_minute_says_so(
    attempts, clock, monkeypatch
):
    monkeypatch.setattr(module, "cluster_address", lambda: "auto")
    attempts.events.screen.heartbeat = lambda: None
    start = clock[0]
    with pytest.raises(NoNode, match="for 30 min no node"):
        while clock[0] <= start + WAIT_SECONDS:
            attempts.check()
            clock[0] += CHECK_SECONDS
    assert len(lines(attempts)) == WAIT_SECONDS / WARN_SECONDS - 1
    assert "waiting for a node that can run a trial: 1 min of 30 min" in lines(attempts)[0]


def test_a_sweep_whose_trials_report_nothing_still_speaks(attempts, clock, monkeypatch):
    monkeypatch.setattr(module, "can_run", lambda *needs: True)
    begin(attempts, "a")
    attempts.next("b")
    before = len(lines(attempts))
    for _ in range(50):
        clock[0] += 2
        attempts.check()
    told = lines(attempts)[before:]
    assert len(told) == 3
    assert "starting" in told[-1] and "waiting for a process" in told[-1]
    assert "no reports for 1 min 30 s" in told[-1]


@pytest.fixture
def broken(attempts, monkeypatch):
    """Runs the sweep of the attempts on a Ray that dies so often; how often it was started again.
    `ends` says before which deaths a trial has ended."""
    started = []
    monkeypatch.setattr(runner, "Attempts", lambda *args: attempts)
    monkeypatch.setattr(runner, "connect", lambda num_workers, code: started.append(num_workers))
    monkeypatch.setattr(runner, "disconnect", lambda **keeping: None)
    monkeypatch.setattr(runner, "cluster_address", lambda: None)

    def run(deaths, ends=()):
        number = iter(range(1, deaths + 1))

        def one(*args):
            death = next(number, None)
            if death in ends:
                begin(attempts, str(death))
                attempts.reported(str(death), End(TrialStatus.DIVERGED, reason="x"))
                attempts.completed(str(death))
            return None if death is None else NoNode("Ray has died on this machine")

        monkeypatch.setattr(runner, "_run", one)
        options = parse([], prog="window_stride.py", description="")
        runner.run_on_slots(attempts.events, options, SLOTS, attempts.nodes)
        return len(started)

    return run


def test_ray_is_started_again_as_long_as_trials_end(broken, attempts):
    assert broken(3, ends=(2, 3)) == 3


def test_a_ray_that_dies_again_at_once_ends_the_sweep_with_a_sentence(broken):
    with pytest.raises(EngineLost, match="died on this machine again, and no trial has ended"):
        broken(2)


def test_a_breakdown_of_tune_is_said_and_is_no_death_of_ray(broken, attempts, monkeypatch):
    ends = iter([RuntimeError("no placement group"), NoNode("Ray has died"), None])
    broken(0)  # in place of what ends a Tuner there
    attempts.interrupt = lambda error: None
    monkeypatch.setattr(runner, "_run", lambda *args: next(ends))
    options = parse([], prog="window_stride.py", description="")
    runner.run_on_slots(attempts.events, options, SLOTS, attempts.nodes)
    tune, ray = lines(attempts)
    assert "Ray Tune broke down (RuntimeError: no placement group)" in tune
    assert "Ray has died: restarting it" in ray


def test_a_storage_that_stays_away_ends_the_sweep_though_tune_makes_a_text_of_it(
    attempts, monkeypatch
):
    class Tuner:
        def __init__(self, *args, run_config, **options):
            [self.bridge] = run_config.callbacks

        def fit(self):
            try:
                self.bridge.on_step_end(0, [])
            except Exception as error:
                raise TuneError(f"Traceback: {error}") from None

    def check():
        raise StorageAway("/results: no space") from OSError("no space")

    attempts.check = check
    monkeypatch.setattr(runner, "Attempts", lambda *args: attempts)
    monkeypatch.setattr(runner.tune, "Tuner", Tuner)
    options = parse([], prog="window_stride.py", description="")
    with pytest.raises(StorageAway, match=r"^/results: no space$"):
        runner.run_on_slots(attempts.events, options, SLOTS, attempts.nodes)


def test_a_busy_machines_own_ray_is_given_time(monkeypatch, tmp_path):
    """More than its own checks, and than a cluster's GCS has, which dies unseen."""
    environment: dict[str, str] = {}
    monkeypatch.setattr(cluster.os, "environ", environment)
    monkeypatch.setattr(cluster, "ray_folder", lambda: tmp_path)
    monkeypatch.setattr(cluster, "_own_folders", [])
    monkeypatch.setattr(cluster.ray, "init", lambda **options: None)
    cluster._start_ray()
    assert int(environment["RAY_health_check_failure_threshold"]) * 10 >= 600
    for address, known in ((None, False), ("10.0.0.1:6379", True)):
        monkeypatch.setattr(runner, "cluster_address", lambda address=address: address)
        probe = runner._Probe()
        probe._asked, probe._answered = runner.time.monotonic() - 60.0, False
        assert bool(probe.silence()) is known


def test_a_ray_that_does_not_start_again_ends_the_sweep_with_a_sentence(broken, monkeypatch):
    def refused(num_workers, code):
        raise ConnectionError("no memory")

    monkeypatch.setattr(runner, "connect", refused)
    with pytest.raises(EngineLost, match=r"does not start again: ConnectionError: no memory"):
        broken(1)


def test_a_cluster_that_stays_away_ends_the_sweep(broken, monkeypatch):
    monkeypatch.setattr(runner, "cluster_address", lambda: "auto")
    with pytest.raises(EngineLost, match="Ray has died"):
        broken(1)


def test_the_actor_of_wishes_is_started_once_for_each_ray(broken, attempts, monkeypatch):
    """A second handle would not keep it, and the first one would be dropped."""
    ended = iter([RuntimeError("no placement group"), NoNode("Ray has died"), None])
    started, run = [], runner._run
    monkeypatch.setattr(runner, "start_wishes", lambda: started.append(True) or "wishes")
    monkeypatch.setattr(runner, "free_groups", lambda of_dead: 0)
    monkeypatch.setattr(runner, "_until_lost", lambda work, turn: None)
    broken(0)  # in place of what ends a Tuner there
    numbers = []

    def one(*args):
        run(*args)
        numbers.append(len(started))
        return next(ended)

    monkeypatch.setattr(runner, "_run", one)
    options = parse([], prog="window_stride.py", description="")
    elastic = replace(SLOTS, num_workers=2, min_workers=1)
    runner.run_on_slots(attempts.events, options, elastic, attempts.nodes)
    assert numbers == [1, 1, 2]
