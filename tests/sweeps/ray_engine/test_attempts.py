"""What becomes of attempts that die: again, or lost, and never twice or forgotten."""

import pandas as pd
from ray.exceptions import OutOfMemoryError

from sweeps.ray_engine import attempts as module
from sweeps.store.failures import BAD_AFTER, LIMITS, SHUNNED_AFTER
from tests.sweeps.ray_engine.attempts import begin, launches, lost

__all__ = ["launches"]


def table(launches, name="failures"):
    return pd.read_parquet(launches.monitor.ledger.store.folder / f"{name}.parquet")


def fails(launches, tune_id, reason="ValueError: x"):
    launches.reported(tune_id, {"status": "failed", "reason": reason, "traceback": "line 1"})
    launches.completed(tune_id)


def test_no_more_run_than_there_are_slots(launches):
    assert launches.next("a") and launches.next("b")
    assert launches.next("c") is None and not launches.over


def test_a_trial_whose_process_died_comes_again_before_new_ones(launches):
    trial = begin(launches, "a")
    lost(launches, "a")
    assert launches.feed.told == [] and launches.next("b") is trial
    launches.started("b", "alive")
    [failure] = table(launches).to_dict("records")
    assert (failure["kind"], failure["attempt"], failure["again"]) == ("process died", 1, True)
    assert failure["node"] == "host-a (n1)" and failure["time"].endswith("+00:00")
    assert table(launches, "trials")["attempts"].tolist() == [2]
    assert "process died, is run again" in launches.monitor.out.getvalue()


def test_a_trial_that_dies_too_often_is_lost_with_the_last_reason(launches, monkeypatch):
    monkeypatch.setattr(module, "able_nodes", lambda needs: {"n1"})
    trial = launches.feed.ahead[0]
    for number in range(LIMITS["process died"] + 1):
        assert begin(launches, str(number)) is trial
        lost(launches, str(number))
    assert launches.feed.told == [(trial.name, "failed")]
    assert table(launches)["again"].tolist() == [True] * LIMITS["process died"] + [False]
    [row] = table(launches, "trials").to_dict("records")
    assert row["status"] == "failed" and "ActorDiedError" in row["stop_reason"]
    assert launches.next("z") is not trial


def test_an_error_of_the_trial_itself_is_not_repeated(launches):
    trial = begin(launches, "a")
    fails(launches, "a")
    assert launches.feed.told == [(trial.name, "failed")]
    assert table(launches)["kind"].tolist() == ["error"]
    folder = launches.monitor.ledger.store.folder
    assert (folder / "failures" / f"{trial.name}.txt").read_text() == "line 1"


def test_a_broken_device_is_tried_elsewhere(launches):
    trial = begin(launches, "a")
    fails(launches, "a", "AcceleratorError: CUDA error: unspecified launch failure")
    assert launches.feed.told == [] and launches.next("b") is trial


def test_a_node_on_which_different_trials_die_is_avoided_and_named(launches):
    for number in range(BAD_AFTER):
        begin(launches, str(number))
        launches.failures._of_trial.clear()
        trial = launches.live[str(number)].trial
        fails(launches, str(number), "AcceleratorError: CUDA error: ECC error")
        launches._again.remove(trial)
    assert launches.avoided == ("n1",)
    text = launches.monitor.out.getvalue()
    assert text.count("no more trials go to host-a (n1): different trials failed there") == 1


def test_a_trial_does_not_go_back_to_where_it_failed_as_long_as_there_is_another_node(
    launches, monkeypatch
):
    trial = launches.feed.ahead[0]
    for number in range(SHUNNED_AFTER):
        assert launches.avoid(trial) == ()
        assert begin(launches, str(number)) is trial
        lost(launches, str(number))
    assert launches.avoid(trial) == ("n1",) and launches.avoided == ()
    assert launches.avoid(launches.feed.ahead[0]) == ()
    monkeypatch.setattr(module, "able_nodes", lambda needs: {"n1"})
    assert launches.avoid(trial) == ()


def test_workers_of_a_trial_may_need_the_node_it_failed_on(launches):
    launches.alone = False
    trial = launches.feed.ahead[0]
    for number in range(SHUNNED_AFTER):
        assert begin(launches, str(number)) is trial
        lost(launches, str(number))
    assert launches.avoid(trial) == () and launches.next("again") is trial


def test_a_trial_that_needs_another_node_lets_new_ones_pass(launches):
    first = launches.feed.ahead[0]
    for number in range(SHUNNED_AFTER):
        begin(launches, str(number))
        lost(launches, str(number))
    for number in range(3):  # of the four trials
        assert begin(launches, f"new {number}") is not first
        fails(launches, f"new {number}")
    assert begin(launches, "last") is first and launches.feed.over


def test_a_trial_that_diverged_is_not_repeated(launches):
    trial = begin(launches, "a")
    launches.reported("a", {"status": "diverged", "reason": "the loss is nan at step 3"})
    launches.completed("a")
    assert launches.feed.told == [(trial.name, "diverged")]
    assert launches.next("b") is not trial


def test_a_trial_the_feed_gives_up_is_stopped_and_not_repeated(launches):
    trial = begin(launches, "a")
    news = {"step": 6, "num_steps": 9, "curve": [], "dev": None}
    for step, stops in ((6, False), (7, True)):
        report = {"status": "running", "news": news | {"step": step}}
        assert launches.stops("a", report) == stops
        launches.reported("a", report)
    launches.completed("a")
    assert launches.feed.told == [(trial.name, "stopped")]


def test_a_death_after_the_last_word_costs_nothing(launches):
    trial = begin(launches, "a")
    launches.reported("a", {"status": "diverged", "reason": "x"})
    lost(launches, "a")
    assert launches.feed.told == [(trial.name, "diverged")]
    assert not (launches.monitor.ledger.store.folder / "failures.parquet").exists()


def test_a_group_that_breaks_as_it_is_sent_home_costs_nothing(launches):
    trial = begin(launches, "a")
    launches.reported("a", {"status": "diverged", "reason": "x"})
    fails(launches, "a", "RuntimeError: Connection closed by peer")
    assert launches.feed.told == [(trial.name, "diverged")]
    assert not (launches.monitor.ledger.store.folder / "failures.parquet").exists()


def test_the_worker_that_failed_says_the_kind_and_the_node(launches, monkeypatch):
    monkeypatch.setattr(module, "node_of", lambda actor: ("n2" if actor == "ab" else "n1", True))
    trial = begin(launches, "a")
    report = {"status": "failed", "kind": "process died", "actor": "ab", "reason": "gone (rank 1)"}
    launches.reported("a", report)
    launches.completed("a")
    assert launches.next("b") is trial
    [failure] = table(launches).to_dict("records")
    assert (failure["kind"], failure["node"]) == ("process died", "host-b (n2)")
    launches.started("b", "alive")
    launches.reported("b", report | {"kind": "host memory"})
    assert launches.slots == 1


def test_a_process_that_ends_without_a_word_is_an_error(launches):
    trial = begin(launches, "a")
    launches.completed("a")
    assert launches.feed.told == [(trial.name, "failed")]
    assert table(launches)["reason"].tolist() == ["the trial ended without a result"]


def test_a_process_that_dies_before_it_begins_is_an_attempt(launches):
    trial = launches.next("a")
    lost(launches, "a")
    assert launches.monitor.ledger.rows[trial.name]["attempts"] == 1
    assert launches.next("b") is trial


def test_a_trial_that_never_began_is_no_attempt(launches):
    trial = launches.next("a")
    launches.unlaunched("a")
    assert launches.next("b") is trial
    assert launches.monitor.ledger.rows[trial.name]["attempts"] == 0


def test_an_out_of_memory_kill_counts_against_the_dead_and_takes_a_slot_away(launches):
    victim, other = begin(launches, "a", actor="dead"), begin(launches, "b")
    launches.interrupt(OutOfMemoryError("95 % of the memory is in use"))
    [failure] = table(launches).to_dict("records")
    assert (failure["kind"], failure["cell"]) == ("host memory", victim.cell.cell)
    assert launches.slots == 1 and not launches.live
    again = []
    for tune_id in ("c", "d"):
        again.append(launches.next(tune_id))
        launches.live.pop(tune_id)
    assert {trial.name for trial in again} == {victim.name, other.name}


def test_what_breaks_down_without_a_culprit_counts_against_nobody(launches):
    begin(launches, "a")
    launches.interrupt(RuntimeError("x"))
    assert launches.slots == 2 and launches.next("b")
    assert not (launches.monitor.ledger.store.folder / "failures.parquet").exists()


def test_it_is_over_when_nothing_runs_waits_or_comes_again(launches):
    for number in range(4):
        trial = begin(launches, str(number))
        assert not launches.over
        if number == 3:
            lost(launches, "3")
            assert launches.feed.over and not launches.over
            assert begin(launches, "3") is trial
        fails(launches, str(number))
    assert launches.over
