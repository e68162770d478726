"""A budget ends a sweep on whole blocks of seeds, and never in the middle of one."""

import json

import pytest

from rank_core.errors import BadInput
from sweeps.budget import Budget, parse_budget
from sweeps.budgeted import Budgeted, note_held_back
from sweeps.estimate import TrialEstimate
from sweeps.feed import Queue
from sweeps.measure import Forecast
from sweeps.store import Store

NOW = 1_000_000.0


@pytest.fixture
def plan(plan_of):
    return plan_of("chunking.window=48", "chunking.stride=32", "--seeds", "1,2,3,4")


@pytest.fixture
def run(plan):
    """Runs the plan under a budget, each trial for `takes` seconds of an estimated 100, on two
    slots; returns the names that ran and the feed."""

    def run(budget: Budget, takes: float = 100.0, sd: float = 0.0):
        now = [NOW]
        one = TrialEstimate(100.0, sd, tokens=0.0, peak_bytes=0)
        known = Forecast(
            trials={cell.cell: one for cell in plan.cells},
            **{"slots": 2, "units": 1.0, "unit": "core", "start_seconds": 0.0},
            **{"num_processes": 1, "num_speeds": 1, "seconds": 1.0},
            **{"device": "x86_64", "device_bytes": 0, "threads": 1},
        )
        feed = Budgeted(Queue(plan.trials()), budget, known, clock=lambda: now[0])
        feed.require_first_block()
        ran, running = [], []
        while not feed.over:
            while len(running) < 2 and (trial := feed.next()):
                running.append(trial)
                ran.append(trial)
            now[0] += takes * bool(running)
            for trial in running:
                feed.ended(trial, "done")
            running = []
        return ran, feed, now[0]

    return run


def seeds_of(ran):
    return [trial.seed for trial in ran]


def test_without_a_limit_everything_runs(run):
    ran, feed, _ = run(Budget())
    assert seeds_of(ran) == [1, 1, 2, 2, 3, 3, 4, 4] and not feed.held_back


@pytest.mark.parametrize(("hours", "blocks"), [(0.08, 1), (0.13, 2), (0.19, 3), (0.5, 4)])
def test_core_hours_hold_whole_blocks(run, hours, blocks):
    ran, feed, _ = run(Budget(device_hours=hours))  # a block takes 0.056
    assert seeds_of(ran) == [seed for seed in (1, 2, 3, 4)[:blocks] for _ in range(2)]
    assert feed.over and bool(feed.held_back) == (blocks < 4)
    assert sum(100 / 3600 for _ in ran) <= hours


def test_a_deadline_holds_whole_blocks(run):
    ran, feed, end = run(Budget(deadline=NOW + 270))
    assert seeds_of(ran) == [1, 1, 2, 2] and end <= NOW + 270
    assert (
        "2 trial(s) with seed 3" in feed.held_back and "deadline is in 1 min 10 s" in feed.held_back
    )


def test_trials_slower_than_foretold_leave_room_for_fewer_blocks(run):
    assert len(run(Budget(deadline=NOW + 520))[0]) == 8
    ran, _, end = run(Budget(deadline=NOW + 520), takes=160.0)
    assert len(ran) == 6 and end == NOW + 480


def test_a_wide_estimate_keeps_further_from_the_limit(run):
    assert len(run(Budget(device_hours=0.08))[0]) == 2
    with pytest.raises(BadInput, match="must hold one block"):
        run(Budget(device_hours=0.08), sd=40.0)


def test_a_budget_that_nothing_fits_in_is_refused_with_what_it_would_take(run):
    with pytest.raises(BadInput) as refused:
        run(Budget(device_hours=0.01))
    message = str(refused.value)
    assert "2 trial(s) with seed 1 need about 0.0556 core-hours (up to 0.0676)" in message
    assert "0.01 of 0.01 are left" in message
    with pytest.raises(BadInput, match="the deadline is in 40 s"):
        run(Budget(deadline=NOW + 40))


def test_a_trial_handed_out_counts_until_it_ends(plan, run):
    ran, feed, _ = run(Budget(device_hours=0.12))
    assert len(ran) == 4 and feed.ahead == ()


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("45m", 2700), ("2h30m", 9000), ("1d", 86400)]
)
def test_a_deadline_may_be_a_duration(text, seconds):
    assert parse_budget(None, text, NOW).deadline == NOW + seconds


def test_a_deadline_may_be_a_time():
    budget = parse_budget(None, "1970-01-20T00:00:00+00:00", NOW)
    assert budget.deadline == 19 * 86400 and budget.limited


@pytest.mark.parametrize(
    ("hours", "deadline", "law"),
    [
        (0.0, None, "--max-gpu-hours > 0"),
        (float("nan"), None, "--max-gpu-hours > 0"),
        (None, "tomorrow", "--deadline must be a time"),
        (None, "", "--deadline must be a time"),
        (None, "1970-01-02T00:00:00+00:00", "--deadline must lie ahead"),
    ],
)
def test_a_bad_budget_is_refused(hours, deadline, law):
    with pytest.raises(BadInput, match=law):
        parse_budget(hours, deadline, NOW)


def test_without_flags_there_is_no_budget():
    assert not parse_budget(None, None, NOW).limited


def test_seeds_that_were_never_begun_leave_the_description(run, tmp_path):
    _, feed, _ = run(Budget(device_hours=0.13))
    store = Store(str(tmp_path), "window_stride")
    store.open()
    path = store.folder / "sweep.json"
    path.write_text(json.dumps({"seeds": [1, 2, 3, 4], "alpha": 0.05}))
    said = note_held_back(feed.feed, feed, store)
    described = json.loads(path.read_text())
    assert described == {"seeds": [1, 2], "alpha": 0.05, "stopped": said} and "seed 3" in said


def test_a_sweep_within_its_budget_is_described_as_planned(run, tmp_path):
    _, feed, _ = run(Budget(device_hours=0.5))
    assert note_held_back(feed.feed, feed, Store(str(tmp_path), "window_stride")) == ""
