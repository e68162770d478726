"""Successive halving: who goes on, by hand and by law; slots, order and kills change nothing.

A paused or finished trial is made up, as its process leaves it: with a history of one dev value
per epoch, whose best until a rung is what the rung decides by.
"""

import itertools
import json
from collections import Counter
from dataclasses import asdict, replace

import numpy as np
import pytest

from rank_core.errors import BadInput
from sweeps.plan.options import parse
from sweeps.plan.plan import Trial
from sweeps.search.halving import (
    LOST,
    NO_POSITION,
    HalvingSearch,
    promoted,
    rung_epochs,
    rung_sizes,
    schedule_of,
)
from sweeps.search.search import make_search
from sweeps.store.rungs import Rung, best_on_dev, leave_rung, read_rung
from sweeps.store.trial_store import Store
from sweeps.store.trial_table import COSTS, TrialTable
from tests.sweeps.search.halving_player import EPOCHS, FOUR, HALVING, NINE, Player, curve, wide

__all__ = ["wide"]


# --- the rule, by hand


def test_of_nine_the_best_of_three_then_of_six_then_of_nine_go_on():
    #         the first three | the next       | the last
    values = [0.10, 0.30, 0.20, 0.25, 0.40, 0.35, 0.05, 0.15, 0.28]
    assert promoted(values[:3] + [None] * 6, eta=3) == [1]
    assert promoted(values[:6] + [None] * 3, eta=3) == [1, 4]
    # .28 is no match for .35, which is the best that has not gone on yet.
    assert promoted(values, eta=3) == [1, 4, 5]


def test_a_decision_waits_for_those_before_it_alone():
    early = [0.1, 0.3, 0.2, None, 0.9, 0.9, 0.9, 0.9, 0.9]
    assert promoted(early, eta=3) == [1]
    late = [0.1, None, 0.2, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9]
    assert promoted(late, eta=3) == []


def test_where_eta_does_not_divide_the_last_decision_sees_all():
    # Of 8, 2 go on: the first after 5, the second after all 8.
    assert promoted([0.1, 0.2, 0.3, 0.4, 0.5, None, None, None], eta=3) == [4]
    assert promoted([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.9], eta=3) == [4, 7]


def test_the_lost_never_go_on_and_a_tie_is_the_earlier_ones():
    assert promoted([LOST, LOST, LOST, 0.2, 0.2, 0.1], eta=3) == [NO_POSITION, 3]
    assert promoted([LOST] * 6, eta=3) == [NO_POSITION, NO_POSITION]


@pytest.mark.parametrize("eta", [2, 3, 4])
def test_at_most_one_of_eta_goes_on_at_any_time_and_the_best_always_does(eta):
    rng = np.random.default_rng(eta)
    for _ in range(200):
        number = int(rng.integers(eta, 30))
        values = list(rng.permutation(number) / number)
        ended = rng.permutation(number)
        before: list[int] = []
        for until in range(number + 1):
            known = set(ended[:until])
            now = promoted([v if i in known else None for i, v in enumerate(values)], eta=eta)
            assert len(now) <= until / eta
            assert now[: len(before)] == before, "a decision is never taken back"
            before = now
        assert len(before) == number // eta == len(set(before))
        assert int(np.argmax(values)) in before


@pytest.mark.parametrize(
    ("full", "number", "eta", "fewest", "expected"),
    [
        (9, 9, 3, 1, (1, 3, 9)),
        (9, 8, 3, 1, (3, 9)),  # 8 configurations fill two rungs: 8 and 2
        (9, 2, 3, 1, (9,)),
        (9, 100, 3, 1, (1, 3, 9)),
        (9, 100, 3, 2, (3, 9)),
        (2, 9, 3, 1, (1, 2)),
        (1, 9, 3, 1, (1,)),
        (20, 30, 3, 1, (2, 6, 20)),
        (8, 8, 2, 1, (1, 2, 4, 8)),
        (4, 9, 3, 3, (3, 4)),
    ],
)
def test_rungs_have_an_eta_th_of_the_next_ones_epochs(full, number, eta, fewest, expected):
    assert rung_epochs(full, number, eta=eta, fewest=fewest) == expected


def test_a_rung_has_one_of_eta_of_the_rung_below():
    assert rung_sizes(26, 3, eta=3) == (26, 8, 2)


# --- what trials leave


def test_a_rung_is_worth_the_best_until_it(tmp_path):
    history = [
        json.dumps({"step": step, "dev": {"nDCG@10": value} if value else None})
        for step, value in ((2, 0.2), (3, None), (4, 0.5), (6, 0.3), (8, 0.9))
    ]
    assert best_on_dev(history, "nDCG@10", 2) == 0.2
    assert best_on_dev(history, "nDCG@10", 6) == 0.5
    assert best_on_dev(history, "nDCG@10", None) == 0.9


@pytest.mark.parametrize("kind", ["folder", "uri"])
def test_the_first_word_of_a_rung_stands(tmp_path, kind):
    storage = str(tmp_path) if kind == "folder" else f"memory://{tmp_path.name}"
    store = Store(storage, "sweep")
    store.open()
    rung = Rung(1, 9, 2, 18, "nDCG@10", 0.25)
    assert read_rung(store, "cell-seed1", 1) is None
    leave_rung(store, "cell-seed1", rung)
    leave_rung(store, "cell-seed1", replace(rung, dev=0.5))
    assert read_rung(store, "cell-seed1", 1) == rung
    assert read_rung(store, "cell-seed1", 3) is None
    store.fs.pipe_file(f"{store.root}/rungs/cell-seed1-epoch1.json", b"{")
    with pytest.raises(BadInput, match=r"epoch1\.json must hold a trial"):
        read_rung(store, "cell-seed1", 1)
    assert rung.text() == "after 1 of 9 epochs, dev nDCG@10 0.250"


# --- the search


def jobs(search: HalvingSearch) -> list[str]:
    return [trial.job for trial in search.decision.wanted]


def test_the_best_climb_the_rest_are_stopped_and_only_finalists_have_seeds(wide, tmp_path):
    player = Player(tmp_path, wide)
    search = player.play(slots=2)
    number = Counter(job.partition("@")[2] for job in player.launched)
    climbing = len(wide.cells) - 1
    assert climbing == 8 or climbing == 9
    schedule = schedule_of(wide)
    assert number == Counter({"": 2 + 2 * schedule.sizes[-1]}) + Counter(
        {str(e): n for e, n in zip(schedule.epochs[:-1], schedule.sizes, strict=False)}
    )
    assert sorted(jobs(search)) == sorted(player.launched)
    best = min(schedule.competitors, key=lambda cell: -max(curve(search._at(0, cell))))
    [line] = [one for one in search.described()["standings"] if one["cell"] == best.cell]
    assert line["left_after"] is None and line["num_seeds"] == 2 and line["epochs"] == EPOCHS


def test_decisions_do_not_depend_on_slots_or_on_who_ends_first(wide, tmp_path):
    first = Player(tmp_path / "0", wide).play()
    for number, slots in enumerate((2, 5, 20), start=1):
        other = Player(tmp_path / str(number), wide).play(slots=slots, order=number)
        assert jobs(other) == jobs(first)
        assert other.described() == first.described()


def test_a_killed_driver_goes_on_with_the_same_decisions(wide, tmp_path):
    whole = Player(tmp_path / "whole", wide).play()
    player = Player(tmp_path / "killed", wide)
    for number in itertools.count():  # a killed driver loses what was running
        search = player.play(slots=3, order=number, ends=2)
        if search.over and all(search.status(trial) for trial in search.decision.wanted):
            break
    assert jobs(search) == jobs(whole) and search.described() == whole.described()


def test_a_trial_that_is_finished_anyway_counts_by_what_it_had_at_the_rung(wide, tmp_path):
    whole = Player(tmp_path / "whole", wide).play()
    player = Player(tmp_path / "grid", wide)
    for cell in schedule_of(wide).competitors[::2]:  # as a grid in the same folder left them
        player.leave(Trial(cell, wide.seeds[0], wide.experiment.swept))
    found = player.play().described()["standings"]
    expected = whole.described()["standings"]
    assert [one["cell"] for one in found] == [one["cell"] for one in expected]
    assert [one["dev_mean"] for one in found] == pytest.approx(
        [one["dev_mean"] for one in expected]
    )
    assert [one["left_after"] for one in found] == [one["left_after"] for one in expected]


def test_seeds_redraw_nothing_but_the_seed(plan_of, tmp_path):
    few = plan_of(*HALVING, *FOUR, "--num-seeds", "1")
    many = plan_of(*HALVING, *FOUR, "--num-seeds", "3")
    first = Player(tmp_path / "1", few).play()
    second = Player(tmp_path / "3", many).play()
    assert [t.job for t in second.decision.wanted if t.seed == 1] == jobs(first)
    by_cell: dict[str, set[str]] = {}
    for trial in second.decision.wanted:
        settings = trial.config.settings() | {"seed": 0}
        by_cell.setdefault(trial.cell.cell, set()).add(json.dumps(settings, default=str))
    assert all(len(settings) == 1 for settings in by_cell.values())
    assert {trial.seed for trial in second.decision.wanted if trial.epochs} == {1}


def test_a_lost_trial_never_goes_on_and_stays_wanted(wide, tmp_path):
    whole = Player(tmp_path / "whole", wide).play()
    best = whole.described()["standings"][0]["cell"]
    player = Player(tmp_path / "lost", wide, lost=frozenset({f"{best}-seed1"}))
    search = player.play()
    first = schedule_of(wide).epochs[0]
    assert f"{best}-seed1@{first}" in jobs(search) and f"{best}-seed2" not in jobs(search)
    [line] = [one for one in search.described()["standings"] if one["cell"] == best]
    assert line["reason"] == "a trial was lost" and line["left_after"] == 0
    assert len(search._rungs()[-1]) == schedule_of(wide).sizes[-1]


def test_another_search_seed_changes_the_order_and_no_configuration(plan_of):
    one, two = (schedule_of(plan_of(*HALVING, "--search-seed", n)) for n in ("1", "2"))
    cells = [[cell.cell for cell in schedule.competitors] for schedule in (one, two)]
    assert cells[0] != cells[1] and sorted(cells[0]) == sorted(cells[1])


def test_drawn_configurations_are_judged_in_the_order_in_which_they_were_drawn(plan_of):
    words = ("--search", "halving", "chunking.window=16..40", "chunking.stride=8", NINE[-1])
    few, more = (schedule_of(plan_of(*words, "--num-configs", n)) for n in ("4", "7"))
    names = [[cell.cell for cell in schedule.competitors] for schedule in (few, more)]
    assert names[1][:4] == names[0] and len(names[1]) == 7


def test_what_rests_is_never_told_as_finished(wide, tmp_path):
    player = Player(tmp_path, wide)
    search = player.play()
    ledger = TrialTable(player.store)
    resting = search.resting()
    finished = player.store.finished()
    for name in finished:
        costs = dict.fromkeys(COSTS, 1.0)
        path = player.store.folder / "runs" / name / "result.json"
        path.write_text(json.dumps({"status": "done"} | costs))
    missing = {trial.name for trial in ledger.plan(wide, finished, resting)}
    assert resting and set(resting) <= missing and not set(resting) & finished
    stopped = [row for row in ledger.state.rows() if row["status"] == "stopped"]
    assert len(stopped) == len(resting)
    assert all("of 9 epochs, dev nDCG@10" in row["stop_reason"] for row in stopped)


def test_going_on_is_no_further_attempt_and_a_death_is(wide, tmp_path):
    store = Store(str(tmp_path), "window_stride")
    store.open()
    ledger, trial = TrialTable(store), next(wide.trials())
    assert ledger.started(trial) == 1
    ledger.lost(trial, "stopped", "after 1 of 9 epochs")
    assert ledger.started(trial) == 1
    assert ledger.started(trial) == 2  # it was running: that process is dead


def test_a_grid_takes_up_what_halving_has_stopped_without_a_lost_attempt(wide, tmp_path):
    store = Store(str(tmp_path), "window_stride")
    store.open()
    trial = next(wide.trials())
    ledger = TrialTable(store)
    ledger.started(trial)
    ledger.lost(trial, "stopped", "after 1 of 9 epochs")
    assert trial in TrialTable(store).plan(wide, set())
    again = TrialTable(store)
    again.plan(wide, set())
    assert again.status(trial) == "planned" and again.started(trial) == 1


# --- what it says before, and what it refuses


def test_the_plan_tells_the_most_that_can_run(wide, tmp_path):
    player = Player(tmp_path, wide)
    search = player.play()
    text = " ".join(" ".join(HalvingSearch.plan_lines(wide)).split())
    most = sum(trial.share for trial in HalvingSearch.costliest_trials(wide)) * EPOCHS
    assert f"{round(most)} of the grid's {EPOCHS * wide.num_trials} epochs" in text
    assert search.described()["epochs"] == round(most)  # all competitors cost as many epochs
    assert Counter(t.epochs for t in HalvingSearch.costliest_trials(wide)) == Counter(
        t.epochs for t in search._furthest()
    )


@pytest.mark.parametrize(
    ("words", "law"),
    [
        (["--halving-eta", "3"], "--halving-eta >= 2 needs --search halving"),
        (["--search", "halving", "--halving-eta", "1"], "--halving-eta >= 2"),
        (["--search", "halving", "--halving-min-epochs", "0"], "--halving-min-epochs >= 1"),
        (["--search", "halving", "--num-configs", "2"], "--num-configs >= 3"),
        (["--search", "halving", "chunking.window=16..40"], "a range lo..hi needs --num-configs"),
        (["--confirm", "--halving-eta", "2"], "--confirm uses all settings"),
    ],
)
def test_a_command_that_contradicts_itself_is_refused(words, law):
    with pytest.raises(BadInput, match=law):
        parse(words, prog="window_stride.py", description="")


@pytest.mark.parametrize(
    ("words", "law"),
    [
        (["training.num_epochs=1"], "a rung before the end of training.*got 1 and 1"),
        (["training.num_epochs=0"], "a rung before the end of training.*got 1 and 0"),
        (["training.num_epochs=9", "--halving-min-epochs", "9"], "got 9 and 9"),
        (
            ["training.num_epochs=9", "--halving-eta", "7"],
            "--halving-eta = 7 configurations or more",
        ),
        (["training.num_epochs=9", "training.max_steps=5"], "training.epoch_steps"),
        (["training.num_epochs=9", "evaluation.folds=3"], "one model per trial"),
    ],
)
def test_a_plan_without_rungs_is_refused(plan_of, tmp_path, words, law):
    windows = ("chunking.window=16,24,32", "chunking.stride=8,16", "--search", "halving")
    plan = plan_of(*windows, *words)
    with pytest.raises(BadInput, match=law):
        make_search(plan, lambda trial: None, Store(str(tmp_path), "window_stride"))
    with pytest.raises(BadInput, match=law):
        list(HalvingSearch.plan_lines(plan))


def test_rung_facts_are_plain(tmp_path):
    rung = Rung(1, 9, 2, 18, "nDCG@10", 0.25)
    assert json.loads(json.dumps(asdict(rung))) == asdict(rung)
