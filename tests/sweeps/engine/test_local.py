"""The local engine: one trial after the other, by the same rules as on a cluster."""

import signal
import time

import pytest
import torch

from rank_core.checkpoints.checkpoint import Leave, Saved
from rank_core.errors import BadInput
from rank_core.trial.trial import Progress
from sweeps.engine import EngineLost, local
from sweeps.engine.trial_task import End, Leaves, end_of
from sweeps.plan.options import parse
from sweeps.search.search import Listed
from sweeps.store.storage import StorageAway
from sweeps.store.trial_status import TrialStatus
from tests.sweeps.conftest import follow

SMALL = ("chunking.window=48", "chunking.stride=32", "--num-seeds", "2")  # 2 cells x 2 seeds


@pytest.fixture
def run(plan_of, records, monkeypatch):
    """Runs four trials whose attempts are made up: `attempt(task, notice)` yields what they
    report."""

    def run(attempt, feed=Listed, words=()):
        monkeypatch.setattr(local, "attempt", attempt)
        events = follow(records, plan_of(*SMALL), feed)
        local.run_trials(events, parse(words, prog="window_stride.py", description=""))
        return events

    return run


def test_all_trials_run_in_their_order_with_the_threads_that_were_asked_for(run):
    tasks = []

    def attempt(task, notice):
        tasks.append(task)
        yield End(TrialStatus.DIVERGED, reason="this stands for any end")

    events = run(attempt, words=["--checkpoint-minutes", "7"])
    names = [trial.name for trial in events.search.plan.trials()]
    assert [task.name for task in tasks] == names == list(events.screen.statuses)
    assert {(task.threads, task.cadence.minutes) for task in tasks} == {(1, 7.0)}
    assert events.search.over and set(events.screen.statuses.values()) == {"diverged"}


def test_a_trial_that_raises_has_failed_with_its_traceback_and_the_others_run(run):
    def attempt(task, notice):
        try:
            raise ValueError("planted") if task.name.endswith("seed1") else BadInput("refused")
        except Exception as error:
            yield end_of(error)

    events = run(attempt)
    assert list(events.screen.statuses.values()) == ["failed"] * 4
    states = events.records.states(events.screen.statuses).values()
    assert [attempt.again for state in states for attempt in state.attempts] == [False] * 4
    folder = events.records.folder / "failures"
    assert len(list(folder.iterdir())) == 2, "bad input has no traceback"
    first = events.search.plan.cells[0].cell
    assert 'raise ValueError("planted")' in (folder / f"{first}-seed1.txt").read_text()


def test_no_trial_follows_one_that_has_waited_in_vain_for_the_storage(run):
    attempts = []

    def attempt(task, notice):
        attempts.append(task.name)
        yield end_of(StorageAway("/disk/r: trials/x cannot be written: No space left on device"))

    with pytest.raises(StorageAway, match=r"^/disk/r: .* No space left"):
        run(attempt)
    assert len(attempts) == 1


def test_no_trial_follows_in_a_process_whose_gpu_broke(run, monkeypatch):
    attempts = []

    def attempt(task, notice):
        attempts.append(task.name)
        yield end_of(RuntimeError("CUDA error: device-side assert triggered\nCompile with DSA"))

    with pytest.raises(EngineLost, match=r"is lost for this process \(RuntimeError: CUDA"):
        run(attempt)
    assert len(attempts) == 1


def test_an_interrupt_reaches_the_driver_and_the_attempt_is_cleared_up(run):
    closed = []

    def attempt(task, notice):
        try:
            yield Progress(1, 9, (), None)
            raise KeyboardInterrupt
        finally:
            closed.append(task.name)

    with pytest.raises(KeyboardInterrupt):
        run(attempt)
    assert len(closed) == 1


@pytest.fixture
def heeded_sigterm():
    """As in a command."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
    signal.signal(signal.SIGTERM, before)


def test_sigterm_lets_a_trial_save_its_state_before_it_interrupts(run, heeded_sigterm, capsys):
    noticed = []

    def attempt(task, notice):
        assert not notice()
        signal.raise_signal(signal.SIGTERM)
        noticed.append(notice())
        yield Progress(7, 9, (), None)
        yield end_of(Leaves(Leave(wished=False, state=Saved((0, 7), 0.0))))

    with pytest.raises(KeyboardInterrupt):
        run(attempt)
    assert noticed == [True] and "checkpoint of step 7" in capsys.readouterr().out


@pytest.mark.parametrize("signals", [1, 2])
def test_a_trial_that_saves_nothing_is_interrupted_soon(run, heeded_sigterm, monkeypatch, signals):
    monkeypatch.setattr(local, "NOTICE_SECONDS", 0.05 if signals == 1 else 60.0)

    def attempt(task, notice):
        for _ in range(signals):
            signal.raise_signal(signal.SIGTERM)
        time.sleep(50)
        yield end_of(ValueError("never"))

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(attempt)
    assert time.monotonic() - begun < 40


def test_no_trial_follows_after_sigterm(run, heeded_sigterm):
    attempts = []

    def attempt(task, notice):
        attempts.append(task.name)
        signal.raise_signal(signal.SIGTERM)
        yield End(TrialStatus.DIVERGED, reason="it ended before its next checkpoint")

    with pytest.raises(KeyboardInterrupt):
        run(attempt)
    assert len(attempts) == 1


@pytest.mark.parametrize("words", [["--cpus-per-worker", "4096"], ["--gpus-per-worker", "1"]])
def test_what_this_machine_does_not_have_is_refused(run, words, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(BadInput, match=r"this machine has \d+ CPU and \d+ GPU"):
        run(lambda *what: pytest.fail("it was run"), words=words)
