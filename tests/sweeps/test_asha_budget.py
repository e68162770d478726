"""ASHA under a budget: rungs begin as long as they fit, and the same command goes on from there."""

import json

import pytest

from sweeps.budget import Budget
from sweeps.budgeted import Budgeted, note_held_back
from sweeps.estimate import TrialEstimate
from sweeps.measure import Forecast
from tests.sweeps.asha_player import EPOCHS, Player, wide

__all__ = ["wide"]

WHOLE = 100.0  # seconds of a trial


def run(player, seconds, takes=WHOLE):
    """Plays on two slots until nothing more begins; the feed, and the jobs that ran."""
    now = [0.0]
    search = player.begin()
    known = Forecast(
        trials={c.cell: TrialEstimate(WHOLE, 0.0, 0.0, 0) for c in search.plan.cells},
        **{"slots": 2, "units": 1.0, "unit": "core", "start_seconds": 0.0, "num_processes": 1},
        **{"num_speeds": 1, "seconds": 1.0, "device": "x86_64", "device_bytes": 0, "threads": 1},
    )
    feed = Budgeted(search, Budget(device_hours=seconds / 3600), known, clock=lambda: now[0])
    feed.require_first_block()
    ran, running = [], []
    while running or not feed.over:
        while len(running) < 2 and (trial := feed.next()):
            running.append((now[0] + takes * search.left(trial), len(ran), trial))
            ran.append(trial.job)
        if running:
            running.sort()
            now[0], _, trial = running.pop(0)
            feed.ended(trial, player.leave(trial))
    return feed, ran


def described(search):
    return json.loads((search.store.folder / "sweep.json").read_text())


def test_what_is_left_of_a_trial_is_counted_from_its_rung(wide, tmp_path):
    player = Player(tmp_path, wide)
    search = player.play()
    first = search.described()["standings"][0]["cell"]
    [finalist] = [cell for cell in wide.cells if cell.cell == first]
    last, middle = search._at(2, finalist), search._at(1, finalist)
    assert (middle.share, last.share) == (pytest.approx(3 / 9), 1.0)
    assert search.left(middle) == pytest.approx(2 / 9)
    assert search.left(last) == pytest.approx(6 / 9)
    fresh = Player(tmp_path / "fresh", wide).begin()
    assert fresh.left(fresh._at(0, finalist)) == pytest.approx(1 / 9)
    assert fresh.left(fresh._at(2, finalist)) == 1.0


def test_a_large_budget_changes_nothing(wide, tmp_path):
    whole = Player(tmp_path / "whole", wide).play()
    feed, ran = run(Player(tmp_path / "budget", wide), 2000)
    assert sorted(ran) == sorted(trial.job for trial in whole.decision.wanted)
    assert note_held_back(feed, feed.search.store) == "" and not feed.held_back


# The baseline takes 100 s, the first rung 100, the second 67, the last 67; the second seed 200.
@pytest.mark.parametrize(
    ("seconds", "longest", "finalists"),
    [(250, "@1", 0), (300, "@3", 0), (400, "", 1), (480, "", 1)],
)
def test_it_stops_at_a_rung_and_the_same_command_goes_on(
    wide, tmp_path, seconds, longest, finalists
):
    whole = Player(tmp_path / "whole", wide).play()
    player = Player(tmp_path / "budget", wide)
    feed, ran = run(player, seconds)
    assert feed.held_back and any(job.endswith(longest) for job in ran)
    told = note_held_back(feed, feed.search.store)
    assert "seed" in told
    found = described(feed.search)
    assert found["seeds"] == [1] and len(found["cells"]) == len(wide.cells)
    standings = found["search"]["standings"]
    assert sum(one["num_seeds"] == 1 for one in standings) == finalists
    assert found["search"]["epochs"] == round(feed._used / WHOLE * EPOCHS)
    more, then = run(player, 2000)
    assert set(ran).isdisjoint(then)
    assert sorted(ran + then) == sorted(trial.job for trial in whole.decision.wanted)
    assert more.search.described() == whole.described()


def test_rungs_slower_than_foretold_keep_later_ones_from_beginning(wide, tmp_path):
    for seconds in range(500, 700, 20):  # a climb takes 667 instead of 333
        feed, _ = run(Player(tmp_path / str(seconds), wide), seconds, takes=2 * WHOLE)
        assert feed._used <= seconds
