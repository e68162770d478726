"""What becomes of attempts that die: again, or lost, and never twice or forgotten."""

import socket
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from ray.exceptions import NodeDiedError, OutOfMemoryError

from rank_core.checkpoints.checkpoint import Leave, Saved
from rank_core.trial.trial import Progress
from sweeps.engine.trial_task import End, Leaves, end_of
from sweeps.forecast.forecast import TrialEstimate
from sweeps.launch.budget_limit import BudgetLimit
from sweeps.plan.description import description_of
from sweeps.ray_engine import attempts as module
from sweeps.ray_engine import runner
from sweeps.ray_engine.nodes import CheckpointLoad, Unfit
from sweeps.search.search import Search
from sweeps.store import records
from sweeps.store.failures import LIMITS, kind_of_reason
from sweeps.store.trial_status import TrialStatus
from sweeps.systems.load import failure_table
from tests.sweeps.ray_engine.conftest import SLOTS, begin, lost

HOST = socket.gethostname()


def state(attempts, trial):
    return attempts.events.records.state(trial.name)


def failures(attempts):
    """Of all attempts that failed."""
    names = [trial.name for trial in attempts.events.search.plan.trials()]
    states = attempts.events.records.states(names).values()
    return [attempt for state in states for attempt in state.attempts if attempt.lost]


def fails(attempts, tune_id, reason="ValueError: x"):
    end = End(TrialStatus.FAILED, reason=reason, kind=kind_of_reason(reason), traceback="line 1")
    attempts.reported(tune_id, end)
    attempts.completed(tune_id)


def test_a_trial_that_dies_too_often_is_lost_with_the_last_reason(attempts):
    trial = begin(attempts, "first")
    lost(attempts, "first")
    for number in range(LIMITS["process died"]):
        assert begin(attempts, str(number)) is trial
        lost(attempts, str(number))
    assert attempts.events.search.told == [(trial.name, "failed")]
    again = [failure.again for failure in failures(attempts)]
    assert again == [True] * LIMITS["process died"] + [False]
    ended = state(attempts, trial)
    assert ended.status == "failed" and "ActorDiedError" in ended.reason
    assert ended.attempts[-1].host == "host-a"  # that of the dead process, not the driver's
    assert attempts.next("z") is not trial


def test_a_trial_that_asha_stops_has_ended(attempts):
    trial = begin(attempts, "a")
    attempts.reported("a", Progress(1, 9, (), {"nDCG@10": 0.25}), stopped=True)
    attempts.completed("a")
    assert attempts.events.search.told == [(trial.name, "stopped")]
    ended = state(attempts, trial)
    assert ended.status == "stopped" and attempts.next("b") is not trial
    assert ended.attempts[-1].host == "host-a"


def test_a_death_after_the_last_word_costs_nothing(attempts):
    trial = begin(attempts, "a")
    attempts.reported("a", End(TrialStatus.DIVERGED, reason="x"))
    lost(attempts, "a")
    assert attempts.events.search.told == [(trial.name, "diverged")]
    assert not failures(attempts)


def test_the_worker_that_failed_says_the_kind_and_the_node(attempts, monkeypatch):
    monkeypatch.setattr(module, "node_of", lambda actor: ("n2" if actor == "ab" else "n1", True))
    trial = begin(attempts, "a")
    report = End(TrialStatus.FAILED, reason="gone (rank 1)", kind="process died", process="ab")
    attempts.reported("a", report)
    attempts.completed("a")
    assert attempts.next("b") is trial
    [failure] = failures(attempts)
    assert (failure.kind, failure.node) == ("process died", "host-b (n2)")
    assert failure.host == HOST  # of the process that told of it
    attempts.started("b", "alive")
    attempts.reported("b", replace(report, kind="host memory"))
    assert attempts.slots == 1


def test_a_process_that_ends_without_a_word_is_an_error(attempts):
    trial = begin(attempts, "a")
    attempts.completed("a")
    assert attempts.events.search.told == [(trial.name, "failed")]
    assert [failure.reason for failure in failures(attempts)] == [
        "the trial ended without a result"
    ]


def test_a_process_that_dies_before_it_begins_is_an_attempt(attempts):
    trial = attempts.next("a")
    lost(attempts, "a")
    assert state(attempts, trial).num_attempts == 1
    assert attempts.next("b") is trial


def test_a_trial_that_never_began_is_no_attempt(attempts):
    trial = attempts.next("a")
    attempts.unlaunched("a")
    assert attempts.next("b") is trial
    assert state(attempts, trial).num_attempts == 0


LOSSES = {
    "node": lambda attempts: attempts.failed("a", NodeDiedError("its node has died")),
    "process": lambda attempts: lost(attempts, "a"),
    "device": lambda attempts: fails(attempts, "a", "AcceleratorError: CUDA error: launch failure"),
    "Tune": lambda attempts: attempts.interrupt(RuntimeError("Tune broke down")),
    "Ray": lambda attempts: attempts.interrupt(module.NoNode("Ray has died")),
}


@pytest.mark.parametrize("cause", LOSSES)
def test_the_wait_after_a_lost_attempt_costs_no_budget_whatever_lost_it(
    attempts, monkeypatch, cause
):
    """What a command counts is what the next one counts by the attempts."""
    now, events = [1000.0], attempts.events
    monkeypatch.setattr(records, "_now", lambda: int(1000 * now[0]))
    one = TrialEstimate(60.0, tokens=0.0, peak_bytes=0)
    trials = {cell.cell: one for cell in events.search.plan.cells}
    known = SimpleNamespace(trials=trials, unit="core", units=1.0, num_workers=1)
    description_of(events.search.plan, []).write(events.records)
    limit = BudgetLimit(events.search, 10.0, known, clock=lambda: now[0])
    trial = begin(attempts, "a")
    now[0] += 60.0
    LOSSES[cause](attempts)
    now[0] += 1200.0
    assert begin(attempts, "b") is trial
    now[0] += 60.0
    attempts.reported("b", End(TrialStatus.DIVERGED, reason="x"))
    assert limit._used == state(attempts, trial).slot_seconds() == 120.0


FAULT = End(TrialStatus.FAILED, reason="CUDA error: launch failure", kind="device")


def nothing_else_waits(attempts):
    attempts.events.search._waiting.clear()


def faults(attempts, monkeypatch, number, *, others=True, fault=None):
    """So many trials whose first attempts fail on n1, one after the other."""
    monkeypatch.setattr(
        module, "can_run", lambda resources, without=(): others or "n1" not in without
    )
    for tune_id in map(str, range(number)):
        attempts._again.clear()
        trial = begin(attempts, tune_id)
        attempts.reported(tune_id, fault or FAULT)
        attempts.completed(tune_id)
    return trial


def test_an_attempt_after_a_fault_of_a_node_runs_elsewhere_while_another_node_lives(
    attempts, monkeypatch
):
    trial = faults(attempts, monkeypatch, 1)
    assert attempts.next("b") is trial and attempts.live["b"].avoids == {"n1"}
    assert attempts.next("c") is not trial and attempts.live["c"].avoids == frozenset()
    request = runner._request({"resources": SLOTS, "slot": 0, "avoid": ["n1", "n2"]})
    assert request._kwargs["bundle_label_selector"][0]["ray.io/node-id"] == "!in(n1,n2)"


@pytest.mark.parametrize("kind", ["error", "storage", "node lost"])
def test_a_fault_that_is_not_the_nodes_holds_nothing_against_it(attempts, monkeypatch, kind):
    monkeypatch.setattr(module, "can_run", lambda *needs: True)
    begin(attempts, "a")
    attempts.reported("a", replace(FAULT, kind=kind))
    attempts.completed("a")
    attempts.next("b")
    assert attempts.live["b"].avoids == frozenset()


def test_the_only_node_is_tried_again(attempts, monkeypatch):
    trial = faults(attempts, monkeypatch, 1, others=False)
    assert attempts.next("b") is trial and attempts.live["b"].avoids == frozenset()


@pytest.mark.parametrize("kind", ["device", "host memory"])
@pytest.mark.parametrize("ended", ["none", "before", "between"])
def test_a_node_on_which_different_trials_fail_since_one_has_ended_is_left_out(
    attempts, monkeypatch, ended, kind
):
    """Also one that worked for hours, and then its GPU broke."""
    monkeypatch.setattr(module, "SICK_TRIALS", 2)

    def one_ends():
        begin(attempts, "good", actor="")
        attempts.formed("good", ("n2", "n1"))
        attempts.reported("good", End(TrialStatus.DIVERGED, reason="x"))
        attempts.completed("good")

    if ended == "before":
        one_ends()
    fault = replace(FAULT, kind=kind)
    faults(attempts, monkeypatch, 1, fault=fault)
    if ended == "between":
        attempts._again.clear()
        one_ends()
    faults(attempts, monkeypatch, 1, fault=fault)
    attempts._again.clear()
    attempts.next("z")
    # Where trials have ended, large ones may want more memory than there is.
    sick = ended == "none" or (ended == "before" and kind == "device")
    assert attempts.live["z"].avoids == ({"n1"} if sick else frozenset())
    said = " ".join(attempts.events.screen.out.getvalue().split())
    assert ("host-a (n1) gets no trial: 2 trials failed there" in said) == sick


@pytest.mark.parametrize("notice", [True, False])
def test_a_trial_that_gets_on_between_lost_nodes_goes_on(attempts, notice):
    """Nodes of half an hour do not end a trial of a day; those on which it gets nowhere do."""

    def node_goes(tune_id, step):
        if notice:
            return leaves(attempts, tune_id, wished=False, step=step)
        attempts.reported(tune_id, Progress(step, 10**6, (), None))
        attempts.failed(tune_id, NodeDiedError("gone"))

    trial = attempts.next("0")
    for number in range(2 * LIMITS["node lost"]):
        begin(attempts, str(number)) if number else attempts.started("0", "alive")
        node_goes(str(number), number + 1)
        assert trial.name not in attempts.events.screen.statuses
    for number in range(LIMITS["node lost"]):
        begin(attempts, f"stuck {number}")
        node_goes(f"stuck {number}", 2 * LIMITS["node lost"])
    assert attempts.events.screen.statuses[trial.name] == "failed"


def test_a_trial_whose_nodes_have_left_is_placed_anew(attempts, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    faults(attempts, monkeypatch, 1)
    attempts.next("b")
    monkeypatch.setattr(module, "can_run", lambda resources, without=(): not without)
    attempts.check()
    now[0] += module.WARN_SECONDS
    with pytest.raises(module.Unplaced):
        attempts.check()


def test_the_process_of_a_slot_is_kept_for_it_and_a_new_slot_gets_its_own(attempts):
    """The request of a slot is its alone: no trial that waits for the process of a new slot is
    given one that becomes free."""
    for tune_id in ("a", "b"):
        attempts.next(tune_id)
    attempts._most = 3  # a node joins
    attempts.next("c")
    requests = [
        runner._request({"resources": SLOTS, "slot": attempt.slot, "avoid": []})
        for attempt in attempts.live.values()
    ]
    assert len(set(requests)) == 3
    attempts.started("a", "alive")
    attempts.reported("a", End(TrialStatus.DIVERGED, reason="x"))
    attempts.completed("a")
    attempts.next("d")
    again = {"resources": SLOTS, "slot": attempts.live["d"].slot, "avoid": []}
    assert runner._request(again) == requests[0]


def test_a_wait_for_workers_is_no_attempt_and_says_what_it_waits_for(attempts, monkeypatch):
    now, waiting = [1000.0], [1]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(module, "free_groups", lambda of_dead: waiting[0])
    monkeypatch.setattr(module, "free_text", lambda needs: "0.5 CPU free")
    monkeypatch.setattr(module, "can_run", lambda *needs: True)
    attempts.resources = replace(SLOTS, num_workers=2)
    trial = attempts.next("a")
    attempts.started("a", "alive")
    now[0] += module.TELL_SECONDS
    attempts.check()
    said = attempts.events.screen.running[trial.name]
    assert said == "waiting for 2 workers with 1 CPU each (0.5 CPU free)"
    waiting[0], now[0] = 0, now[0] + module.CHECK_SECONDS
    attempts.check()
    assert attempts.events.screen.running[trial.name] == "its workers start"
    attempts.got_no_workers("a")
    attempts.completed("a")
    assert state(attempts, trial).num_attempts == 0 and not failures(attempts)
    assert attempts.next("other") is not trial  # which has waited long enough
    nothing_else_waits(attempts)
    assert not attempts.over and attempts.next("b") is trial
    attempts.started("b", "alive")
    attempts.formed("b")
    assert state(attempts, trial).num_attempts == 1


def test_a_group_that_dies_before_it_forms_is_an_attempt(attempts):
    attempts.resources = replace(SLOTS, num_workers=2)
    trial = attempts.next("a")
    attempts.started("a", "alive")
    attempts.reported("a", End(TrialStatus.FAILED, reason="gone", kind="process died"))
    attempts.completed("a")
    assert [failure.kind for failure in failures(attempts)] == ["process died"]
    assert attempts.next("b") is trial


@pytest.fixture
def nodes_of(attempts, monkeypatch):
    """Groups of 1 to 4 workers of a core, without the work of trials ahead;
    `nodes_of(2, 1)` is a cluster of nodes with these."""
    search = attempts.events.search
    monkeypatch.setattr(type(search), "work_ahead", (0, 0.0))
    monkeypatch.setattr(search, "share", partial(Search.share, search))
    attempts.resources = replace(SLOTS, num_workers=4, min_workers=1, slots=9)
    attempts._most, now = 9, [1000.0]
    attempts.nodes.checkpoint = CheckpointLoad(minutes=5.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(module, "free_groups", lambda of_dead: 0)

    def nodes_of(*cores, free=None, after=0.0):
        nodes = {f"n{at}": {"CPU": float(number)} for at, number in enumerate(cores, start=1)}
        slots = attempts.resources.fit([*nodes.values()])

        def living_nodes(unfit=()):
            return [nodes[name] for name in nodes if name not in unfit]

        monkeypatch.setattr(module, "living_nodes", living_nodes)
        monkeypatch.setattr(module, "slots_now", lambda resources, unfit=(): (slots, slots))

        def free_workers(needs, unfit=()):
            """Where groups that have begun fill the nodes in order; else what is `free`."""
            if free is not None:
                return free
            left = {name: node["CPU"] for name, node in nodes.items()}
            for attempt in attempts.live.values():
                workers = attempt.workers if attempt.begun else 0
                for name in (name for name in nodes if name not in attempt.avoids):
                    taken = min(workers, left[name])
                    left[name], workers = left[name] - taken, workers - taken
            return int(sum(number for name, number in left.items() if name not in unfit))

        monkeypatch.setattr(module, "free_workers", free_workers)
        now[0] += after
        attempts.check()

    attempts.wishes = SimpleNamespace(ask=SimpleNamespace(remote=lambda one: attempts.told(one)))
    attempts.asked = []
    attempts.told = attempts.asked.append
    return nodes_of


def all_work_waits(attempts, monkeypatch):
    """Also that of the trials ahead."""
    search = attempts.events.search
    monkeypatch.setattr(type(search), "work_ahead", Search.work_ahead)
    monkeypatch.setattr(search, "share", partial(type(search).share, search))


def formed(attempts, tune_id):
    trial = begin(attempts, tune_id)
    attempts.formed(tune_id)
    return trial, attempts.live[tune_id].workers


def leaves(attempts, tune_id, *, wished=True, step=9):
    """At its next checkpoint."""
    attempts.reported(tune_id, Progress(step, 10**6, (), None))
    attempts.reported(tune_id, end_of(Leaves(Leave(wished, Saved((0, step), 0.0)))))
    attempts.completed(tune_id)


def test_a_group_has_the_share_of_the_room_that_its_trial_has_of_the_work(
    attempts, nodes_of, monkeypatch
):
    shares = iter([0.25, 0.9, 0.01, 1.0])
    all_work_waits(attempts, monkeypatch)
    monkeypatch.setattr(attempts.events.search, "share", lambda trial, beside: next(shares))
    nodes_of(4, 4)
    assert [formed(attempts, tune_id)[1] for tune_id in "abcd"] == [2, 4, 1, 1]


@pytest.mark.parametrize(
    ("room", "share", "trials", "at_least", "workers"),
    [
        (8, 0.5, 3, 0, 4),  # its share
        (8, 0.0, 3, 0, 2),  # what no other can take
        (8, 0.0, 3, 5, 5),  # what it had
        (8, 1.0, 3, 0, 6),  # less what two others need to start
        (20, 1.0, 1, 0, 8),  # the most
        (0, 1.0, 1, 0, 1),  # the fewest
    ],
)
def test_each_term_of_the_size_of_a_group(room, share, trials, at_least, workers):
    resources = replace(SLOTS, num_workers=8, min_workers=1)
    assert resources.group(room, share, trials, at_least) == workers


def test_groups_leave_no_room_that_no_other_trial_can_take(attempts, nodes_of, monkeypatch):
    all_work_waits(attempts, monkeypatch)
    monkeypatch.setattr(attempts.events.search, "share", lambda trial, beside: 0.0)
    attempts.resources = replace(attempts.resources, num_workers=8, min_workers=3)
    nodes_of(8)
    assert [formed(attempts, tune_id)[1] for tune_id in "ab"] == [4, 4]
    assert free_for(attempts, nodes_of, 8, seconds=9 * module.GROW_SECONDS) == 0


def test_trials_that_run_again_share_the_room(attempts, nodes_of, monkeypatch):
    all_work_waits(attempts, monkeypatch)
    nodes_of(4, 4)
    first = [formed(attempts, tune_id)[1] for tune_id in "abcd"]
    assert attempts.events.search.work_ahead[0] == 0 and sum(first) == 8
    attempts.interrupt(RuntimeError("Tune broke down"))
    nodes_of(4, 4, after=module.FREE_SECONDS)
    again = [formed(attempts, f"{tune_id} again")[1] for tune_id in "abcd"]
    assert sum(again) == 8 and len(again) == 4


def test_a_group_has_as_many_workers_as_there_are_and_never_waits_for_those_of_others(
    attempts, nodes_of
):
    nodes_of(2, 1)
    assert formed(attempts, "a")[1] == 3 and attempts.next("b") is None
    nodes_of(2, 1, 3, after=module.CHECK_SECONDS)
    assert formed(attempts, "b")[1] == 3  # a trial that waits comes before a larger group
    attempts.reported("a", End(TrialStatus.DIVERGED, reason="x"))
    attempts.completed("a")
    nodes_of(4, 4, after=module.CHECK_SECONDS)
    assert formed(attempts, "c")[1] == 4
    assert state(attempts, attempts.live["c"].trial).attempts[-1].workers == 4


def test_a_group_goes_on_with_fewer_workers_after_a_node_is_lost(attempts, nodes_of, monkeypatch):
    seconds = [1000.0]
    monkeypatch.setattr(records, "_now", lambda: int(1000 * seconds[0]))
    nodes_of(1, 1)
    trial, workers = formed(attempts, "a")
    seconds[0] += 60.0
    lost(attempts, "a")
    nodes_of(1, after=module.CHECK_SECONDS)
    assert (workers, *formed(attempts, "b")) == (2, trial, 1)
    [first, second] = state(attempts, trial).attempts
    assert (first.status, first.workers, second.workers) == ("failed", 2, 1)
    seconds[0] += 30.0
    lost(attempts, "b")
    assert state(attempts, trial).slot_seconds() == 2 * 60.0 + 30.0


def test_a_group_leaves_at_a_checkpoint_for_room_that_stays_free(attempts, nodes_of):
    """That is no failure, and no further attempt."""
    nodes_of(1)
    trial, _ = formed(attempts, "a")
    nodes_of(1, 1, after=module.CHECK_SECONDS)
    assert attempts.asked == []
    nodes_of(1, 1, free=0, after=module.GROW_SECONDS)  # another job's
    nodes_of(1, 1, after=module.CHECK_SECONDS)
    assert attempts.asked == []
    for _ in range(3):
        nodes_of(1, 1, after=module.GROW_SECONDS)
    assert attempts.asked == ["a"]
    leaves(attempts, "a")
    assert not failures(attempts) and attempts.events.search.told == []
    assert formed(attempts, "b") == (trial, 2)
    ended = state(attempts, trial)
    assert (ended.num_attempts, ended.status) == (1, "running")
    assert ended.attempts[0].status == "resized"
    assert ended.attempts[0].reason == "room for more workers; checkpoint of step 9, 0.0 s old"


def test_a_drained_group_that_was_asked_to_leave_is_a_failure(attempts, nodes_of):
    """Its node ends it, with a state or without one; it is no further attempt only on its wish."""
    nodes_of(1)
    trial, _ = formed(attempts, "a")
    for _ in range(3):
        nodes_of(1, 1, after=module.GROW_SECONDS)
    assert attempts.asked == ["a"]
    leaves(attempts, "a", wished=False)
    assert state(attempts, trial).attempts[0].status == "failed"
    assert [failure.kind for failure in failures(attempts)] == ["node lost"]


def test_a_group_has_no_workers_on_a_node_where_its_trial_has_failed(attempts, nodes_of):
    """It does not leave for room there, either."""
    nodes_of(1, 2)  # its process is on the first
    trial, workers = formed(attempts, "a")
    attempts.reported("a", FAULT)
    attempts.completed("a")
    assert (workers, *formed(attempts, "b")) == (3, trial, 2)
    for _ in range(3):
        nodes_of(1, 2, after=module.GROW_SECONDS)
    assert attempts.asked == []
    for _ in range(3):
        nodes_of(1, 2, 1, after=module.GROW_SECONDS)
    assert attempts.asked == ["b"]


def free_for(attempts, nodes_of, *cores, seconds, **free):
    """Checks while so many workers' room is free, for some seconds; how often a group was asked."""
    before = len(attempts.asked)
    for _ in range(int(seconds / module.CHECK_SECONDS)):
        nodes_of(*cores, after=module.CHECK_SECONDS, **free)
    return len(attempts.asked) - before


def test_a_group_asks_only_for_what_another_job_leaves_free(attempts, nodes_of):
    """Of 8 cores another job has 5, and then 4; for the fewest it waits for them."""
    nodes_of(8, free=3)
    assert formed(attempts, "a")[1] == 3
    nodes_of(8, free=1, after=module.CHECK_SECONDS)
    assert free_for(attempts, nodes_of, 8, free=1, seconds=module.GROW_SECONDS) == 1
    leaves(attempts, "a")
    nodes_of(8, free=4, after=module.FREE_SECONDS)
    assert formed(attempts, "b")[1] == 4
    nodes_of(8, free=0, after=module.FREE_SECONDS)
    begin(attempts, "c")
    assert attempts.live["c"].workers == 1


def test_a_group_that_has_left_for_nothing_waits_twice_as_long_before_the_next_time(
    attempts, nodes_of
):
    nodes_of(8, free=2)
    trial, workers = formed(attempts, "0")
    nothing_else_waits(attempts)
    for number in range(3):
        wait = module.GROW_SECONDS * 2**number
        assert free_for(attempts, nodes_of, 8, free=1, seconds=wait) == 0
        assert free_for(attempts, nodes_of, 8, free=1, seconds=2 * module.CHECK_SECONDS) == 1
        leaves(attempts, str(number))
        nodes_of(8, free=3, after=module.FREE_SECONDS)
        begin(attempts, "in vain")
        assert attempts.live["in vain"].workers == 3
        attempts.got_no_workers("in vain")  # another job was faster
        attempts.completed("in vain")
        nodes_of(8, free=2, after=module.FREE_SECONDS)
        assert formed(attempts, str(number + 1)) == (trial, workers)
    assert free_for(attempts, nodes_of, 8, free=2, seconds=9 * module.GROW_SECONDS) == 1
    leaves(attempts, "3")
    nodes_of(8, free=4, after=module.FREE_SECONDS)
    formed(attempts, "more")
    assert attempts._growth[trial.name].patience == 1


def test_the_next_trial_waits_a_moment_for_the_workers_of_the_last_one(attempts, nodes_of):
    nodes_of(4)
    formed(attempts, "a")
    attempts.reported("a", End(TrialStatus.DIVERGED, reason="x"))
    attempts.completed("a")
    nodes_of(4, free=1, after=module.CHECK_SECONDS)  # Ray has freed one so far
    assert attempts.next("b") is None
    nodes_of(4, free=4)
    assert formed(attempts, "b")[1] == 4


def test_a_group_that_does_not_leave_holds_up_no_other(attempts, nodes_of):
    attempts.resources = replace(attempts.resources, num_workers=2, cpus=0.9)
    nodes_of(1)
    formed(attempts, "a")
    nodes_of(1, 1, after=module.GROW_SECONDS)
    assert formed(attempts, "b")[1] == 1
    wait = module.GROW_SECONDS + 2 * module.CHECK_SECONDS
    assert free_for(attempts, nodes_of, 1, 1, 1, seconds=wait, free=1) == 1
    held = module.WISH_SECONDS - 2 * module.CHECK_SECONDS
    assert free_for(attempts, nodes_of, 1, 1, 1, seconds=held, free=1) == 0
    assert free_for(attempts, nodes_of, 1, 1, 1, seconds=10 * held, free=1) == 1
    assert attempts.asked == ["a", "b"]


@pytest.mark.parametrize("without", ["checkpoints", "training"])
def test_a_group_that_saves_nothing_is_not_asked_to_leave(attempts, nodes_of, monkeypatch, without):
    if without == "checkpoints":
        attempts.nodes.checkpoint = CheckpointLoad(minutes=0.0)
    else:
        monkeypatch.setattr(module, "model_class", lambda name: SimpleNamespace(trains=False))
    nodes_of(1)
    formed(attempts, "a")
    assert free_for(attempts, nodes_of, 1, 1, seconds=4 * module.GROW_SECONDS) == 0


def test_a_trial_that_avoids_a_node_gets_the_workers_of_another_that_is_free(attempts, nodes_of):
    """Those of another trial are on the node that it avoids."""
    nodes_of(4, 4)
    assert formed(attempts, "a")[1] == formed(attempts, "b")[1] == 4
    other = attempts.live["b"].trial
    attempts.reported("b", FAULT)  # on n1, as all processes here
    attempts.completed("b")
    assert formed(attempts, "c") == (other, 4)


def test_a_trial_that_meets_a_node_that_prepares_avoids_it_only_until_it_is_placed_again(
    attempts, monkeypatch
):
    """It waits a while before that, since it may be placed there again."""
    now, living = [1000.0], {"n1", "n2"}
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(module, "cluster_address", lambda: "ray://x")
    monkeypatch.setattr(module, "can_run", lambda resources, out=(): bool(living - {*out}))
    monkeypatch.setattr(module, "slots_now", lambda resources, out: (len(living - {*out}),) * 2)
    attempts.nodes.waiting = {"n2": "host-b"}
    attempts.check()
    trial = begin(attempts, "a")
    attempts.unfit("a", Unfit("n2", "host-b", "it prepares its inputs", for_now=True))
    attempts.completed("a")
    other = begin(attempts, "b")
    assert other is not trial
    attempts.reported("b", End(TrialStatus.DIVERGED, reason="x"))
    attempts.completed("b")
    now[0] += module.PREPARE_SECONDS
    assert attempts.next("c") is trial
    living.discard("n1")  # is preempted, and n2 is ready
    attempts.nodes.waiting = {}
    for _ in range(int(2 * module.WARN_SECONDS / module.CHECK_SECONDS)):
        now[0] += module.CHECK_SECONDS
        attempts.check()  # no trial is given up: this one may run on n2


def test_a_group_that_gets_no_further_workers_waits_for_fewer(attempts, nodes_of):
    """The others of the cluster may be another job's."""
    nodes_of(4)
    trial = begin(attempts, "a")
    nothing_else_waits(attempts)
    attempts.got_no_workers("a")
    attempts.completed("a")
    nodes_of(4, after=module.CHECK_SECONDS)
    assert formed(attempts, "b") == (trial, 2)
    assert state(attempts, trial).num_attempts == 1


def test_the_number_of_trials_at_a_time_follows_the_nodes_and_says_so(attempts, monkeypatch):
    now, nodes = [1000.0], [(2, 2)]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(module, "slots_now", lambda resources, unfit=(): nodes[0])
    monkeypatch.setattr(module, "can_run", lambda *needs: True)
    told = []
    for here, most in [(2, 2), (3, 3), (3, 3), (1, 1), (1, 4)]:
        nodes[0], now[0] = (here, most), now[0] + module.CHECK_SECONDS
        attempts.check()
        told.append(attempts.slots)
    assert told == [2, 3, 3, 1, 4]
    text = attempts.events.screen.out.getvalue()
    assert text.count("nodes have joined: 3 slots, 2 before") == 1
    assert text.count("nodes have left: 1 slot, 3 before") == 1
    assert [bool(attempts.next(str(number))) for number in range(5)] == [True] * 4 + [False]


def test_an_out_of_memory_kill_counts_against_the_dead_and_takes_a_slot_away(attempts, monkeypatch):
    monkeypatch.setattr(module, "MEMORY_SECONDS", 0.0)
    victim, other = begin(attempts, "a", actor="dead"), begin(attempts, "b")
    attempts.interrupt(OutOfMemoryError("95% of the memory is in use"))
    [failure] = state(attempts, victim).attempts
    assert failure.kind == "host memory" and len(failures(attempts)) == 1
    assert attempts.slots == 1 and not attempts.live
    again = []
    for tune_id in ("c", "d"):
        again.append(attempts.next(tune_id))
        attempts.live.pop(tune_id)
    assert {trial.name for trial in again} == {victim.name, other.name}


@pytest.mark.parametrize("actor", ["alive", "dead"])
def test_a_breakdown_of_tune_alone_uses_up_no_attempt(attempts, actor):
    """Neither of a trial that ran on, nor of one whose process went down with Tune."""
    victim = begin(attempts, "a", actor=actor)
    attempts.interrupt(RuntimeError("Tune broke down"))
    assert not failures(attempts) and attempts.slots == SLOTS.slots and not attempts.live
    assert attempts.next("b") is victim


def test_a_process_killed_for_memory_as_it_starts_takes_a_slot_away_and_waits(
    attempts, monkeypatch
):
    now = [1000.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    victim = attempts.next("a")
    attempts.failed("a", OutOfMemoryError("95% of the memory is in use"))
    assert [failure.kind for failure in failures(attempts)] == ["host memory"]
    assert attempts.slots == 1
    other = attempts.next("b")
    assert other is not victim
    attempts.live.pop("b")
    now[0] += module.MEMORY_SECONDS
    assert attempts.next("c") is victim


def test_it_is_over_when_nothing_runs_waits_or_comes_again(attempts):
    for number in range(4):
        trial = begin(attempts, str(number))
        assert not attempts.over
        if number == 3:
            lost(attempts, "3")
            assert attempts.events.search.over and not attempts.over
            assert begin(attempts, "3") is trial
        fails(attempts, str(number))
    assert attempts.over


def test_the_failures_of_a_report_are_numbered_without_the_changes_of_size(attempts, nodes_of):
    """As the number of its attempts is."""
    nodes_of(1)
    trial, _ = formed(attempts, "a")
    leaves(attempts, "a")
    nodes_of(1, 1, after=module.FREE_SECONDS)
    formed(attempts, "b")
    lost(attempts, "b")
    own = state(attempts, trial)
    assert own.num_attempts == 1
    assert failure_table([own])["attempt"].tolist() == [1]
