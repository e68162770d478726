"""The attempts of a sweep's trials: the running ones, and those that run again."""

import math
import time
from collections import defaultdict, deque
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from rank_core.models import model_class
from rank_core.trial.trial import Progress
from sweeps.engine.trial_events import TrialEvents
from sweeps.engine.trial_task import End, News
from sweeps.plan.flags import MOST_WORKERS
from sweeps.plan.options import cluster_address
from sweeps.plan.plan import Trial
from sweeps.plan.resources import Resources
from sweeps.ray_engine.cluster import (
    can_run,
    free_groups,
    free_text,
    free_workers,
    hosts,
    living_nodes,
    node_of,
    slots_now,
)
from sweeps.ray_engine.nodes import Nodes, Unfit
from sweeps.ray_engine.trial_process import WAIT_SECONDS, kind_of_error
from sweeps.store.failures import LIMITS, FailureKind, Failures, first_line
from sweeps.store.trial_status import TrialStatus
from sweeps.terminal.text import duration, numbered

CHECK_SECONDS = 2.0  # between checks of the nodes
WARN_SECONDS = 60.0  # between messages about a wait for a node
TELL_SECONDS = 10.0  # that a trial waits for its workers before it is said for what
GROW_SECONDS = 30.0  # that room for more workers stays free before a group leaves for it
WISH_SECONDS = 300.0  # for a group that was asked to leave, before others are asked
FREE_SECONDS = 10.0  # for Ray to free the workers of a trial that has ended
PREPARE_SECONDS = 10.0  # before a trial that met a node that prepares is placed again
SICK_TRIALS = 3  # different ones that fail on a node before it is left out
FAULTS_OF_NODES = ("device", "process died", "host memory")
"""Kinds of failure that another node may not have."""
MEMORY_SECONDS = 15.0  # before a trial that ran out of memory runs again

NOT_THE_PROCESS = (
    f"{LIMITS['device'] + 1} times, each in a new process: the cause is the trial's settings or "
    "the GPU; CUDA_LAUNCH_BLOCKING=1 with --engine local shows the line"
)


class Unplaced(RuntimeError):
    """A trial cannot be placed as Tune was asked to."""


class NoNode(RuntimeError):
    """No living node can run a trial, and none has joined."""


@dataclass
class _Attempt:
    """A trial passed to Tune."""

    trial: Trial
    slot: int = 0  # its place among those that run at a time
    workers: int = 1
    avoids: frozenset[str] = frozenset()  # nodes where it must not run
    actor: str = ""  # Ray's id of its process, if any
    nodes: tuple[str, ...] = ()  # of its workers
    step: int = 0  # the last one that it has reported
    waits: float | None = None  # since when for its workers
    begun: bool = False
    settled: bool = False  # it has reported its end
    room: float | None = None  # since when for more workers
    asked: float | None = None  # when to go on with more workers

    def waits_or_leaves(self, now: float) -> bool:
        """Whether it waits for its workers, or was just asked to go on with more."""
        if self.asked is not None and now - self.asked < WISH_SECONDS:
            return True
        return not (self.begun or self.settled)


@dataclass
class _Growth:
    """What a trial has got of more workers, over its attempts."""

    patience: int = 1  # times `GROW_SECONDS` before it leaves for room
    left_with: int = 0  # workers, when it left for more; 0 once it has begun again
    at_most: int = MOST_WORKERS  # of a next group: a larger one got no workers
    begun: bool = False  # an attempt of it, by this command


class Attempts:
    """The running attempts by Tune's ids, and the trials that run again."""

    def __init__(self, events: TrialEvents, resources: Resources, nodes: Nodes) -> None:
        self.events, self.resources, self.nodes = events, resources, nodes
        self.needs = resources.needs  # of each worker
        self.wishes: Any = None  # the actor that tells elastic groups to leave
        self._growth: dict[str, _Growth] = defaultdict(_Growth)  # by trial
        self._changed = -math.inf  # when an attempt was last passed to Tune, or ended
        self._most = resources.slots  # trials at a time for which there are nodes, or may be
        self._here: int | None = None  # those for which there are nodes
        self._fewer = 0  # after faults of memory
        self.live: dict[str, _Attempt] = {}
        self.failures = Failures()
        self._again: deque[tuple[float, Trial]] = deque()  # and not before when
        self._behind: deque[Trial] = deque()  # which got no workers: after all others
        self._checked = self._warned = 0.0
        self._without_node: float | None = None  # since when
        self._stuck: float | None = None  # since when a trial waits for nodes that have left
        self._failed_on: dict[str, set[str]] = {}  # {trial: nodes where it had a fault of a node}
        self._faults: dict[str, set[str]] = {}  # {node: trials with one since one has ended there}
        self._proved: set[str] = set()  # nodes where a trial has ended

    @property
    def slots(self) -> int:
        """The number of trials to start at a time; it follows the cluster."""
        return max(1, self._most - self._fewer)

    @property
    def over(self) -> bool:
        """True if no trial runs or will run."""
        waiting = self._again or self._behind
        return self.events.search.over and not self.live and not waiting

    def next(self, tune_id: str) -> Trial | None:
        """The trial that Tune starts next, if a slot is free; those that run again come first,
        those that waited in vain for their workers last."""
        if len(self.live) >= self.slots or self._all_prepare() or not self._has_place():
            return None
        due = next((item for item in self._again if item[0] <= time.monotonic()), None)
        if due:
            self._again.remove(due)
        trial = due[1] if due else self.events.search.next(self.slots)
        if not trial and self._behind:
            trial = self._behind.popleft()
        if trial:
            # The process of a slot goes from trial to trial. Were it any free process, a trial that
            # waits for the first one of a new slot would be given each that is free, and no process
            # would ever start there.
            taken = {attempt.slot for attempt in self.live.values()}
            slot = next(number for number in count() if number not in taken)
            avoids = self._avoided(trial)
            self.live[tune_id] = _Attempt(trial, slot, self._workers(trial, avoids), avoids)
            self._changed = time.monotonic()
            self.events.screen.launched(trial)
        return trial

    def _room(self, avoids: frozenset[str]) -> int:
        """The workers for which there is room now on all nodes but these: beside those of other
        trials, of which some may still wait for theirs, and beside what others run there."""
        live, never = self.live.values(), self.nodes.waiting.keys()
        there = sum(one.workers for one in live if avoids <= one.avoids | never)
        waiting = sum(one.workers for one in live if not (one.begun or one.settled))
        held = self.resources.workers(living_nodes(avoids))
        return max(0, min(held - there, free_workers(self.needs, avoids) - waiting))

    def _has_place(self) -> bool:
        """Whether a further trial has a place beside those of this sweep, now or on nodes that may
        join. Where other jobs use that place, the trial starts and waits for it."""
        resources, avoids = self.resources, self.nodes.without_trials
        if not resources.min_workers:
            return True
        nodes, least, room = living_nodes(avoids), resources.least, self._room(avoids)
        left = resources.workers(nodes) - sum(one.workers for one in self.live.values())
        # Ray frees the workers of a trial a moment after its end.
        if room < min(left, resources.num_workers) and self._since_change() < FREE_SECONDS:
            return False
        may_join = max(0, self._most - resources.fit(nodes)) * least
        return max(room, left + may_join) >= least

    def _since_change(self) -> float:
        """The seconds since the last attempt began to wait, or ended."""
        return time.monotonic() - self._changed

    def _workers(self, trial: Trial, avoids: frozenset[str], has: int = 0) -> int:
        """The workers of a trial's next attempt, of those that it `has` and of the free room. It
        waits for the fewest alone, of other jobs or of an autoscaler."""
        resources, search, growth = self.resources, self.events.search, self._growth[trial.name]
        if not resources.min_workers:
            return resources.num_workers
        room = self._room(avoids | self.nodes.waiting.keys()) + has
        beside = [*(one for _, one in self._again), *self._behind]
        places = self.slots - len(self.live) + bool(has)  # its own among them
        trials = max(1, min(places, 1 + search.work_ahead[0] + len(beside)))
        workers = resources.group(room, search.share(trial, beside), trials, growth.left_with)
        return workers if has else max(resources.least, min(workers, growth.at_most))

    def _grow(self, now: float) -> None:
        """Asks the smallest group to go on with more workers, where room for them has been free for
        a while: no trial waits for it. One after the other, as each may take all of it."""
        busy = any(one.waits_or_leaves(now) for one in self.live.values())
        ready = []
        for tune_id, one in self.live.items():
            if busy or not self._may_grow(one):
                one.room = None
                continue
            one.room = now if one.room is None else one.room
            if now - one.room >= GROW_SECONDS * self._growth[one.trial.name].patience:
                ready.append((one.workers, tune_id))
        if ready:
            _, tune_id = min(ready)
            self.live[tune_id].asked = now
            self.wishes.ask.remote(tune_id)

    def _may_grow(self, attempt: _Attempt) -> bool:
        """Whether its next group would be larger, and it can leave for it and has not been asked.
        One that does not leave is not asked again."""
        if attempt.settled or attempt.asked or attempt.workers >= self.resources.num_workers:
            return False
        if not (self.nodes.checkpoint.minutes and _saves(attempt.trial)):
            return False
        avoids = self._avoided(attempt.trial)
        return self._workers(attempt.trial, avoids, attempt.workers) > attempt.workers

    def _all_prepare(self) -> bool:
        """Whether all nodes that can run a trial still prepare their inputs."""
        without = self.nodes.without_trials
        return bool(self.nodes.waiting) and not can_run(self.resources, without)

    def _avoided(self, trial: Trial) -> frozenset[str]:
        """The nodes that cannot work, and those on which this trial has failed while others can run
        it. One that still prepares refuses a trial itself: to avoid it would be for good."""
        failed, unfit = self._failed_on.get(trial.name, set()), frozenset(self.nodes.unfit)
        if failed and can_run(self.resources, failed | self.nodes.without_trials):
            return unfit | failed
        return unfit

    def _note_fault(self, trial: Trial, node: str, kind: FailureKind) -> None:
        """Leaves a node out once several trials in a row have failed on it. Where a trial has ended
        before, only faults of a device count: the others may be due to the trials."""
        self._failed_on.setdefault(trial.name, set()).add(node)
        if kind != "device" and node in self._proved:
            return
        self._faults.setdefault(node, set()).add(trial.name)
        number = len(self._faults[node])
        if number < SICK_TRIALS or node in self.nodes.unfit:
            return
        if can_run(self.resources, self.nodes.unfit.keys() | {node}):
            why = f"{numbered(number, 'trial')} failed there, and none has ended since"
            host = f"{hosts().get(node, '')} ({node[:8]})"
            self.events.screen.tell(self.nodes.reject(Unfit(node, host, why)))

    def _check_placed(self, now: float) -> None:
        """Raises `Unplaced` where a trial waits for nodes that have left, and the others are those
        that it avoids: Tune has no way to ask for other ones."""
        stuck = any(
            attempt.avoids - self.nodes.unfit.keys()
            and not attempt.begun
            and not can_run(self.resources, attempt.avoids)
            for attempt in self.live.values()
        )
        self._stuck = (self._stuck or now) if stuck else None
        if self._stuck and now - self._stuck >= WARN_SECONDS:
            self._stuck = None
            raise Unplaced("the nodes that a trial waits for have left")

    def check(self) -> None:
        """Check the nodes. Raises `NoNode` if no living node can run a trial: on this machine at
        once, on a cluster after `WAIT_SECONDS` with messages about the wait."""
        self.events.screen.heartbeat()
        now = time.monotonic()
        if now - self._checked < CHECK_SECONDS:
            return
        self._checked = now
        self._follow_cluster()
        if self.resources.num_workers > 1:
            self._tell_waiting(now, waiting=free_groups(of_dead=True))
        if self.resources.min_workers:
            self._grow(now)
        self._check_placed(now)
        if can_run(self.resources, self.nodes.unfit):
            self._without_node = None
            return
        if cluster_address() is None:
            raise NoNode("Ray has died on this machine")
        # A cluster may replace its nodes: a wait begins, and ends with the first node that can run
        # a trial.
        if self._without_node is None:
            self._without_node = self._warned = now
        waited = now - self._without_node
        if waited >= WAIT_SECONDS:
            why = f"for {duration(waited)} no node of the cluster could run a trial"
            raise NoNode(f"{why}{self._unfit_text()}")
        if now - self._warned >= WARN_SECONDS:
            self._warned = now
            self.events.screen.tell(
                f"waiting for a node that can run a trial: {duration(waited)} of "
                f"{duration(WAIT_SECONDS)}{self._unfit_text()}"
            )

    def _unfit_text(self) -> str:
        return f" ({self.nodes.reasons()})" if self.nodes.unfit else ""

    def _follow_cluster(self) -> None:
        """Takes in how many trials the nodes hold that live now, and says where that changes."""
        for line in self.nodes.look(self.slots):
            self.events.screen.tell(line)
        before = self._here
        self._here, self._most = slots_now(self.resources, self.nodes.without_trials)
        if self.nodes.waiting:  # a trial that avoids them would wait for other nodes
            self._most = self._here
        if before is not None and self._here != before:
            why = "nodes have joined" if self._here > before else "nodes have left"
            self.events.screen.tell(f"{why}: {numbered(self._here, 'slot')}, {before} before")

    def _tell_waiting(self, now: float, waiting: int) -> None:
        """What the trials wait for whose process drives a group that has no workers yet."""
        amounts = {
            "CPU": self.resources.cpus,
            self.resources.accelerator or "GPU": self.resources.gpus,
        }
        each = " and ".join(f"{n:g} {name}" for name, n in amounts.items() if n)
        for attempt in self.live.values():
            if attempt.waits is None or now - attempt.waits < TELL_SECONDS:
                continue
            what = "its workers start"
            if waiting:
                free = free_text(self.needs)
                workers = numbered(attempt.workers, "worker")
                what = f"waiting for {workers} with {each} each ({free})"
            self.events.screen.waits(attempt.trial, what)

    def started(self, tune_id: str, actor: str) -> None:
        """Its process has started. With it begins the attempt, but on a cluster: there it begins
        once its workers live, on nodes that can work. A wait for them is none."""
        attempt = self.live[tune_id]
        attempt.actor = actor
        one = self.resources.num_workers == 1
        if one and not self.nodes.expected:
            self._begin(attempt)
        else:
            attempt.waits = time.monotonic()
            what = "its node is checked" if one else "waiting for its workers"
            self.events.screen.waits(attempt.trial, what)

    def formed(self, tune_id: str, nodes: tuple[str, ...] = ()) -> None:
        """Its workers live, on these nodes, which can work."""
        self.live[tune_id].nodes = nodes
        self._begin(self.live[tune_id])

    def got_no_workers(self, tune_id: str) -> None:
        """Its group got no workers in all its time: the trial waits again, for fewer where it needs
        fewer, as others may use the cluster. One that waited for the fewest and has not begun
        waits behind the others."""
        attempt = self.live[tune_id]
        growth, workers = self._growth[attempt.trial.name], attempt.workers
        fewer = growth.left_with if 0 < growth.left_with < workers else workers // 2
        growth.at_most = max(self.resources.least, fewer)
        if workers > self.resources.least or growth.begun:
            self._wait_again(attempt)
        else:
            attempt.settled = True
            self._behind.append(attempt.trial)

    def _wait_again(self, attempt: _Attempt, seconds: float = 0.0) -> None:
        attempt.settled = True
        self._again.append((time.monotonic() + seconds, attempt.trial))

    def unfit(self, tune_id: str, report: Unfit) -> None:
        """Its process is on a node that cannot work, or not yet: the trial waits for another."""
        self._wait_again(self.live[tune_id], PREPARE_SECONDS if report.for_now else 0.0)
        if report.for_now:
            what = f"waiting until {report.host} has prepared its inputs"
            self.events.screen.waits(self.live[tune_id].trial, what)
            self._follow_cluster()  # now: the next trial must not go there
        elif line := self.nodes.reject(report):
            self.events.screen.tell(line)

    def _begin(self, attempt: _Attempt) -> None:
        if not attempt.begun:
            attempt.begun, attempt.waits = True, None
            self.events.started(attempt.trial, attempt.workers)
            growth = self._growth[attempt.trial.name]
            growth.begun = True
            if growth.left_with:  # if for nothing, it waits twice as long before the next time
                more = attempt.workers > growth.left_with
                growth.patience, growth.left_with = 1 if more else 2 * growth.patience, 0
            if self.resources.min_workers:
                on = f"on {numbered(attempt.workers, 'worker')}"
                self.events.screen.tell(on, attempt.trial)

    def reported(self, tune_id: str, report: News, *, stopped: bool = False) -> None:
        """The progress of a trial, with which ASHA may have `stopped` it, or its end as reported by
        its process."""
        attempt = self.live[tune_id]
        if attempt.settled:  # a group of workers that failed after its end
            return
        self._begin(attempt)  # a group that failed before it formed
        if isinstance(report, Progress):
            attempt.step = report.step
            self.events.reported(attempt.trial, report)
            if stopped:
                attempt.settled = True
                reason = f"by ASHA at step {report.step} of {report.num_steps}"
                host, _ = _place(attempt.actor)
                end = End(TrialStatus.STOPPED, reason=reason, host=host)
                self.events.ended(attempt.trial, end)
        elif report.status is not TrialStatus.FAILED:
            attempt.settled = True
            for node in attempt.nodes or (node_of(attempt.actor)[0],):
                self._proved.add(node)
                self._faults.pop(node, None)
            self.events.ended(attempt.trial, report)
        elif report.left and report.left.wished:
            attempt.settled = True
            self._again.appendleft((0.0, attempt.trial))
            self._growth[attempt.trial.name].left_with = attempt.workers
            self._growth[attempt.trial.name].at_most = MOST_WORKERS
            self.events.resized(attempt.trial, f"room for more workers; {report.left.text}")
        else:
            self._fail(attempt, report)

    def completed(self, tune_id: str) -> None:
        """Its process has ended."""
        attempt = self.live[tune_id]
        if not attempt.settled:
            self._begin(attempt)
            end = End(TrialStatus.FAILED, reason="the trial ended without a result", host="")
            self._fail(attempt, end)
        self._gone(tune_id)  # last: Ray may not answer in between

    def failed(self, tune_id: str, error: Exception | None) -> None:
        """Its process or node is lost."""
        attempt = self.live[tune_id]
        attempt.actor = attempt.actor or getattr(error, "actor_id", None) or ""
        if not attempt.settled:
            self._begin(attempt)  # it died before it began
            self._fail(attempt, _death(error))
        self._gone(tune_id)  # last: Ray may not answer in between

    def _gone(self, tune_id: str) -> _Attempt:
        self._changed = time.monotonic()
        return self.live.pop(tune_id)

    def unlaunched(self, tune_id: str) -> None:
        """Its process could not start it, which does not count as an attempt."""
        self._again.append((0.0, self._gone(tune_id).trial))

    def interrupt(self, error: Exception) -> None:
        """Tune itself has failed: running trials run again; an attempt is counted for those whose
        process died. Ray's memory monitor ends Tune this way without naming the killed process."""
        memory = kind_of_error(error) == "host memory"
        for tune_id in list(self.live):
            attempt = self._gone(tune_id)
            if attempt.settled:
                continue
            # Only the trial whose process is gone has used up an attempt; the others are victims of
            # Tune's end.
            if memory and attempt.begun and not node_of(attempt.actor)[1]:
                self._fail(attempt, _death(error), slot=False)
            else:
                self._again.append((0.0, attempt.trial))
                if attempt.begun:
                    self.events.gave_up(attempt.trial)
        if memory:
            self._fewer_slots()

    def _fewer_slots(self) -> None:
        if self.slots > 1:
            self._fewer += 1
            self.events.screen.tell(
                f"out of memory: {numbered(self.slots, 'trial')} at a time from now on"
            )

    def _fail(self, attempt: _Attempt, end: End, *, slot: bool = True) -> None:
        """The end of an attempt by a fault; without memory it costs a `slot`."""
        host, node = _place(end.process or attempt.actor)
        failed_on = node_of(end.process or attempt.actor)[0]
        end = replace(end, host=end.host or host)
        attempt.settled = True
        again = self.failures.count(attempt.trial.name, end.kind, attempt.step)
        if again:
            # The processes that filled the memory need a moment to end; at once the trial would die
            # again.
            pause = MEMORY_SECONDS if end.kind == "host memory" else 0.0
            self._again.append((time.monotonic() + pause, attempt.trial))
        elif end.kind == "device":
            end = replace(end, reason=f"{end.reason}; {NOT_THE_PROCESS}")
        self.events.ended(attempt.trial, end, again=again, node=node)
        if failed_on and end.kind in FAULTS_OF_NODES:
            self._note_fault(attempt.trial, failed_on, end.kind)
        if slot and end.kind == "host memory":
            self._fewer_slots()


def _place(actor: str) -> tuple[str, str]:
    """The host of an actor's process and its node, of which a host may have several; "" where
    neither is known."""
    node, _ = node_of(actor)
    host = hosts().get(node, "") if node else ""
    return host, f"{host} ({node[:8]})" if node else ""


def _saves(trial: Trial) -> bool:
    """Whether a trial writes checkpoints, as one that trains does."""
    config = trial.config
    return model_class(config.model.name).trains and config.training.num_epochs > 0


def _death(error: Exception | None) -> End:
    return End(TrialStatus.FAILED, reason=first_line(error), kind=kind_of_error(error), host="")
