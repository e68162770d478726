"""The Ray engine: Ray Tune runs the trials of a search and reports their ends, in a thread that can
be abandoned: without Ray's GCS, calls to Ray never return."""

import gc
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle, tune
from ray.exceptions import OutOfMemoryError, RayActorError
from ray.tune import Callback, PlacementGroupFactory
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from rank_core.errors import BadInput
from sweeps.engine import EngineInterrupted, EngineLost
from sweeps.engine.kept_weights import is_trained
from sweeps.engine.trial_events import TrialEvents
from sweeps.engine.trial_task import trial_task
from sweeps.plan.options import Options, cluster_address, range_text
from sweeps.plan.resources import DRIVER_CPU, Resources
from sweeps.ray_engine.attempts import Attempts, NoNode
from sweeps.ray_engine.cluster import (
    RayFiles,
    can_run,
    connect,
    connected,
    disconnect,
    free_groups,
    idle_text,
    precision_of_gpus,
    slots_now,
    trial_resources,
)
from sweeps.ray_engine.driver_disk import driver_disk
from sweeps.ray_engine.growth import start_wishes
from sweeps.ray_engine.nodes import (
    CheckpointLoad,
    Nodes,
    Unfit,
    avoiding,
    checkpoint_bytes,
    contents_of,
    expected_of,
)
from sweeps.ray_engine.ray_log import RAY_LOG, ray_lines_to
from sweeps.ray_engine.trial_process import (
    DEV,
    EPOCHS,
    NO_WORKERS,
    Formed,
    run_in_train,
    run_in_tune,
)
from sweeps.store.failures import first_line
from sweeps.store.records import Records
from sweeps.store.storage import StorageAway
from sweeps.store.sweep_file import update_sweep_file
from sweeps.terminal.text import duration, numbered, say, warn

LOW_MEMORY = re.compile("low on memory|out of memory issue")  # in Ray's errors
BREAKDOWNS = 5  # of Tune, without a finished trial in between
LOOK_SECONDS = 0.5  # between looks at Ray's processes
PROBE_SECONDS = 5.0  # between questions to the GCS
SILENT_SECONDS = 45.0  # without an answer of a cluster's GCS, after which Ray counts as dead
SILENT_SECONDS_HERE = 300.0  # of that on this machine, which is busy: its death shows at once
GOODBYE_SECONDS, INTERRUPTED_SECONDS = 5.0, 1.5  # for a Tuner that was given up
MOST_PENDING = 10**6  # trials that wait for a process: the attempts have the limit
MOST_EPOCHS = 10**6  # of ASHA's rungs; a trial ends itself
RESTARTS = 1  # of Ray on this machine, likewise


def run_trials(events: TrialEvents, options: Options) -> None:
    """Runs the trials of a sweep until it is over, on the cluster or on this machine. Raises
    `BadInput` if a trial cannot run there."""
    path = events.records.folder / RAY_LOG
    path.parent.mkdir(parents=True, exist_ok=True)
    begins = "joining the Ray cluster" if cluster_address() else "starting Ray"
    events.screen.tell(f"{begins}; its own lines: {path}")
    with ray_lines_to(path):
        try:
            with connected(options.num_workers, options.code) as files:
                _run_connected(events, options, files)
        except KeyboardInterrupt:
            raise EngineInterrupted from None


def _run_connected(events: TrialEvents, options: Options, files: RayFiles) -> None:
    """Runs the trials on the connected cluster; Ray's files are kept where a trial was lost."""
    resources = trial_resources(options)
    options = _with_precision(options, resources, events.records)
    nodes = _nodes(events, options, resources)
    try:
        with driver_disk(events.records):
            nodes.prepare(resources.slots, may_grow=resources.slots > slots_now(resources)[0])
            _require_a_node(resources, nodes)
            trials = numbered(len(events.search.ahead), "trial")
            own = f" of {group} each" if (group := range_text(options)) else ""
            say(f"{trials} on {numbered(resources.slots, 'slot')}{own}")
            if idle := idle_text(resources):
                warn(idle)
            run_on_slots(events, options, resources, nodes)
    finally:
        files.keep = any(status.lost for status in events.screen.statuses.values())


def _with_precision(options: Options, resources: Resources, records: Records) -> Options:
    """With the precision that `auto` is on all GPUs of the sweep, decided by those of the cluster
    and noted for later commands: nodes of another kind, which may join, compute alike."""
    known = options.auto_precision
    decided = ""
    if resources.gpus and "cuda" not in known:
        decided = precision_of_gpus(resources.accelerator)
    if not decided:
        return options
    precision = {**known, "cuda": decided}
    update_sweep_file(records, auto_precision=precision)
    return replace(options, auto_precision=precision)


def _nodes(events: TrialEvents, options: Options, resources: Resources) -> Nodes:
    """The nodes of the connected cluster, with what they must have."""
    ahead = events.search.ahead
    expected = expected_of(events.records) if cluster_address() else None
    trained = [trial.cell.inputs.backbone.folder for trial in ahead if is_trained(trial.config)]
    checkpoint = CheckpointLoad(
        max(map(checkpoint_bytes, set(trained)), default=0), options.checkpoint_minutes
    )
    configs = [trial.cell.config for trial in ahead]
    return Nodes(expected, configs, checkpoint, resources.needs)


def _require_a_node(resources: Resources, nodes: Nodes) -> None:
    """Raises `BadInput` where all nodes that hold a trial cannot work."""
    if nodes.unfit and can_run(resources) and not can_run(resources, nodes.unfit):
        raise BadInput(f"no node of the cluster can work: {nodes.reasons()}")


def run_on_slots(events: TrialEvents, options: Options, resources: Resources, nodes: Nodes) -> None:
    """Runs as many trials at a time as the connected cluster has slots.

    An error in a trial's process never ends the sweep. An error of Tune itself (such as one by
    Ray's memory monitor) ends only the current Tuner; the next one resumes, on a new Ray if this
    machine's has died. Raises `EngineLost` where that fails.
    """
    attempts = Attempts(events, resources, nodes)
    deaths = breakdowns = ended = 0
    while not attempts.over:
        error = _run(attempts, options, resources)
        if error is None:
            return
        if isinstance(error, StorageAway):
            raise error  # every record would wait for it again
        attempts.interrupt(error)
        # Only those without a finished trial in between count: a long sweep may meet many.
        if len(events.screen.statuses) > ended:
            deaths = breakdowns = 0
        ended = len(events.screen.statuses)
        if isinstance(error, NoNode):
            deaths += 1
            _start_again(error, deaths, options, events)
            attempts.wishes = None  # it went with the old one
            continue
        gc.collect()  # ends the processes of the failed Tuner
        breakdowns += 1
        if breakdowns > BREAKDOWNS:
            raise error
        why = f"Ray Tune broke down ({first_line(error)})"
        events.screen.tell(f"{why}: the trials that ran run again")


def _start_again(error: NoNode, deaths: int, options: Options, events: TrialEvents) -> None:
    """Restart Ray on this machine, at most `RESTARTS` times before another trial has ended."""
    if cluster_address() or deaths > RESTARTS:
        again = "" if cluster_address() else " again, and no trial has ended in between"
        raise EngineLost(f"{error}{again}")
    events.screen.tell(f"{error}: restarting it, then the sweep resumes")
    disconnect(keep_files=True)  # which also ends the remaining processes of Ray
    gc.collect()  # the failed Tuner would ask a dead Ray to remove what it had, for a minute
    try:
        connect(options.num_workers, options.code)
    except Exception as failure:  # Ray has no class for it
        raise EngineLost(f"{error}, and does not start again: {first_line(failure)}") from failure


def _run(attempts: Attempts, options: Options, resources: Resources) -> Exception | None:
    """Run a Tuner to its end; return the error that ended it, if any."""
    scratch = tempfile.mkdtemp(prefix="ranksweep-tune-")
    # By default Tune starts the processes of a searcher's trials one by one.
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(MOST_PENDING)
    # By default Tune restarts the trial of a preempted node silently.
    os.environ["RAY_TRAIN_COUNT_PREEMPTION_AS_FAILURE"] = "1"
    # One worker computes in Tune's own process, which is kept for the next trial; a group costs
    # seconds for each.
    run = run_in_tune if resources.num_workers == 1 else run_in_train
    if resources.num_workers > 1:
        free_groups(of_dead=False)  # those of an earlier Tuner
    if resources.min_workers and attempts.wishes is None:
        attempts.wishes = start_wishes()
    turn = Turn(attempts)
    search = _Search(turn, options, resources)
    tuner = tune.Tuner(
        tune.with_resources(run, _request),
        tune_config=tune.TuneConfig(
            # -1: the searcher says when it is over. A reused process has imported torch and loaded
            # the collection.
            search_alg=search,
            scheduler=_scheduler(options),
            num_samples=-1,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=scratch,
            callbacks=[_Bridge(turn)],
            verbose=0,
        ),
    )
    try:
        if not (lost := _until_lost(tuner.fit, turn)):
            return None
        attempts.events.screen.tell(f"{lost}: ending what is left of it")
        # Now: as this Tuner goes, it asks Ray to remove what it had, and waits a minute for it.
        disconnect(keep_files=True)
        return NoNode(lost)
    except Exception as error:
        return turn.away.with_traceback(None) if turn.away else _cause(error)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


class Turn:
    """The attempts, used by one thread at a time, and by the Tuner only until it is given up."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts, self._lock, self._over = attempts, threading.Lock(), False
        self.away: StorageAway | None = None  # ended a use; Tune passes it on as a text

    def __enter__(self) -> Attempts:
        self._lock.acquire()
        if self._over:
            self._lock.release()
            raise RuntimeError("this Tuner was given up")
        return self._attempts

    def __exit__(self, kind: object, error: object, frames: object) -> None:
        if isinstance(error, StorageAway):
            self.away = error
        self._lock.release()

    def end(self, seconds: float) -> None:
        """Refuses further use; waits some seconds for a use that has begun."""
        # A Tuner that hangs in a call may hold the lock for ever: after the wait it is refused, not
        # joined.
        begun = not self._lock.acquire(timeout=seconds)
        self._over = True
        if not begun:
            self._lock.release()


def _until_lost(work: Callable[[], Any], turn: Turn) -> str:
    """Runs `work` in a thread to its end, and raises its error. Where Ray dies, gives it up and
    returns the reason."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    # In a thread, because a call to a dead Ray never returns and no signal ends it.
    thread = threading.Thread(target=run, daemon=True, name="tune")
    thread.start()
    probe, goodbye = _Probe(), GOODBYE_SECONDS
    try:
        while thread.is_alive():
            thread.join(LOOK_SECONDS)
            if thread.is_alive() and (lost := _dead_process() or probe.silence()):
                return lost
    except KeyboardInterrupt:
        say("interrupted: stopping the processes of the trials")
        goodbye = INTERRUPTED_SECONDS
        raise
    finally:
        turn.end(goodbye)
        thread.join(goodbye)
    if errors:
        raise errors[0]
    return ""


def _dead_process() -> str:
    """What of a Ray that this command has started has died; "" for nothing."""
    node = ray._private.worker._global_node
    processes: dict[str, list[Any]] = node.all_processes if node else {}
    # Their death shows at once in the process table; the GCS's silence only after a timeout.
    for name in ("gcs_server", "raylet"):
        for info in processes.get(name, []):
            if info.process.poll() is not None:
                return f"Ray has died on this machine (its {name})"
    return ""


class _Probe:
    """A question to the GCS every few seconds, from threads of its own."""

    _asked, _answered = 0.0, True

    def silence(self) -> str:
        """The reason to give Ray up, "" while it answers."""
        now = time.monotonic()
        if not self._answered:
            if now - self._asked < (SILENT_SECONDS if cluster_address() else SILENT_SECONDS_HERE):
                return ""
            return f"Ray has not answered for {duration(now - self._asked)}"
        if now - self._asked >= PROBE_SECONDS:
            self._asked, self._answered = now, False
            threading.Thread(target=self._ask, daemon=True, name="probe").start()
        return ""

    def _ask(self) -> None:
        with suppress(Exception):  # an answer, too: Tune meets the same error
            ray.nodes()
        self._answered = True


def _scheduler(options: Options) -> TrialScheduler:
    """Tune's ASHA, which sees the reports of the trials that compete; else every trial ends."""
    if not options.search.kind.stops:
        return FIFOScheduler()
    # The reports of the others, and the ends, have no value on dev.
    os.environ["TUNE_DISABLE_STRICT_METRIC_CHECKING"] = "1"
    return ASHAScheduler(
        time_attr=EPOCHS,
        metric=DEV,
        mode="max",
        max_t=MOST_EPOCHS,
        grace_period=options.search.min_epochs,
        reduction_factor=options.search.eta,
        stop_last_trials=False,
    )


def _cause(error: BaseException) -> Exception:
    """The original error, without the frames that hold the Tuner and its processes."""
    # Tune wraps errors several times; the innermost says what happened.
    while error.__cause__ is not None:
        error = error.__cause__
    if not isinstance(error, Exception):
        raise error
    return error.with_traceback(None)


def _request(config: Mapping[str, Any]) -> PlacementGroupFactory:
    resources: Resources = config["resources"]
    bundles = [{"CPU": DRIVER_CPU} if resources.num_workers > 1 else resources.needs]
    # Tune gives a free process to a trial with an equal request. No node has a label of slots, so
    # that this one holds everywhere and tells the requests of slots apart.
    labels = avoiding(config["avoid"]) | {"ranksweep/slot": f"!{config['slot']}"}
    return PlacementGroupFactory(bundles, "PACK", bundle_label_selector=[labels])


def error_of(trial: TuneTrial) -> Exception | None:
    """The error that ended a trial. Tune's `get_error` reads files that are copied later."""
    path = trial.pickled_error_file
    if path is not None and Path(path).exists():
        error: Exception = cloudpickle.loads(Path(path).read_bytes())
        return error
    if trial.error_file is None or not Path(trial.error_file).exists():
        return None
    # Tune pickles no error of a process that runs out of memory while it starts.
    text = Path(trial.error_file).read_text().rpartition("\nFailure # ")[2].partition("\n")[2]
    return OutOfMemoryError(text) if LOW_MEMORY.search(text) else RayActorError(error_msg=text)


class _Adapter:
    """An object for Tune, which pickles it but never unpickles it."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn

    def __getstate__(self) -> dict[str, Any]:
        return {}


class _Search(_Adapter, Searcher):
    """Gives Tune its next trial."""

    def __init__(self, turn: Turn, options: Options, resources: Resources) -> None:
        _Adapter.__init__(self, turn)
        Searcher.__init__(self)
        self.options, self.resources = options, resources

    def suggest(self, trial_id: str) -> Any:
        with self.turn as attempts:
            trial = attempts.next(trial_id)
            if trial:
                nodes, records = attempts.nodes, attempts.events.records
                task = trial_task(trial, records, self.options, shares_vectors=nodes.own_caches)
                attempt = attempts.live[trial_id]
                return {
                    "task": task,
                    "resources": self.resources,
                    "attempt": trial_id,
                    "workers": attempt.workers,
                    "expected": nodes.expected,
                    "ready": sorted(nodes.ready),
                    "contents": contents_of(trial.cell.inputs),
                    "slot": attempt.slot,
                    "avoid": sorted(attempt.avoids),
                    "prepare": sorted(nodes.waiting),
                }
            # None: not now. Tune asks again.
            return Searcher.FINISHED if attempts.over else None

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        """Do nothing: the callback has more information."""

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Do nothing: a later command resumes from the folders of trials, not from Tune's state."""


class _Bridge(_Adapter, Callback):
    """Forwards Tune's events to the attempts."""

    def on_trial_start(self, iteration: int, trials: Any, trial: TuneTrial, **info: Any) -> None:
        actor = trial.temporary_state.ray_actor
        with self.turn as attempts:
            attempts.started(trial.trial_id, actor._actor_id.hex() if actor else "")

    def on_trial_result(
        self, iteration: int, trials: Any, trial: TuneTrial, result: dict[str, Any], **info: Any
    ) -> None:
        report, stopped = result.get("report"), bool(result.get("done"))
        if not report:
            return
        with self.turn as attempts:
            if isinstance(report, Unfit):
                attempts.unfit(trial.trial_id, report)
            elif isinstance(report, Formed):
                attempts.formed(trial.trial_id, report.nodes)
            elif report == NO_WORKERS:
                attempts.got_no_workers(trial.trial_id)
            else:
                attempts.reported(trial.trial_id, report, stopped=stopped)

    def on_trial_complete(self, iteration: int, trials: Any, trial: TuneTrial, **info: Any) -> None:
        with self.turn as attempts:
            attempts.completed(trial.trial_id)

    def on_trial_error(self, iteration: int, trials: Any, trial: TuneTrial, **info: Any) -> None:
        with self.turn as attempts:
            attempts.failed(trial.trial_id, error_of(trial))

    def on_step_end(self, iteration: int, trials: list[TuneTrial], **info: Any) -> None:
        # A process that cannot be reused ends its next trial without another event.
        with self.turn as attempts:
            for trial in trials:
                if trial.status == TuneTrial.ERROR and trial.trial_id in attempts.live:
                    attempts.unlaunched(trial.trial_id)
            attempts.check()
