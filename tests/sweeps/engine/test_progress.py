"""What a sweep says and keeps while it runs."""

import itertools
import json
from dataclasses import replace

import pytest

import sweeps.engine.progress
from rank_core.training.train import CurvePoint
from rank_core.trial.trial import Progress, TrialResult
from sweeps.engine.cell_table import TrialNow, cell_lines
from sweeps.engine.trial_task import End
from sweeps.plan.terminal import duration
from sweeps.store.failures import Failure
from sweeps.store.trial_events import EVENTS, read_lines, read_progress
from sweeps.store.trial_status import TrialStatus
from sweeps.store.trial_table import TrialTable
from tests.sweeps.conftest import follow

SMALL = ("chunking.window=48", "chunking.stride=32", "--num-seeds", "1")  # FirstP and MaxP
VALUES = {"nDCG@10": 0.25, "RR@10": 0.5}


@pytest.fixture
def monitor(store, plan_of):
    """Who follows two trials, of costs 100 and 200."""
    plan = plan_of(*SMALL)
    cells = [replace(cell, cost=100.0 * (1 + i)) for i, cell in enumerate(plan.cells)]
    return follow(store, replace(plan, cells=tuple(cells)))


@pytest.fixture
def trials(monitor):
    return monitor.feed.ahead


@pytest.fixture
def ends(store, trials, monitor, leave_result):
    """Ends a trial as its process does: result in the store, then the last report."""

    def end(number: int, status: str = "done") -> None:
        name = trials[number].name
        if name not in store.finished():
            leave_result(store, name, status=status)
        result = json.loads((store.folder / "runs" / name / "result.json").read_text())
        result |= {"dev": VALUES, "test": VALUES, "best_step": 2, "versions": {"torch": "2"}}
        (store.folder / "runs" / name / "result.json").write_text(json.dumps(result))
        monitor.finished(trials[number], End(TrialStatus(status), TrialResult(**result)))

    return end


def running(step, dev=None):
    point = CurvePoint(step, seconds=0.0, loss=1.0, learning_rate=1e-3, gradient_norm=2.0)
    return Progress(step, 9, (point,), dev)


def events(store, trial):
    """What the log has of a trial."""
    lines = read_lines(store.folder / EVENTS)
    return [line.event for line in lines if getattr(line.event, "trial", "") == trial.name]


def kinds(store, trial):
    return [type(event).__name__ for event in events(store, trial)]


def test_a_trial_is_followed_from_start_to_end(store, trials, monitor, ends):
    monitor.started(trials[0])
    monitor.news(trials[0], running(1))
    monitor.news(trials[0], running(2, dev=VALUES))
    ends(0)
    assert monitor.table.status(trials[0]) == "done"
    assert kinds(store, trials[0]) == ["AttemptStarted", "TrialEnded"]
    assert [report.step for report in read_progress(store)] == [1, 2]
    assert events(store, trials[0])[-1].result["train_seconds"] == 2.0
    [line] = monitor.out.getvalue().splitlines()
    assert line.startswith("[1/2] FirstP 96 seed 1")
    assert "dev nDCG@10 0.250  3 s" in line and "left)" in line


def test_the_last_line_promises_no_more_time(monitor, ends):
    for number in range(2):
        monitor.started(monitor.feed.next())
        ends(number)
    assert "[2/2]" in monitor.out.getvalue()
    assert monitor.out.getvalue().count("left)") == 1


def test_the_time_left_goes_by_cost_and_not_by_number(monitor, ends):
    monitor.started(monitor.feed.next())
    ends(0)  # 3 s for a cost of 100, and 200 are to come
    assert "about 6 s left" in monitor.out.getvalue()


def test_a_collapsed_trial_is_loud_but_no_failure(trials, monitor, ends):
    monitor.started(trials[0])
    ends(0, status="collapsed")
    assert "COLLAPSED" in monitor.out.getvalue() and "failed" not in monitor.out.getvalue()
    assert monitor.table.status(trials[0]) == "collapsed"


@pytest.mark.parametrize("status", ["failed", "diverged"])
def test_a_lost_trial_is_named_with_the_first_line_of_its_reason(store, trials, monitor, status):
    trial = trials[1]
    monitor.started(trial)
    end = End(TrialStatus(status), reason="the reason\nmore", traceback="File x, line 1")
    monitor.finished(trial, end)
    [line] = monitor.out.getvalue().splitlines()
    assert line.startswith("[1/2, 1 failed] MaxP 48/32 seed 1")
    assert f"{status.upper()}: the reason" in line
    assert monitor.table.status(trial) == status
    assert (store.folder / "failures" / f"{trial.name}.txt").read_text() == "File x, line 1"
    assert events(store, trial)[-1].status == status


def test_an_attempt_that_failed_is_told_with_its_kind_and_is_not_the_trials_end(trials, monitor):
    monitor.started(trials[0])
    monitor.failed(trials[0], Failure("node lost", "its node has died"), again=True)
    [line] = monitor.out.getvalue().splitlines()
    assert line.startswith("[0/2] FirstP 96 seed 1") and "left)" not in line
    assert line.endswith("node lost, runs again: its node has died")
    assert monitor.table.status(trials[0]) == "running"


def test_an_attempt_that_was_the_last_one_fails_the_trial(store, trials, monitor):
    monitor.started(monitor.feed.next())
    monitor.failed(trials[0], Failure("process died", "it is gone"), again=False)
    assert monitor.table.status(trials[0]) == "failed"
    assert monitor.table.state.trials[trials[0].name].reason == "it is gone"
    assert "[1/2, 1 failed]" in monitor.out.getvalue()


def test_a_second_attempt_is_said(trials, monitor):
    for _ in range(2):
        monitor.started(trials[0])
    assert " FirstP 96 seed 1             attempt 2\n" in monitor.out.getvalue()


LABELS = (
    "FirstP 96",
    "PARADE-Transformer (pretrained) 477/477, selector bm25",
    "training.backbone_learning_rate=0.00030000000000000003 training.head_learning_rate=0.001",
    "a/very/long/folder/of/a/backbone/without/a/single/space/in/its/name/at/all/checkpoint-120000",
)
MEASURES = ("nDCG@10", "nDCG(dcg='exp-log2',judged_only=True)@100")


@pytest.mark.parametrize("columns", [80, 160])
def test_no_line_is_wider_than_the_terminal(store, plan_of, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    plan = plan_of(*SMALL[:2], "--seeds", "1,123456")
    facts = dict.fromkeys(TrialResult.__dataclass_fields__, 0) | {"eval_seconds": 1.0}
    for label, measure in itertools.product(LABELS, MEASURES):
        cells = [replace(cell, cost=1e4, label=label) for cell in plan.cells]
        monitor = follow(store, replace(plan, cells=tuple(cells)))
        monitor.primary, monitor.table.finished = measure, lambda trial: None
        trials = monitor.feed.ahead
        for trial in trials:
            monitor.started(trial)
            monitor.news(trial, running(3))
        monitor.last_line -= 3600
        monitor.heartbeat()
        monitor.failed(trials[0], Failure("node lost", "its node " + "has died " * 30), again=True)
        monitor.started(trials[0])
        for seconds, trial in zip((2.0, 5.0, 123456.0), trials[1:], strict=True):
            result = TrialResult(**facts | {"train_seconds": seconds, "dev": {measure: 0.25}})
            monitor.finished(trial, End(TrialStatus.COLLAPSED, result))
        monitor.failed(trials[0], Failure("error", "no " * 60), again=False)
        lines = monitor.out.getvalue().splitlines()
        assert max(map(len, lines)) <= columns
        assert sum("COLLAPSED" in line for line in lines) == 3
        assert "left)" in monitor.out.getvalue()
        named = [line for line in lines if " dev " in line and line.startswith("[")]
        assert all(f"] {label[0]}" in line and " seed " in line for line in named)


def test_what_runs_when_the_driver_is_interrupted_counts_as_not_run(store, trials, monitor, ends):
    first, second = trials
    for trial in (first, second):
        monitor.started(trial)
    ends(0)
    monitor.interrupted()
    assert monitor.table.status(first) == "done"
    assert monitor.table.status(second) == "planned"
    assert [events(store, trial)[-1].status for trial in trials] == ["done", "planned"]


@pytest.mark.parametrize("written", [False, True])
def test_an_interrupt_while_a_trial_begins_ends_like_any_other(
    store, trials, monitor, monkeypatch, written
):
    append = monitor.table.log.append

    def interrupt(*events, **options):
        if written:
            append(*events, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(monitor.table.log, "append", interrupt)
        monitor.started(trials[0])
    monitor.interrupted()
    assert monitor.table.status(trials[0]) == "planned"
    again = TrialTable(store)
    again.plan(monitor.feed.plan, set())
    assert again.status(trials[0]) == "planned"
    assert again.started(trials[0]) == 1 + written


def test_an_interrupt_as_a_result_is_taken_over_leaves_it_to_the_next_command(
    store, trials, monitor, monkeypatch, ends
):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monitor.started(trials[0])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(monitor.table, "finished", interrupt)
        ends(0)
    monitor.interrupted()
    assert trials[0].name in store.finished()
    assert monitor.table.status(trials[0]) == "running", "not planned: it is in the store"
    assert kinds(store, trials[0]) == ["AttemptStarted"]


def test_a_quiet_sweep_shows_now_and_then_that_it_lives(trials, monitor, monkeypatch):
    monitor.started(trials[0])
    monitor.news(trials[0], running(3))
    assert monitor.out.getvalue() == ""
    monkeypatch.setattr(sweeps.engine.progress, "HEARTBEAT_SECONDS", 0.0)
    monitor.news(trials[0], running(4))
    assert monitor.out.getvalue() == "[0/2] running: FirstP 96 seed 1 step 4/9\n"


def test_a_trial_that_rests_at_a_rung_counts_until_it_goes_on(store, trials, monitor, ends):
    monitor.started(replace(trials[0], epochs=1))
    reason = "after 1 of 9 epochs, dev nDCG@10 0.250"
    monitor.finished(trials[0], End(TrialStatus.STOPPED, reason=reason))
    out = monitor.out.getvalue()
    assert out.startswith("[1/2] FirstP 96 seed 1") and f"pauses {reason}" in out
    assert monitor.ended == {trials[0].name: "stopped"}
    assert monitor.table.state.trials[trials[0].name].reason == reason
    assert events(store, trials[0])[-1].status == "stopped"
    monitor.started(trials[0])
    assert events(store, trials[0])[-1].attempt == 1
    assert monitor.ended == {} and "attempt" not in monitor.out.getvalue()
    ends(0)
    assert events(store, trials[0])[-1].status == "done"
    assert monitor.table.state.trials[trials[0].name].attempts == 1


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (61, "1 min 1 s"),
        (7200, "2 h"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (86400 * 3 + 4 * 3600 + 59, "3 d 4 h"),
    ],
)
def test_durations_read_like_a_clock(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize("columns", [80, 160])
def test_the_table_shows_seeds_dev_values_and_steps_within_the_terminal(
    store, trials, monitor, ends, columns
):
    monitor.started(trials[0])
    ends(0)
    monitor.started(trials[1])
    monitor.news(trials[1], running(3, dev={"nDCG@10": 0.125}))
    lines = monitor.lines(columns, 24)
    assert max(map(len, lines)) <= columns
    assert [" ".join(line.split()) for line in lines[3:5]] == [
        "FirstP 96 1/1 0.250",
        "MaxP 48/32 0/1 seed 1 step 3/9 (0.125)",
    ]
    assert lines[-1].startswith("2 trials: 1 done, 1 running") and "left)" in lines[-1]


class Drawn:
    """Keeps what would be on the terminal."""

    def __init__(self):
        self.lines = []

    def show(self, lines):
        self.lines = lines

    def close(self):
        self.lines = [*self.lines, "closed"]


def test_what_the_table_has_is_not_printed_as_well(trials, monitor, ends):
    monitor.live = Drawn()
    monitor.started(monitor.feed.next())
    monitor.close()
    assert "seed 1 starting" in " ".join(monitor.live.lines)
    ends(0)
    assert monitor.out.getvalue() == ""
    monitor.started(trials[1])
    monitor.failed(trials[1], Failure("error", "a reason"), again=False)
    monitor.close()
    assert "FAILED: a reason" in monitor.out.getvalue(), "it stays when the table changes"
    assert "1 done, 1 failed" in monitor.live.lines[-2] and monitor.live.lines[-1] == "closed"


def test_what_runs_and_what_failed_stays_in_a_table_without_room():
    statuses = ["done"] * 20 + ["planned"] * 20 + ["running", "failed"]
    trials = [TrialNow(f"c{i}", 1, status, 1) for i, status in enumerate(statuses)]
    labels = {trial.cell: f"MaxP {trial.cell}" for trial in trials}
    lines = cell_lines(labels, trials, "nDCG@10", width=80, height=10)
    assert len(lines) <= 10
    assert lines[-3].endswith("seed 1 starting") and lines[-2].endswith("seed 1 failed")
    assert lines[-1] == "35 more cells: 15 done, 20 waiting"
    assert len(cell_lines(labels, trials, "nDCG@10", width=80)) == 44
