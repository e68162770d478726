"""A budget ends a sweep on whole blocks of trials, and never in the middle of one."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest

from rank_core.errors import BadInput
from sweeps.forecast import forecast as forecast_module
from sweeps.forecast.forecast import Forecast, TrialEstimate
from sweeps.launch import budget_limit, sweep
from sweeps.launch.budget_limit import BudgetLimit, limit_to_budget, note_held_back
from sweeps.launch.sweep import _check_budget, _note_stopped
from sweeps.plan.description import description_of
from sweeps.search.search import Listed
from sweeps.store.records import Attempt, Records, State
from sweeps.store.storage import Storage
from sweeps.store.sweep_file import update_sweep_file
from sweeps.store.trial_status import TrialStatus
from tests.sweeps.search.player import SIX, Player, good_small_windows, leave

NOW = 1_000_000.0


@pytest.fixture(autouse=True)
def spread(monkeypatch):
    """The budgets below are made for estimates of this standard deviation."""
    monkeypatch.setattr(forecast_module, "SPREAD", 0.1)


@pytest.fixture
def plan(plan_of):
    return plan_of("chunking.window=48", "chunking.stride=32", "--seeds", "1,2,3,4")


def known_costs(plan):
    """Every trial is estimated to take 100 seconds; a slot is one core."""
    one = TrialEstimate(100.0, tokens=0.0, peak_bytes=0)
    return Forecast(
        trials={cell.cell: one for cell in plan.cells},
        **{"slots": 2, "units": 1.0, "unit": "core", "start_seconds": 0.0, "group_seconds": 0.0},
        **{"num_kinds": 1, "num_measured": 1, "seconds": 1.0},
        **{"device": "x86_64", "threads": 1},
    )


@pytest.fixture
def run(plan, tmp_path_factory):
    """Runs a search (the plan's grid) under a budget, each trial for `takes` seconds of an
    estimated 100, on two slots; returns what ran, the search, and when it was over."""

    def run(budget: float, takes: float = 100.0, search=None, spent: float = 0.0):
        now = [NOW]
        storage = Storage(str(tmp_path_factory.mktemp("s")))
        storage.open()
        own = Records(storage, "window_stride/woods")
        search = search or Listed(plan, lambda trial: None, own).begin()
        description_of(search.plan, []).write(search.records)
        limit = BudgetLimit(search, budget, known_costs(plan), spent, clock=lambda: now[0])
        limit.decide_first_block()
        ran, running = [], []
        while not search.over:
            while len(running) < 2 and (trial := search.next()):
                search.limit.started(trial)
                running.append(trial)
                ran.append(trial)
            now[0] += takes * bool(running)
            for trial in running:
                leave(search.records, trial, good_small_windows(trial))
                search.ended(trial, "done")
            running = []
        return ran, search, now[0]

    return run


@pytest.mark.parametrize(
    ("hours", "fits"),
    [
        # Two trials of an estimated 100 s (up to 121.7) began 40 s ago: 80 s are spent, and up to
        # 2 x 81.7 remain. The next two take up to 243.3 s. Together 486.6 s, or .1352 hours.
        (0.134, False),
        (0.136, True),
    ],
)
def test_what_running_trials_may_still_take_is_counted_at_its_upper_end(plan, records, hours, fits):
    now = [NOW]
    search = Listed(plan, lambda trial: None, records).begin()
    description_of(plan, []).write(records)
    known = known_costs(plan)
    limit = BudgetLimit(search, hours, known, clock=lambda: now[0])
    first = [search.next(), search.next()]
    for trial in first:
        limit.started(trial)
    now[0] += 40.0
    assert limit.admits(search.unstarted[0]) is fits
    if fits:
        return
    # What is left of .134 hours is less than the middle of the next block, 200 s.
    assert limit.held_back == (
        "2 trials with seed 2 need about 0.0556 core-hours (up to 0.0676), and 0.0664 of 0.134 "
        "are left"
    )
    now[0] += 120.0  # 160 s: longer than foretold, nothing remains, and no time is given back
    assert not limit.admits(search.unstarted[0])
    assert limit.held_back.endswith("and 0.0451 of 0.134 are left")


def test_an_attempt_counts_by_its_share_of_the_workers_of_a_slot(plan, records):
    now = [NOW]
    search = Listed(plan, lambda trial: None, records).begin()
    description_of(plan, []).write(records)
    known = replace(known_costs(plan), num_workers=4, units=4.0)
    limit = BudgetLimit(search, 1.0, known, clock=lambda: now[0])
    trial = search.next()
    for workers, seconds in ((4, 10.0), (1, 40.0)):
        limit.started(trial, workers)
        now[0] += seconds
        limit.lost(trial)
        now[0] += 1000.0
    limit.ended(trial, "failed")
    assert limit._used == 20.0


def seeds_of(ran):
    return [trial.seed for trial in ran]


@pytest.mark.parametrize(("hours", "blocks"), [(0.08, 1), (0.13, 2), (0.19, 3), (0.5, 4)])
def test_core_hours_hold_whole_blocks(run, hours, blocks):
    ran, search, _ = run(hours)  # a block takes 0.056
    assert seeds_of(ran) == [seed for seed in (1, 2, 3, 4)[:blocks] for _ in range(2)]
    assert search.over and bool(search.limit.held_back) == (blocks < 4)
    assert sum(100 / 3600 for _ in ran) <= hours


def test_what_earlier_commands_have_spent_counts(run):
    ran, search, _ = run(0.13, spent=200.0)
    assert seeds_of(ran) == [1, 1] and search.limit.held_back
    ran, search, _ = run(0.06, spent=200.0)
    assert ran == [] and search.over and "0.00444 of 0.06 are left" in search.limit.held_back


HOURS = SimpleNamespace(max_gpu_hours=0.09)  # a seed takes .056, up to .068


def attempted(name, seconds=0, status=TrialStatus.PLANNED):
    """A trial after an attempt of this sweep."""
    own = Attempt(attempt=1, sweep="s", command="c", begun=0, ended=1000 * seconds)
    facts = {"train_seconds": seconds, "eval_seconds": 0} if status.used else {}
    return State(name=name, status=status, attempts=(own,), facts=facts)


@pytest.mark.parametrize("started", [True, False])
def test_a_block_that_a_killed_command_has_started_is_finished(plan_of, tmp_path, started):
    words = ("--seeds", "1,2", "chunking.stride=8")
    player = Player(tmp_path, plan_of("chunking.window=16", *words), good_small_windows)
    costs = known_costs(player.plan)
    search = player.begin()
    limit_to_budget(search, HOURS, {}, costs)
    first, other = search.next(), search.unstarted[0]
    if started:
        search.limit.started(first)
    leave(player.records, first, 0.5)  # after 250 s, and the driver is killed
    states = {first.name: attempted(first.name, 250)}
    for _ in range(2):  # also where that is killed before it has begun
        resumed = player.begin()
        budget = limit_to_budget(resumed, HOURS, states, costs)
        update_sweep_file(player.records, budget=budget)
        assert [trial.name for trial in resumed.ahead[:1]] == [other.name] * started
    if not started:
        return
    assert resumed.next().name == other.name
    leave(player.records, other, 0.5)
    resumed.ended(other, "done")
    assert resumed.next() is None and "with seed 2" in resumed.limit.held_back
    update_sweep_file(player.records, budget=resumed.limit.described | {"begun": [other.name]})
    for ended in (TrialStatus.FAILED, TrialStatus.DONE):  # it would run again, as a new block
        again = {**states, other.name: attempted(other.name, 250, ended)}
        search = Listed(player.plan, lambda trial: None, player.records).begin()
        limit_to_budget(search, HOURS, again, costs)
        assert search.over and search.unstarted
    # A new cell was not begun with any seed.
    player.plan = plan_of("chunking.window=16,24", *words)
    limit_to_budget(wider := player.begin(), HOURS, states, known_costs(player.plan))
    assert wider.over and wider.unstarted


def test_trials_that_a_search_no_longer_wants_have_spent_their_hours(run, plan_of, tmp_path):
    words = ("--search", "race", "--num-seeds", "5", *SIX)
    player = Player(tmp_path, plan_of(*words), good_small_windows)
    search, cell = player.begin(), player.plan.cells[1].cell
    late = f"{cell}-seed5"
    assert late not in {trial.name for trial in search.decision.wanted}
    limit_to_budget(search, SimpleNamespace(max_gpu_hours=1.0), {late: attempted(late, 3000)},
                    known_costs(player.plan))  # fmt: skip
    assert search.limit.held_back.endswith("and 0.167 of 1 are left")


def test_a_complete_search_has_spent_its_hours(plan, records):
    """Its test sets have what is left."""
    description_of(plan, []).write(records)
    trials = [*plan.trials()]
    for trial in trials:
        leave(records, trial, 0.5)
    states = {trial.name: attempted(trial.name, 90, TrialStatus.DONE) for trial in trials}
    search = Listed(plan, lambda trial: "done", records).begin()
    own = State(name=trials[0].name, status=TrialStatus.DONE)  # of another sweep
    assert limit_to_budget(search, HOURS, {own.name: own}, None) == {}
    first = limit_to_budget(search, HOURS, states, replace(known_costs(plan), units=4.0))
    update_sweep_file(records, budget=first)
    assert search.limit.held_back == ""
    again = limit_to_budget(search, SimpleNamespace(max_gpu_hours=5.0), states)  # not measured
    assert again == first | {"hours": 5.0} and again["units"] == 4.0


def test_trials_slower_than_foretold_leave_room_for_fewer_blocks(run):
    assert len(run(0.26)[0]) == 8
    assert len(run(0.26, takes=160.0)[0]) < 8


def test_a_budget_that_nothing_fits_in_is_refused_with_what_it_would_take(run):
    with pytest.raises(BadInput) as refused:
        run(0.01)
    message = str(refused.value)
    assert "2 trials with seed 1 need about 0.0556 core-hours (up to 0.0676)" in message
    assert "0.01 of 0.01 are left" in message


def refusal(check):
    try:
        check()
    except BadInput as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("words", "least"),
    [
        # 5 seeds of the baseline, or a seed of all cells; 100 s each, up to 121.7 s.
        (("tpe", "--num-configs", "4"), 5),
        (("asha", "training.num_epochs=4"), 7),
        (("race",), 7),
        (("grid",), 10),
    ],
)
def test_a_dry_run_refuses_the_budgets_that_the_run_refuses_and_writes_nothing(
    plan_of, tmp_path, words, least
):
    player = Player(tmp_path, plan_of("--num-seeds", "5", *SIX, "--search", *words), lambda _: 0.5)
    known = SimpleNamespace(status=lambda _: None, records=player.records, states={}, read=list)
    costs, before = known_costs(player.plan), sorted(tmp_path.rglob("*"))
    for trials in (least - 0.1, least + 0.1):
        options = SimpleNamespace(max_gpu_hours=trials * 121.7 / 3600)
        dry = refusal(lambda own=options: _check_budget(player.plan, known, own, [costs]))
        assert sorted(tmp_path.rglob("*")) == before
        run = refusal(lambda own=options: limit_to_budget(player.begin(), own, {}, costs))
        assert dry == run and bool(run) == (trials < least)
        before = sorted(tmp_path.rglob("*"))  # with the proposals of the run


def test_a_dry_run_checks_the_proposals_of_a_plan_whose_trials_have_ended(
    plan_of, tmp_path, monkeypatch
):
    words = ("--num-seeds", "2", "--search", "tpe", "--num-configs", "2", *SIX)
    player = Player(tmp_path, plan_of(*words), good_small_windows)
    for trial in player.plan.trials():  # the baseline, reused
        leave(player.records, trial, 0.5)
    asked = []

    def measured(plan, options, num_ended):
        asked.append((plan.max_trials, num_ended))
        return known_costs(plan)

    monkeypatch.setattr(sweep, "forecast", measured)
    monkeypatch.setattr(budget_limit, "forecast", measured)
    known = SimpleNamespace(
        status=lambda trial: player.status(trial.name), records=player.records, states={}, read=list
    )
    before = sorted(tmp_path.rglob("*"))
    for trials, refused in ((1.9, True), (2.1, False)):
        options = SimpleNamespace(max_gpu_hours=trials * 121.7 / 3600, machines=())
        dry = refusal(lambda own=options: _check_budget(player.plan, known, own, ()))
        assert sorted(tmp_path.rglob("*")) == before
        run = refusal(lambda own=options: limit_to_budget(player.begin(), own, {}))
        assert dry == run and bool(run) == refused
        before = sorted(tmp_path.rglob("*"))
    assert asked == [(6, 2)] * 4  # what is to run is what a range of workers is estimated for


def described(search):
    content = json.loads((search.records.folder / "sweep.json").read_text())
    return {name: value for name, value in content.items() if name != "checksum"}


def test_seeds_that_were_never_begun_leave_the_description(run):
    _, search, _ = run(0.13)
    before = described(search)
    said = note_held_back(search)
    assert described(search) == before | {"seeds": [1, 2], "stopped": said}
    assert before["seeds"] == [1, 2, 3, 4] and "2 trials with seed 3" in said
    assert said.startswith("4 of 8 planned trials did not start")


@pytest.mark.parametrize("hours", [0.2, 0.45])
def test_proposed_configurations_are_run_with_all_their_seeds_or_not_at_all(
    run, plan_of, tmp_path, hours
):
    words = ("--num-seeds", "3", "--search", "tpe", "--num-configs", "5", *SIX)
    player = Player(tmp_path / "tpe", plan_of(*words), good_small_windows)
    search = player.begin()
    ran, _, _ = run(hours, search=search)
    num_cells = int(hours / (3 * 100 / 3600) / 1.05)  # the baseline's too; some room for doubt
    cells = {trial.cell.cell for trial in ran}
    assert len(cells) == num_cells and len(ran) == 3 * num_cells
    said = note_held_back(search)
    assert "3 trials of MaxP" in said and f"{18 - len(ran)} of 18 planned" in said
    told = described(search)
    assert told["seeds"] == [1, 2, 3] and {one["cell"] for one in told["cells"]} == cells
    assert (told["search"]["proposed"], told["search"]["over"]) == (num_cells - 1, False)
    # The same command with more goes on: the same proposals, and nothing twice.
    ran_first = {trial.name for trial in ran}
    rest = {trial.name for trial in player.play().decision.wanted} - ran_first
    assert {trial.name for trial in player.launched} == rest and len(rest) + len(ran) == 18


def test_proposed_configurations_that_lack_a_seed_are_not_reported(run, plan_of, tmp_path):
    words = ("--search", "tpe", "--num-configs", "5", *SIX)
    player = Player(tmp_path / "tpe", plan_of("--num-seeds", "1", *words), good_small_windows)
    player.play()
    player.plan = plan_of("--num-seeds", "4", *words)
    ran, search, _ = run(0.2, search=player.begin())
    note_held_back(search)
    told = [one["cell"] for one in described(search)["cells"]]
    assert told == list(dict.fromkeys(trial.cell.cell for trial in ran)) and len(told) == 2


def test_a_race_tells_of_the_seeds_it_has_begun(run, plan_of, tmp_path):
    words = ("--search", "race", "--num-seeds", "5", *SIX)
    player = Player(tmp_path / "race", plan_of(*words), good_small_windows)
    ran, search, _ = run(9 * 100 / 3600, search=player.begin())
    said = note_held_back(search)
    assert described(search)["seeds"] == [1] and "with seed 2" in said
    assert said.startswith("up to 28 of 35 planned trials did not start")
    assert set(seeds_of(ran)) == {1}


@pytest.mark.parametrize(("more", "seeds"), [((), [1, 2, 3]), (("--search", "race"), [1, 2])])
def test_new_cells_that_wait_leave_the_description_of_the_finished_ones(
    run, plan_of, tmp_path, more, seeds
):
    """They wait with every seed; with a trial of the baseline, too, in the second round."""
    words = ("--num-seeds", "3", "chunking.stride=8")
    few = plan_of(*words, "chunking.window=16,24")
    player = Player(tmp_path / "grid", few, good_small_windows)
    player.play()
    player.plan = plan_of(*words, "chunking.window=16,24,32", *more)
    finished = [cell.cell for cell in player.plan.cells if cell in few.cells]
    for _ in range(2):
        search = player.begin()
        run(0.01, search=search, spent=36.0)
        note_held_back(search)
        told = described(search)
        assert [one["cell"] for one in told["cells"]] == finished
        assert told["seeds"] == seeds and told["baseline"] == finished[0]
        assert {one["cell"] for one in told["search"].get("standings", ())} <= {*finished}
        baseline = player.records.trial_folder(f"{finished[0]}-seed2")
        shutil.rmtree(baseline, ignore_errors=True)


def test_proposed_configurations_that_wait_with_a_seed_are_reported_without_it(
    run, plan_of, tmp_path
):
    words = ("--search", "tpe", "--num-configs", "3", *SIX)
    player = Player(tmp_path / "tpe", plan_of("--num-seeds", "1", *words), good_small_windows)
    first = player.play()
    player.plan = plan_of("--num-seeds", "3", *words)
    search = player.begin()
    run(0.01, search=search, spent=36.0)
    note_held_back(search)
    told = described(search)
    assert told["seeds"] == [1] and told["search"]["proposed"] == 3
    assert [one["cell"] for one in told["cells"]] == [cell.cell for cell in first.plan.cells]


def test_the_reason_of_an_early_end_is_noted_where_the_search_fails_to_say_more(
    plan, records, monkeypatch
):
    search = Listed(plan, lambda trial: None, records).begin()
    description_of(plan, []).write(records)
    monkeypatch.setattr(search, "describe", lambda: 1 / 0)
    _note_stopped(search, "by an error")
    assert described(search)["stopped"] == "by an error"


def test_the_wait_for_a_process_or_a_node_costs_nothing(plan, records):
    now = [NOW]
    search = Listed(plan, lambda trial: None, records).begin()
    description_of(plan, []).write(records)
    limit = BudgetLimit(search, 0.2, known_costs(plan), clock=lambda: now[0])
    trial = search.next()
    now[0] += 3600.0
    assert limit.admits(search.unstarted[0])
    limit.started(trial)
    now[0] += 50.0
    limit.lost(trial)
    now[0] += 3600.0  # without a node
    assert limit.admits(search.unstarted[0])
    limit.started(trial)  # another process of it
    now[0] += 50.0
    limit.ended(trial, "done")
    assert limit._used == 100.0
