"""The attempts of a sweep's trials: what runs, and what comes again."""

import time
from collections import deque
from dataclasses import dataclass, replace

from rank_core.trial.trial import Progress
from sweeps.engine.progress import Monitor
from sweeps.engine.trial_task import End, Report
from sweeps.plan.options import cluster_address
from sweeps.plan.plan import Trial
from sweeps.plan.terminal import duration, numbered
from sweeps.ray_engine.cluster import Resources, can_run, hosts, node_of
from sweeps.ray_engine.trial_process import kind_of_error
from sweeps.search.feed import Feed
from sweeps.store.failures import LIMITS, Failure, Failures, first_line
from sweeps.store.trial_status import TrialStatus

LOOK_SECONDS = 2.0  # between two looks at the nodes
TELL_SECONDS = 60.0  # between two lines of a wait for a node
WAIT_SECONDS = 1800.0  # without a node, in which an autoscaler or a person brings one

NOT_THE_PROCESS = (
    f"{LIMITS['device'] + 1} times, in a fresh process each: the trial's settings, or the GPU, are "
    "at fault; CUDA_LAUNCH_BLOCKING=1 and --engine local show the line"
)


class NoNode(RuntimeError):
    """No living node can run a trial, and none has come."""


@dataclass
class _Attempt:
    """A trial that Tune has been given."""

    trial: Trial
    actor: str = ""  # Ray's id of its process, once it has one
    stopped: bool = False  # the feed gave it up
    settled: bool = False  # it has told its end


class Attempts:
    """What the runner knows by Tune's ids of the attempts."""

    def __init__(self, feed: Feed, monitor: Monitor, resources: Resources) -> None:
        self.feed, self.monitor, self.slots = feed, monitor, resources.slots
        self.needs = {"CPU": resources.cpus, "GPU": resources.gpus}  # of each worker
        self.live: dict[str, _Attempt] = {}
        self.failures = Failures()
        self._again: deque[Trial] = deque()
        self._looked = self._told = 0.0
        self._without_node: float | None = None  # since when

    @property
    def over(self) -> bool:
        """Nothing runs and nothing will."""
        return self.feed.over and not self.live and not self._again

    def next(self, tune_id: str) -> Trial | None:
        """The trial that Tune shall start now, if there is a slot for it; one that comes again
        goes before new ones."""
        if len(self.live) >= self.slots:
            return None
        trial = self._again.popleft() if self._again else self.feed.next()
        if trial:
            self.live[tune_id] = _Attempt(trial)
            self.monitor.launched(trial)
        return trial

    def look(self) -> None:
        """Speaks where nothing reports. Raises `NoNode` where no living node can run a trial: at
        once on this machine alone; on a cluster after `WAIT_SECONDS`, and tells the wait."""
        self.monitor.heartbeat()
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        if can_run(self.needs):
            self._without_node = None
            return
        if cluster_address() is None:
            raise NoNode("Ray has died on this machine")
        if self._without_node is None:
            self._without_node = self._told = now
        waited = now - self._without_node
        if waited >= WAIT_SECONDS:
            raise NoNode(f"for {duration(waited)} no node of the cluster could run a trial")
        if now - self._told >= TELL_SECONDS:
            self._told = now
            self.monitor.tell(
                f"no node of the cluster can run a trial: waiting for one for {duration(waited)}, "
                f"until {duration(WAIT_SECONDS)}"
            )

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

    def _fewer_slots(self) -> None:
        if self.slots > 1:
            self.slots -= 1
            self.monitor.tell(
                f"out of memory: {numbered(self.slots, 'trial')} at a time from now on"
            )

    def _fail(self, attempt: _Attempt, end: End) -> None:
        attempt.settled = True
        node, _ = node_of(end.process or attempt.actor)
        failure = Failure(end.kind, end.reason, node, hosts().get(node, "") if node else "")
        again = self.failures.count(attempt.trial.name, failure)
        if again:
            self._again.append(attempt.trial)
        elif end.kind == "device":
            failure = replace(failure, reason=f"{end.reason}; {NOT_THE_PROCESS}")
        self.monitor.failed(attempt.trial, failure, again=again, traceback=end.traceback)

    def _tell_end(self, trial: Trial) -> None:
        if trial.name in self.monitor.ended:
            self.feed.ended(trial, self.monitor.ended[trial.name])


def _death(error: Exception | None) -> End:
    """The end of an attempt whose process cannot tell it any more."""
    return End(TrialStatus.FAILED, reason=first_line(error), kind=kind_of_error(error))
