"""The attempts of a sweep's trials: what runs, what comes again, which nodes are avoided."""

import time
from collections import deque
from dataclasses import dataclass

from rank_core.trial.trial import Progress
from sweeps.engine.progress import Monitor
from sweeps.engine.trial_task import End, Report
from sweeps.plan.plan import Trial
from sweeps.ray_engine.cluster import Resources, able_nodes, hosts, node_of
from sweeps.ray_engine.trial_process import kind_of_error
from sweeps.search.feed import Feed
from sweeps.store.failures import Failure, Failures, first_line
from sweeps.store.trial_status import TrialStatus

STRANDED_SECONDS = 300  # without a node to go to, in which an autoscaler brings another one


class Stranded(RuntimeError):
    """All that waits keeps away from the only nodes there are."""


@dataclass
class _Attempt:
    """A trial that Tune has been given."""

    trial: Trial
    avoids: tuple[str, ...]  # Ray's ids of the nodes it must not go to
    actor: str = ""  # Ray's id of its process, once it has one
    stopped: bool = False  # the feed gave it up
    settled: bool = False  # it has told its end


class Attempts:
    """What the runner knows by Tune's ids of the attempts. No method but `interrupt` asks Ray
    anything as long as nothing fails."""

    def __init__(self, feed: Feed, monitor: Monitor, resources: Resources) -> None:
        self.feed, self.monitor, self.slots = feed, monitor, resources.slots
        self.needs = {"CPU": resources.cpus, "GPU": resources.gpus}  # of each worker
        self.alone = resources.num_workers == 1  # several workers may need every good node
        self.live: dict[str, _Attempt] = {}
        self.failures = Failures()
        self.avoided: tuple[str, ...] = ()  # Ray's ids of bad nodes
        self._again: deque[Trial] = deque()
        self._stranded_at: float | None = None

    @property
    def over(self) -> bool:
        """Nothing runs and nothing will."""
        return self.feed.over and not self.live and not self._again

    def next(self, tune_id: str) -> Trial | None:
        """The trial that Tune shall start now, if there is a slot for it."""
        if len(self.live) >= self.slots:
            return None
        trial = self._next()
        if trial:
            self.live[tune_id] = _Attempt(trial, self.avoid(trial))
            self.monitor.launched(trial)
        return trial

    def _next(self) -> Trial | None:
        """One that comes again goes before new ones, unless it has to wait for another node: the
        free one may be that which it failed on, and new trials tell whether that one is bad."""
        ready = [trial for trial in self._again if self.avoid(trial) == self.avoided]
        trial = ready[0] if ready else self.feed.next() or next(iter(self._again), None)
        if trial is not None and trial in self._again:
            self._again.remove(trial)
        return trial

    def avoid(self, trial: Trial) -> tuple[str, ...]:
        """Nodes that a trial must not go to: bad ones, and those it failed on again and again. A
        node that kills its trials is free first, and would take the same one until it is lost."""
        tried = self.failures.failed_on(trial.name) - set(self.avoided)
        if self.alone and tried and able_nodes(self.needs) - tried - set(self.avoided):
            return (*self.avoided, *sorted(tried))
        return self.avoided

    def check_stranded(self) -> None:
        """Raises `Stranded` where nothing runs, and for some time every living node has been one
        that each waiting trial keeps away from: what they were to go to is gone."""
        attempts = self.live.values()
        stands = attempts and all(one.avoids and not one.actor for one in attempts)
        able = able_nodes(self.needs) if stands else set()
        if not able or any(able - set(one.avoids) for one in attempts):
            self._stranded_at = None
            return
        self._stranded_at = self._stranded_at or time.monotonic()
        if time.monotonic() - self._stranded_at >= STRANDED_SECONDS:
            self._stranded_at = None
            raise Stranded("no other node is left: trials go back to those they failed on")

    def started(self, tune_id: str, actor: str) -> None:
        """Its process is there."""
        attempt = self.live[tune_id]
        attempt.actor = actor
        self.monitor.started(attempt.trial)

    def stops(self, tune_id: str, report: Report | None) -> bool:
        """Whether the feed gives the trial up after this report."""
        attempt = self.live[tune_id]
        if isinstance(report, Progress):
            attempt.stopped = self.feed.stop(attempt.trial, report)
        return attempt.stopped

    def reported(self, tune_id: str, report: Report) -> None:
        """News of a trial, or its end as its own process tells it."""
        attempt = self.live[tune_id]
        if attempt.settled:  # a group of workers that broke as it was sent home
            return
        if isinstance(report, Progress):
            self.monitor.news(attempt.trial, report)
        elif report.status is not TrialStatus.FAILED:
            attempt.settled = True
            self.monitor.finished(attempt.trial, report)
        else:
            self._fail(attempt, report)
            if report.kind == "host memory":  # of a worker; that of a trial's process ends Tune
                self._fewer_slots()

    def completed(self, tune_id: str) -> None:
        """Its process has come to its end, or was ended early."""
        attempt = self.live.pop(tune_id)
        if attempt.stopped:
            self.monitor.stopped(attempt.trial)
        elif not attempt.settled:
            self._fail(attempt, End(TrialStatus.FAILED, reason="the trial ended without a result"))
        self._tell_end(attempt.trial)

    def failed(self, tune_id: str, error: Exception | None) -> None:
        """Its process or its node is gone."""
        attempt = self.live[tune_id]
        if not attempt.actor:  # it died before it began
            self.started(tune_id, getattr(error, "actor_id", None) or "")
        del self.live[tune_id]
        if not attempt.settled:
            self._fail(attempt, _death(error))
        self._tell_end(attempt.trial)

    def unlaunched(self, tune_id: str) -> None:
        """The process that should have taken it could not: nobody's fault, and no attempt."""
        self._again.append(self.live.pop(tune_id).trial)

    def interrupt(self, error: Exception) -> None:
        """Tune itself has ended by an error: what ran is run again, and what the error took down
        is counted. Ray's memory monitor ends Tune this way, and does not say whose process it took:
        that is the one that is dead."""
        memory = kind_of_error(error) == "host memory"
        for tune_id in list(self.live):
            attempt = self.live.pop(tune_id)
            if attempt.settled:
                self._tell_end(attempt.trial)
            elif memory and attempt.actor and not node_of(attempt.actor)[1]:
                self._fail(attempt, _death(error))
                self._tell_end(attempt.trial)
            else:
                self._again.append(attempt.trial)
        if memory:
            self._fewer_slots()
        if isinstance(error, Stranded):
            self.avoided = tuple(self.failures.bad_nodes(able_nodes(self.needs)))
            self.monitor.tell(str(error))

    def _fewer_slots(self) -> None:
        if self.slots > 1:
            self.slots -= 1
            self.monitor.tell(f"out of memory: {self.slots} trial(s) side by side from now on")

    def _fail(self, attempt: _Attempt, end: End) -> None:
        attempt.settled = True
        node, _ = node_of(end.process or attempt.actor)
        failure = Failure(end.kind, end.reason, node, hosts().get(node, "") if node else "")
        again = self.failures.count(attempt.trial.name, failure)
        if again:
            self._again.append(attempt.trial)
        before, self.avoided = self.avoided, tuple(self.failures.bad_nodes(able_nodes(self.needs)))
        new = [f"{hosts()[node]} ({node[:8]})" for node in self.avoided if node not in before]
        self.monitor.failed(
            attempt.trial, failure, again=again, excluded=new, traceback=end.traceback
        )

    def _tell_end(self, trial: Trial) -> None:
        if trial.name in self.monitor.ended:
            self.feed.ended(trial, self.monitor.ended[trial.name])


def _death(error: Exception | None) -> End:
    """The end of an attempt whose process cannot tell it any more."""
    return End(TrialStatus.FAILED, reason=first_line(error), kind=kind_of_error(error))
