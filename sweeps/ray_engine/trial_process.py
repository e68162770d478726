"""The execution of a trial in Ray's processes, and the causes of failures.

With one worker a trial is a Tune function, whose process the next trial reuses; with several it
runs in every worker of a Ray Train group. A worker that fails must raise, which ends the group at
once: a report would wait for all workers, which wait for this one in a sum of gradients. Imports
for groups alone are late, because they take half a second."""

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import ray
from ray import train, tune
from ray.exceptions import ActorUnavailableError, NodeDiedError, OutOfMemoryError, RayActorError

from rank_core.cache import restored_by
from rank_core.distributed import gather
from rank_core.errors import BadInput
from rank_core.machine import take_gpu
from rank_core.trial.trial import Progress, prepare
from sweeps.engine.trial_task import End, TrialTask, attempt, compute, end_of, no_notice
from sweeps.plan.resources import Resources
from sweeps.ray_engine.drain import notice_of, this_node
from sweeps.ray_engine.driver_disk import storage_here
from sweeps.ray_engine.growth import notice_of_growth
from sweeps.ray_engine.nodes import (
    Expected,
    Unfit,
    avoiding,
    check_inputs,
    check_node,
    check_ready,
    unfit_here,
)
from sweeps.store.failures import FailureKind, first_line
from sweeps.store.prepared import Prepared
from sweeps.store.storage import Storage, StorageAway
from sweeps.store.trial_status import TrialStatus

EPOCHS, DEV = "epochs", "dev"  # of a report to ASHA
NO_WORKERS = "no workers"
"""A report: a group got none."""
WAIT_SECONDS = 1800.0  # for nodes that an autoscaler or a user adds
START_TRIES = 3  # of a group, after the first
MORE_SECONDS = 60.0  # for more workers than a trial needs, in all tries
PEER_SECONDS = 60.0  # until Ray knows of a dead process or node, which ends the group
LOST_NODE = ("node has died", "node failure", "owner has died")
_PEER = r"gloo|[Cc]onnection (closed|reset)|Broken pipe|[Rr]emote process|RemoteError"
_LOST_PEER = re.compile(_PEER)
_CONNECTION = re.compile(f"{_PEER}|ProcessGroup|NCCL")  # also errors of a worker's own GPU


@dataclass(frozen=True)
class Formed:
    """A report: the workers live, on these nodes, which can work."""

    nodes: tuple[str, ...]  # Ray's ids, by rank


def run_in_tune(config: dict[str, Any]) -> None:
    """A Tune trial that computes in its own process. Its `config` holds the trial's `task` and
    `resources`, and what `task_here` needs; what it reports to Tune has a `News`. A trial that
    competes also reports its epochs and best value on dev after a validation before the end, by
    which ASHA stops it."""
    try:
        task = task_here(config)
    except BadInput as error:
        tune.report({"report": unfit_here(error)})
        os._exit(1)  # otherwise the next trial would get this process
    except StorageAway as error:
        tune.report({"report": end_of(error)})
        return
    if config["expected"]:
        tune.report({"report": Formed((this_node(),))})
    best = float("-inf")
    # Of a machine's own Ray nobody takes a node away.
    is_going = notice_of(this_node()).is_set if config["expected"] else no_notice
    for report in attempt(task, is_going):
        judged = {}
        if task.competes and isinstance(report, Progress) and report.dev is not None:
            best = max(best, report.dev[task.config.evaluation.measures[0]])
            epochs = task.config.training.num_epochs * report.step / report.num_steps
            if report.step < report.num_steps:
                judged = {EPOCHS: epochs, DEV: best}
        tune.report({"report": report, **judged})  # returns once the driver has it
        if isinstance(report, End) and (report.kind == "device" or is_going()):
            os._exit(1)  # the GPU or the node is lost for this process; Ray starts another


def task_here(config: dict[str, Any]) -> TrialTask:
    """The task with its storage as this node reaches it. Raises `BadInput` where a cluster's node
    cannot work: it lacks something that the driver has and `expected`."""
    task: TrialTask = config["task"]
    expected: Expected | None = config["expected"]
    if not expected:  # on one machine
        return task
    check_ready(config["ready"])
    check_node(expected)
    storage = storage_here(task.storage, task.sweep, expected.command)
    # Before the attempt begins: what this node lacks is no work of the trial.
    with restored_by(Prepared(Storage(storage, opened=True)).restore):
        check_inputs(task.config, config["contents"])
        with suppress(BadInput):  # the trial's own, which says it
            prepare(task.config)
    return replace(task, storage=storage)


def run_in_train(config: dict[str, Any]) -> None:
    """A Tune trial that drives a Ray Train group and computes nothing itself."""
    from ray.tune.integration.ray_train import TuneReportCallback

    name = f"train-{tune.get_context().get_trial_id()}"
    here = this_node()
    if config["expected"]:
        notice_of(here)  # which takes a moment to know
    callbacks = [TuneReportCallback()]
    resources, workers = config["resources"], config["workers"]
    # A group avoids the nodes that prepare, but not for good: of a longer wait, others may leave.
    avoid = [*config["avoid"], *config["prepare"]]
    long = workers == resources.least and not config["prepare"]
    waits = WAIT_SECONDS if long else MORE_SECONDS
    os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = str(waits / (START_TRIES + 1))
    group = replace(resources, num_workers=workers)
    try:
        run_group(_train_worker, config | {"driver": here}, group, name, callbacks, avoid=avoid)
    except Exception as error:  # Ray Train has several classes
        cause = getattr(error, "controller_failure", error)
        waited = type(cause).__name__ == "WorkerGroupStartupTimeoutError"  # Ray's own, not public
        failures = getattr(error, "worker_failures", {}).values()
        unfit = next((one.unfit for one in failures if isinstance(one, UnfitWorker)), None)
        tune.report({"report": unfit or (NO_WORKERS if waited else end_of_group(error))})
    if config["expected"] and notice_of(here).is_set():
        os._exit(1)  # otherwise it would drive the group of the next trial


def run_group(
    worker: Callable[[dict[str, Any]], Any],
    config: dict[str, Any],
    resources: Resources,
    name: str,
    callbacks: Sequence[Any] = (),
    avoid: Sequence[str] = (),
) -> Any:
    """Runs `worker` in every process of a Ray Train group, on none of the nodes to `avoid`; returns
    the result of rank 0. Raises Ray Train's errors where a worker fails."""
    from ray.train.torch import TorchTrainer

    from sweeps.ray_engine.group_network import NodeAddressConfig

    scratch = tempfile.mkdtemp(prefix="ranksweep-train-")
    per_worker = {name: amount for name, amount in resources.needs.items() if amount}
    trainer = TorchTrainer(
        partial(_in_group, worker),
        train_loop_config=config,
        # Messages between workers are on the host and do not wait for GPUs.
        torch_config=NodeAddressConfig(backend="cpu:gloo,cuda:nccl" if resources.gpus else "gloo"),
        scaling_config=train.ScalingConfig(
            num_workers=resources.num_workers,
            use_gpu=bool(resources.gpus),
            resources_per_worker=per_worker,
            label_selector=avoiding(avoid) or None,  # type: ignore[call-arg]
        ),
        run_config=train.RunConfig(
            name=name,
            storage_path=scratch,
            callbacks=list(callbacks),
            failure_config=train.FailureConfig(
                max_failures=0,
                max_preemption_failures=0,  # type: ignore[call-arg]
                controller_failure_limit=START_TRIES,
            ),
        ),
    )
    try:
        return trainer.fit().return_value  # type: ignore[attr-defined]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _train_worker(config: dict[str, Any]) -> None:
    """Runs a trial in one worker."""
    from ray.train.torch import get_device

    if config["resources"].gpus:
        take_gpu(get_device())
    try:
        task = task_here(config)
    except BadInput as error:
        raise UnfitWorker(unfit_here(error)) from None
    train.report({"report": Formed(tuple(gather(this_node())))})
    # The group ends with the node of its driver, too.
    nodes = this_node(), config["driver"]
    is_going = notice_of(*nodes).is_set if config["expected"] else no_notice
    # One worker asks for all of them.
    asks = config["resources"].min_workers and train.get_context().get_world_rank() == 0
    may_grow = notice_of_growth(config["attempt"]) if asks else no_notice
    for report in compute(task, is_going, may_grow):
        train.report({"report": report})


def _in_group(worker: Callable[[dict[str, Any]], Any], config: dict[str, Any]) -> Any:
    """Runs a worker of a group; an error in it ends the group."""
    try:
        return worker(config)
    except UnfitWorker:
        raise
    except Exception as error:
        # torch raises RuntimeError; a message of another class may only name such a word.
        lost_peer = isinstance(error, RuntimeError) and bool(_LOST_PEER.search(str(error)))
        if lost_peer:  # the cause is another worker, of which Ray learns first
            time.sleep(PEER_SECONDS)
        actor = ray.get_runtime_context().get_actor_id() or ""
        raise WorkerFailed(replace(end_of(error), process=actor), lost_peer) from None


class UnfitWorker(Exception):
    """A worker of a group is on a node that cannot work."""

    def __init__(self, unfit: Unfit) -> None:
        super().__init__(unfit)
        self.unfit = unfit


class WorkerFailed(Exception):
    """Forwards a worker's last report to the driver of the group, and whether all it knows is that
    its connection to another worker broke."""

    def __init__(self, end: End, lost_peer: bool = False) -> None:
        super().__init__(end, lost_peer)
        self.end, self.lost_peer = end, lost_peer


def end_of_group(error: Exception) -> End:
    """The last report of a trial whose group failed, with the rank of the worker that failed first.
    A dead worker precedes others: its death breaks their connections, which they report. Where
    broken connections are all that is known, they are such a death: the trial runs again."""
    failures: dict[int, Exception] = getattr(error, "worker_failures", {})
    reports = []
    for rank, failure in sorted(failures.items()):
        if not isinstance(failure, WorkerFailed):
            return _death(failure, f" (rank {rank})")
        end = replace(failure.end, reason=f"{failure.end.reason} (rank {rank})")
        reports.append(replace(end, kind="process died") if failure.lost_peer else end)
    if not reports:  # the group never formed
        return _death(error, "")
    return min(reports, key=lambda end: bool(_CONNECTION.search(end.reason)))


def _death(error: Exception, rank: str) -> End:
    cause = getattr(error, "health_check_failure", error)
    kind = kind_of_error(cause)
    return End(
        TrialStatus.FAILED,
        reason=first_line(cause) + rank,
        kind="process died" if kind == "error" else kind,
        process=getattr(cause, "actor_id", None) or "",
    )


def kind_of_error(error: BaseException | None) -> FailureKind:
    """The kind of the error that Ray raises for an attempt whose process is lost; None is a death
    without an error."""
    if isinstance(error, OutOfMemoryError):
        return "host memory"
    if isinstance(error, NodeDiedError | ActorUnavailableError | train.PreemptionError):
        return "node lost"
    if isinstance(error, RayActorError):
        # Only the text distinguishes the death of a node from that of a process. The owner is the
        # driver, which Ray declares dead with its node.
        lost = error.preempted or any(words in str(error) for words in LOST_NODE)
        return "node lost" if lost else "process died"
    return "process died" if error is None else "error"
