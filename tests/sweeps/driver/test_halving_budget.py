"""Halving under a budget: a configuration's next rung begins as long as it fits, and the same
command goes on from there."""

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from rank_core.errors import BadInput
from sweeps.driver.budget_limit import Budgeted, note_held_back
from sweeps.forecast import forecast as forecast_module
from sweeps.forecast.forecast import Forecast, TrialEstimate
from sweeps.plan.budget import Budget
from tests.sweeps.search.halving_player import EPOCHS, Player, wide

__all__ = ["wide"]

# A trial's nine epochs take 90 s, its start 2 s at every rung, test 8 s at its end.
WHOLE = TrialEstimate(100.0, tokens=0.0, peak_bytes=0, start=2.0, end=8.0)


@pytest.fixture(autouse=True)
def spread(monkeypatch):
    """The budgets below are made for estimates of this standard deviation."""
    monkeypatch.setattr(forecast_module, "SPREAD", 0.1)


def run(player, seconds, *, slots=1, slower=1.0):
    """Plays until nothing more begins; the feed, and the jobs that ran."""
    now = [0.0]
    search = player.begin()
    known = Forecast(
        trials={cell.cell: WHOLE for cell in search.plan.cells},
        **{"slots": slots, "units": 1.0, "unit": "core", "start_seconds": 0.0, "num_kinds": 1},
        **{"num_measured": 1, "seconds": 1.0, "device": "x86_64", "device_bytes": 0, "threads": 1},
    )
    feed = Budgeted(search, Budget(device_hours=seconds / 3600), known, clock=lambda: now[0])
    feed.require_first_block()
    ran, running = [], []
    while running or not feed.over:
        while len(running) < slots and (trial := feed.next()):
            # What is left is asked before the search hears of the launch, as a process finds it.
            takes = WHOLE.part(search.left(trial), ends=not trial.epochs).seconds
            running.append((now[0] + slower * takes, len(ran), trial))
            ran.append(trial.job)
        if running:
            running.sort()
            now[0], _, trial = running.pop(0)
            feed.ended(trial, "failed" if trial.name in player.lost else player.leave(trial))
    return feed, ran


def rungs(ran):
    """How many jobs ended at each rung."""
    return dict(Counter(job.partition("@")[2] for job in ran))


def described(search):
    return json.loads((search.store.folder / "sweep.json").read_text())


def test_what_is_left_of_a_trial_is_counted_from_its_rung(wide, tmp_path):
    player = Player(tmp_path, wide)
    search = player.play()
    first = search.described()["standings"][0]["cell"]
    [finalist] = [cell for cell in wide.cells if cell.cell == first]
    bottom, middle, last = (search._at(number, finalist) for number in range(3))
    assert search.left(bottom) == pytest.approx(1 / 9)
    assert search.left(middle) == pytest.approx(2 / 9)
    assert search.left(last) == pytest.approx(6 / 9)
    shutil.rmtree(Path(player.store.checkpoint_folder(last.name)))  # it begins anew
    assert search.left(last) == 1.0 and search.left(middle) == pytest.approx(3 / 9)


def test_a_large_budget_changes_nothing(wide, tmp_path):
    whole = Player(tmp_path / "whole", wide).play()
    feed, ran = run(Player(tmp_path / "budget", wide), 2000, slots=2)
    assert sorted(ran) == sorted(trial.job for trial in whole.decision.wanted)
    assert note_held_back(feed, feed.search.store) == "" and not feed.held_back


# The baseline takes 100 s, each of the first rung 12, of the second 22, the last 70: 344 in all;
# the second seed 200 more. Estimates are trusted within some 20% at first.
@pytest.mark.parametrize("slots", [1, 2, 5])
@pytest.mark.parametrize(
    ("seconds", "ran_at", "over", "held"),
    [
        (265, {"": 1, "1": 9, "3": 2}, False, "to epoch 3"),
        (300, {"": 1, "1": 9, "3": 3}, False, "to epoch 9"),
        (370, {"": 2, "1": 9, "3": 3}, True, "2 trials with seed 2"),
    ],
)
def test_it_stops_where_a_step_would_not_fit_and_the_same_command_goes_on(
    wide, tmp_path, seconds, ran_at, over, held, slots
):
    whole = Player(tmp_path / "whole", wide).play()
    player = Player(tmp_path / "budget", wide)
    feed, ran = run(player, seconds, slots=slots)
    assert rungs(ran)["1"] == 9, "what has begun as one is run, whatever is held back"
    if slots == 1:
        assert rungs(ran) == ran_at and held in feed.held_back
    assert feed._used <= seconds
    note_held_back(feed, feed.search.store)
    found = described(feed.search)
    search = found["search"]
    climbed = Counter(one["epochs"] for one in search["standings"])
    assert found["seeds"] == [1] and search["over"] == (rungs(ran)[""] == 2)
    at = {int(epochs or EPOCHS): number for epochs, number in rungs(ran).items()}
    at[EPOCHS] -= 1  # the baseline
    assert {one["epochs"]: one["configurations"] for one in search["rungs"]} == {9: 0, 3: 0} | at
    assert climbed[9] == at[9] and climbed[3] == at.get(3, 0) - at[9]
    undecided = {one["epochs"] for one in search["standings"] if one["left_after"] is None}
    assert undecided == ({9} if search["over"] else {max(climbed), 1} if at.get(3, 0) < 3 else {3})
    assert search["epochs"] == EPOCHS + 9 + 2 * at.get(3, 0) + 6 * at[9]
    more, then = run(player, 2000)
    assert set(ran).isdisjoint(then)
    assert sorted(ran + then) == sorted(trial.job for trial in whole.decision.wanted)
    assert more.search.described() == whole.described()


@pytest.mark.parametrize("slower", [0.5, 1.0, 1.2, 2.0])
def test_no_more_is_used_than_there_is(wide, tmp_path, slower):
    for seconds in range(int(215 * max(1.2, slower)), 900, 130):  # the first block takes 208
        feed, _ = run(Player(tmp_path / str(seconds), wide), seconds, slots=2, slower=slower)
        assert feed._used <= seconds


def test_a_lost_configuration_holds_nothing_up(wide, tmp_path):
    lost = f"{wide.cells[3].cell}-seed{wide.seeds[0]}"
    player = Player(tmp_path, wide, lost=frozenset({lost}))
    feed, ran = run(player, 2000, slots=2)
    assert feed.over and not feed.held_back and rungs(ran)["3"] == 3


@pytest.mark.parametrize("seconds", [255, 300, 370])
def test_who_rests_is_known_to_rest_however_often_the_budget_ends(wide, tmp_path, seconds):
    player = Player(tmp_path, wide)
    _, ran = run(player, seconds)
    paused = {job.partition("@")[0] for job in ran if "@" in job}
    assert set(player.begin().resting()) == paused - {job for job in ran if "@" not in job}


def test_a_killed_sweep_under_a_budget_runs_the_first_rung_before_it_climbs(wide, tmp_path):
    player = Player(tmp_path, wide)
    search = player.play(ends=4)  # the baseline and the first three, of whom one goes on
    assert [trial.epochs for trial in search.ahead][:2] == [3, 1]
    before = set(player.launched)
    with pytest.raises(BadInput, match=r"MaxP .* to epoch 3 need about"):
        run(player, 80)  # enough for that step, and not for the six others of the first rung
    feed, ran = run(player, 135)
    assert sum(job.endswith("@1") for job in before | set(ran)) == 9
    assert feed.held_back and feed._used <= 135
