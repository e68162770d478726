"""The local engine: trials run one at a time in this process, without Ray. Breakpoints work, and
errors have plain tracebacks."""

import os
from contextlib import closing

import torch

from rank_core.errors import BadInput
from rank_core.machine import settings_restored
from sweeps.engine import EngineLost
from sweeps.engine.trial_events import TrialEvents
from sweeps.engine.trial_task import End, TrialTask, attempt, trial_task
from sweeps.plan.options import Options
from sweeps.plan.plan import Trial
from sweeps.store.storage import StorageAway
from sweeps.store.trial_status import TrialStatus
from sweeps.terminal.text import numbered, say


def run_trials(events: TrialEvents, options: Options) -> None:
    """Runs the trials of a sweep until it is over. Raises `BadInput` for trials that this machine
    cannot run, `EngineLost` where a trial's error breaks the GPU for this process, and
    `StorageAway` where a trial has waited in vain for the storage."""
    check_machine(options)
    say(f"{numbered(len(events.search.ahead), 'trial')}, one at a time in this process")
    with settings_restored():
        while trial := events.search.next():
            events.screen.launched(trial)
            _attempt(trial, trial_task(trial, events.records, options), events)


def _attempt(trial: Trial, task: TrialTask, events: TrialEvents) -> None:
    """Runs a trial. None runs again here: the same process would fail the same way."""
    events.started(trial)
    with closing(attempt(task)) as reports:
        for report in reports:
            if not isinstance(report, End):
                events.reported(trial, report)
                continue
            kind = report.kind if report.status is TrialStatus.FAILED else ""
            if kind == "storage":  # the next trial would wait for it, too
                raise StorageAway(report.reason.removeprefix(f"{StorageAway.__name__}: "))
            events.ended(trial, report)
            if kind == "device":
                raise EngineLost(
                    f"the GPU failed in {trial.name} and is lost for this process "
                    f"({report.reason}); without --engine local each attempt has its own process"
                )
            return


def check_machine(options: Options) -> None:
    """Refuse a trial that needs more than this machine has."""
    cpus, gpus, needed = os.cpu_count() or 1, torch.cuda.device_count(), options.gpus_per_worker
    if options.cpus_per_worker > cpus or (needed or 0) > gpus:
        raise BadInput(
            f"a trial needs {options.cpus_per_worker} CPU and {needed or 0:g} GPU; this machine "
            f"has {cpus} CPU and {gpus} GPU. Lower --cpus-per-worker or --gpus-per-worker"
        )
    if needed == 0 and gpus:
        raise BadInput(
            "--engine local computes on the GPU of this process, got --gpus-per-worker 0; "
            "CUDA_VISIBLE_DEVICES= before the command hides it"
        )
