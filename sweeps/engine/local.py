"""The local engine: trials in this process, one after the other, without Ray. A breakpoint in a
model is hit, and an error has a plain traceback."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager

import torch

from rank_core.errors import BadInput
from sweeps.engine import EngineLost
from sweeps.engine.progress import Monitor
from sweeps.engine.trial_task import End, TrialTask, attempt, trial_task
from sweeps.plan.options import Options
from sweeps.plan.plan import Trial
from sweeps.plan.terminal import say
from sweeps.search.feed import Feed
from sweeps.store.failures import Failure, Failures
from sweeps.store.trial_status import TrialStatus
from sweeps.store.trial_store import Store


def run_trials(feed: Feed, *, store: Store, options: Options, monitor: Monitor) -> None:
    """Runs what the feed hands out until it is over; raises `BadInput` for what this machine
    cannot run. An error of a trial ends the sweep only if it breaks the GPU for this process: then
    `EngineLost` is raised."""
    _check(options)
    say(f"{len(feed.ahead)} trials, one after the other in this process")
    failures = Failures()
    with _settings_of_torch_restored():
        while trial := feed.next():
            monitor.launched(trial)
            task = trial_task(trial, store, options)
            while _attempt(trial, task, feed, monitor, failures):
                pass
            feed.ended(trial, monitor.ended[trial.name])


def _attempt(
    trial: Trial, task: TrialTask, feed: Feed, monitor: Monitor, failures: Failures
) -> bool:
    """One attempt; whether another one follows."""
    monitor.started(trial)
    with closing(attempt(task)) as reports:
        for report in reports:
            if isinstance(report, End):
                return _end(trial, report, monitor, failures)
            monitor.news(trial, report)
            if feed.stop(trial, report):
                monitor.stopped(trial)
                break
    return False


def _end(trial: Trial, end: End, monitor: Monitor, failures: Failures) -> bool:
    if end.status is not TrialStatus.FAILED:
        monitor.finished(trial, end)
        return False
    failure = Failure(end.kind, end.reason)
    broken = end.kind == "device"
    again = failures.count(trial.name, failure) and not broken
    monitor.failed(trial, failure, again=again, traceback=end.traceback)
    if broken:
        raise EngineLost(
            f"the GPU broke in {trial.name} and computes no more for this process ({end.reason}); "
            "without --engine local each trial that breaks it gets a new process"
        )
    return again


def _check(options: Options) -> None:
    """Refuses what this machine does not have: the numbers are those of a slot of Ray's."""
    cpus, gpus, wanted = os.cpu_count() or 1, torch.cuda.device_count(), options.gpus_per_worker
    if options.cpus_per_worker > cpus or (wanted or 0) > gpus:
        raise BadInput(
            f"a trial needs {options.cpus_per_worker} CPU and {wanted or 0:g} GPU; this machine "
            f"has {cpus} CPU and {gpus} GPU. Lower --cpus-per-worker or --gpus-per-worker"
        )
    if wanted == 0 and gpus:
        raise BadInput(
            "--engine local computes on the GPU that this process sees, got --gpus-per-worker 0; "
            "CUDA_VISIBLE_DEVICES= before the command hides it"
        )


@contextmanager
def _settings_of_torch_restored() -> Iterator[None]:
    """A trial sets the threads of its process, which here is the driver's."""
    threads, mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_deterministic_debug_mode(mode)
