"""What a sweep says and keeps while it runs."""

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

import sweeps.engine.progress
from rank_core.training.train import CurvePoint
from rank_core.trial.trial import Progress
from sweeps.engine.cell_table import TrialNow, cell_lines
from sweeps.engine.progress import Screen
from sweeps.engine.trial_task import End
from sweeps.store.trial_status import TrialStatus
from tests.sweeps.conftest import follow

SMALL = ("chunking.window=48", "chunking.stride=32", "--num-seeds", "1")  # FirstP and MaxP


@pytest.fixture
def events(records, plan_of):
    """A sweep of two trials, of costs 100 and 200."""
    plan = plan_of(*SMALL)
    cells = [replace(cell, cost=100.0 * (1 + i)) for i, cell in enumerate(plan.cells)]
    events = follow(records, replace(plan, cells=tuple(cells)))
    started = events.started

    def launched_and_started(trial):
        events.search._waits_no_more(trial.name)
        started(trial)

    events.started = launched_and_started
    return events


@pytest.fixture
def trials(events):
    return events.search.ahead


@pytest.fixture
def out(events):
    """What was said."""
    return events.screen.out


@pytest.fixture
def ends(records, trials, events, leave_result):
    """Ends a trial as its process does: result in the storage, then the last report."""

    def end(number: int, status: str = "done") -> None:
        result = leave_result(records, trials[number].name, status)
        events.ended(trials[number], End(TrialStatus(status), result, reason="completed"))

    return end


def running(step, dev=None, num_steps=9):
    point = CurvePoint(step, seconds=0.0, loss=1.0, learning_rate=1e-3, gradient_norm=2.0)
    return Progress(step, num_steps, (point,), dev)


@pytest.mark.parametrize("status, loud", [("done", False), ("collapsed", True)])
def test_a_trial_is_followed_from_start_to_end(records, trials, events, out, ends, status, loud):
    events.started(trials[0])
    events.reported(trials[0], running(1))
    events.reported(trials[0], running(2, dev={"nDCG@10": 0.125}))
    ends(0, status)
    state = records.state(trials[0].name)
    assert (state.status, [attempt.status for attempt in state.attempts]) == (status, [status])
    assert [what for what, _ in events.mlflow.told] == [
        "changed",
        "reported",
        "reported",
        "changed",
    ]
    line = " ".join(out.getvalue().split())
    assert line.startswith("[1/2] FirstP 96 seed 1 dev nDCG@10 0.250 3 s")
    assert ("COLLAPSED" in line) == loud


def test_the_time_left_follows_the_tokens_to_read_and_the_steps_done(
    events, trials, ends, out, monkeypatch
):
    monkeypatch.setattr(sweeps.engine.progress, "_cost_of_steps", lambda cell: 0.5 * cell.cost)
    events.started(events.search.next())
    ends(0)  # 3 s for a cost of 100, and 200 are to come
    assert "(about 6 s left)" in out.getvalue()
    events.started(events.search.next())
    events.reported(trials[1], running(10, num_steps=10))
    # All steps are half of the trial; test is still to be ranked.
    assert "(about 3 s left)" in events.screen.lines(80, 24)[-1]
    ends(1)
    assert "[2/2]" in out.getvalue() and out.getvalue().count("left)") == 1


def test_a_trial_says_that_it_ranks_test_after_its_last_step(events, trials):
    events.started(events.search.next())
    for news, doing in (
        (running(9), "step 9/9"),
        (running(9, dev={"nDCG@10": 0.5}), "step 9/9, ranks test"),
    ):
        events.reported(trials[0], news)
        assert events.screen.running[trials[0].name] == doing


@pytest.mark.parametrize(("at_once", "left"), [(1, "12 s"), (2, "6 s"), (3, "4 s")])
def test_the_time_left_is_that_of_the_trials_that_run_at_once(
    records, plan_of, leave_result, at_once, left
):
    plan = plan_of("chunking.window=48", "chunking.stride=32", "--seeds", "1,2,3")
    cells = [replace(cell, cost=100.0) for cell in plan.cells]
    events = follow(records, replace(plan, cells=tuple(cells)))
    trials = [events.search.next() for _ in range(at_once)]
    for trial in trials:
        events.started(trial)
    result = leave_result(records, trials[0].name, train_seconds=1.4, eval_seconds=1.0)
    events.ended(trials[0], End(TrialStatus.DONE, result, reason="completed"))
    # Five more of 2.4 s.
    assert f"(about {left} left)" in events.screen.out.getvalue()


def test_the_time_left_has_the_starts_of_the_groups_of_workers(
    records, plan_of, leave_result, monkeypatch
):
    now = [0.0]
    monkeypatch.setattr(sweeps.engine.progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    plan = plan_of("chunking.window=48", "chunking.stride=32", "--seeds", "1,2,3")
    cells = [replace(cell, cost=100.0) for cell in plan.cells]
    events = follow(records, replace(plan, cells=tuple(cells)))
    first, second = events.search.next(), events.search.next()
    events.screen.launched(first)
    now[0] += 9.0
    events.started(first)
    events.screen.launched(second)
    result = leave_result(records, first.name, train_seconds=1.4, eval_seconds=1.0)
    events.ended(first, End(TrialStatus.DONE, result, reason="completed"))
    # Five more of 2.4 s, each of which starts in 9 s.
    assert "(about 57 s left)" in events.screen.out.getvalue()
    assert "(about 57 s left)" in events.screen.lines(80, 24)[-1]
    now[0] += 9.0
    events.started(second)  # Four starts and five trials.
    assert "(about 48 s left)" in events.screen.lines(80, 24)[-1]


def test_a_drawing_makes_the_rows_of_the_trials_that_have_changed(
    events, trials, ends, monkeypatch
):
    made = list[str]()

    def row(cell, *facts, **more):
        made.append(cell)
        return TrialNow(cell, *facts, **more)

    def drawn():
        lines = events.screen.lines(80, 24)
        rows, made[:] = [*made], []
        fresh = Screen(events.search, "nDCG@10", events.screen.known)
        for name in ("trials", "running", "dev", "statuses"):
            setattr(fresh, name, getattr(events.screen, name))
        assert lines[:-1] == fresh.lines(80, 24)[:-1]
        made.clear()
        return rows

    monkeypatch.setattr(sweeps.engine.progress, "TrialNow", row)
    first, second = (trial.cell.cell for trial in trials)
    assert drawn() == [first, second]
    events.started(trials[1])
    assert drawn() == [second] and drawn() == []
    events.reported(trials[1], running(2, dev={"nDCG@10": 0.125}))
    events.started(trials[0])
    assert drawn() == [second, first]
    events.screen.waits(trials[0], "its workers start")
    assert drawn() == [first]
    ends(1)
    ends(0)
    assert drawn() == [second, first]


def test_the_time_left_is_told_before_the_first_trial_ends(events, trials, monkeypatch):
    monkeypatch.setattr(sweeps.engine.progress, "_cost_of_steps", lambda cell: 0.8 * cell.cost)
    now = time.time()

    def report(*steps):
        curve = tuple(
            CurvePoint(step, now + 10 * step, 1.0, 1e-3, 2.0) if step > 0
            else CurvePoint(-step, now - 1000, 1.0, 1e-3, 2.0)  # of an earlier attempt
            for step in steps
        )  # fmt: skip
        events.reported(trials[0], Progress(abs(steps[-1]), 100, curve, None))
        return events.screen.lines(80, 24)[-1]

    events.started(events.search.next())
    assert "left)" not in report(-3, -9), "steps of another process tell nothing"
    assert "left)" not in report(10, 20), "a tenth of a mean trial, of 150, is 15"
    # 20 steps take 200 s: a fifth of the steps, which are 80 of 100. 76 and 200 are to come.
    assert "(about 58 min left)" in report(21, 30)
    events.ended(trials[0], failure("node lost", "its node has died"), again=True)
    assert "left)" not in events.screen.lines(80, 24)[-1]


@pytest.mark.parametrize(
    "status, word", [("failed", "FAILED:"), ("diverged", "DIVERGED:"), ("stopped", "stopped")]
)
def test_a_trial_without_a_result_is_named_with_the_first_line_of_its_reason(
    records, trials, events, status, word, out
):
    events.started(trials[1])
    end = End(TrialStatus(status), reason="the reason\nmore", traceback="File x, line 1")
    events.ended(trials[1], end)
    failed = "" if status == "stopped" else ", 1 failed"
    [line] = out.getvalue().splitlines()
    assert line.startswith(f"[1/2{failed}] MaxP 48/32 seed 1") and f"{word} the reason" in line
    assert records.state(trials[1].name).status == status == events.screen.statuses[trials[1].name]
    kept = records.folder / "failures" / f"{trials[1].name}.txt"
    assert kept.read_text() == "File x, line 1"


@pytest.mark.parametrize("again", [True, False])
def test_an_attempt_that_failed_is_the_trials_end_unless_it_runs_again(
    records, trials, events, out, again
):
    events.started(trials[0])
    events.ended(trials[0], failure("node lost", "its node has died"), again=again)
    [line] = out.getvalue().splitlines()
    assert "its node has died" in line and "left)" not in line
    assert ("node lost, runs again" in line) == line.startswith("[0/2] ") == again
    assert records.state(trials[0].name).status == ("running" if again else "failed")
    events.started(trials[0])
    assert " FirstP 96 seed 1             attempt 2\n" in out.getvalue()


def failure(kind, reason):
    return End(TrialStatus.FAILED, reason=reason, kind=kind)


def test_what_runs_when_the_driver_is_interrupted_counts_as_not_run(records, trials, events, ends):
    for trial in trials:
        events.started(trial)
    ends(0)
    events.interrupted()
    first, second = (records.state(trial.name) for trial in trials)
    assert (first.status, second.status) == ("done", "planned")
    assert second.attempts[-1].status == "interrupted"


def test_a_quiet_sweep_shows_now_and_then_that_it_lives(trials, events, monkeypatch, out):
    events.started(trials[0])
    events.reported(trials[0], running(3))
    assert out.getvalue() == ""
    monkeypatch.setattr(sweeps.engine.progress, "HEARTBEAT_SECONDS", 0.0)
    events.reported(trials[0], running(4))
    assert out.getvalue() == "[0/2] running: FirstP 96 seed 1 step 4/9\n"


def test_a_trial_that_hangs_is_named_with_the_time_since_its_last_report(
    trials, events, monkeypatch, out
):
    """The clock of the screen alone stands still."""
    now = [1000.0]
    monkeypatch.setattr(sweeps.engine.progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    events.screen.last_line = events.screen.last_news = now[0]
    events.started(trials[0])
    now[0] += 10
    events.reported(trials[0], running(3))
    now[0] += 29
    events.screen.heartbeat()
    assert "no reports" not in events.screen.lines(80, 24)[-1]
    now[0] += 1  # 40 s after the last line, 30 after the report: a line, and no alarm
    events.screen.heartbeat()
    now[0] += 30
    events.screen.heartbeat()
    now[0] += 600
    events.screen.heartbeat()
    said = [line.partition("running: ")[2] for line in out.getvalue().splitlines()]
    assert said == [
        "FirstP 96 seed 1 step 3/9",
        "FirstP 96 seed 1 step 3/9; no reports for 1 min",
        "FirstP 96 seed 1 step 3/9; no reports for 11 min",
    ]
    assert events.screen.lines(80, 24)[-1].endswith("; no reports for 11 min")
    events.reported(trials[0], running(4))
    assert "no reports" not in events.screen.lines(80, 24)[-1]


@pytest.mark.parametrize("columns", [80, 160])
def test_the_table_shows_seeds_dev_values_and_steps_within_the_terminal(
    trials, events, ends, columns
):
    events.started(trials[0])
    ends(0)
    events.started(trials[1])
    events.reported(trials[1], running(3, dev={"nDCG@10": 0.125}))
    lines = events.screen.lines(columns, 24)
    assert max(map(len, lines)) <= columns
    assert [" ".join(line.split()) for line in lines[3:5]] == [
        "FirstP 96 1/1 0.250",
        "MaxP 48/32 0/1 seed 1 step 3/9 (0.125)",
    ]
    assert lines[-1].startswith("2 trials: 1 done, 1 running")


def test_what_runs_and_what_failed_stays_in_a_table_without_room():
    statuses = ["done"] * 20 + ["planned"] * 20 + ["running", "failed"]
    trials = [TrialNow(f"c{i}", 1, status, 1) for i, status in enumerate(statuses)]
    labels = {trial.cell: f"MaxP {trial.cell}" for trial in trials}
    lines = cell_lines(labels, trials, "nDCG@10", width=80, height=10)
    assert len(lines) <= 10
    assert lines[-3].endswith("seed 1 starting") and lines[-2].endswith("seed 1 failed")
    assert lines[-1] == "35 more cells: 15 done, 20 waiting"
    assert len(cell_lines(labels, trials, "nDCG@10", width=80)) == 44
