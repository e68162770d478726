"""The local engine: trials run one at a time in this process, without Ray. Breakpoints work, and
errors have plain tracebacks."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from types import FrameType

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

NOTICE_SECONDS = 5.0
"""From SIGTERM to the end of the command, for a step of training and its checkpoint."""


def run_trials(events: TrialEvents, options: Options) -> None:
    """Runs the trials of a sweep until it is over. Raises `BadInput` for trials that this machine
    cannot run, `EngineLost` where a trial's error breaks the GPU for this process, and
    `StorageAway` where a trial has waited in vain for the storage."""
    check_machine(options)
    say(f"{numbered(len(events.search.ahead), 'trial')}, one at a time in this process")
    with settings_restored(), _notice_of_sigterm() as notice:
        while trial := events.search.next():
            events.screen.launched(trial)
            _attempt(trial, trial_task(trial, events.records, options), events, notice)
            if notice.is_set():
                raise KeyboardInterrupt


@contextmanager
def _notice_of_sigterm() -> Iterator[threading.Event]:
    """Set by SIGTERM, as Slurm, Kubernetes and Docker send it before they kill: the trial may save
    its state before the command is interrupted. Another signal, or `NOTICE_SECONDS`, interrupts at
    once."""
    notice = threading.Event()
    before = signal.getsignal(signal.SIGTERM)
    here = threading.current_thread() is threading.main_thread()
    if not here or before is not signal.default_int_handler:  # a program's own
        yield notice
        return

    def note(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, before)
        notice.set()
        late = threading.Timer(NOTICE_SECONDS, os.kill, (os.getpid(), number))
        late.daemon = True
        late.start()
        pending.append(late)

    pending: list[threading.Timer] = []
    signal.signal(signal.SIGTERM, note)
    try:
        yield notice
    finally:
        for late in pending:
            late.cancel()
        signal.signal(signal.SIGTERM, before)


def _attempt(trial: Trial, task: TrialTask, events: TrialEvents, notice: threading.Event) -> None:
    """Runs a trial. None runs again here: the same process would fail the same way."""
    events.started(trial)
    with closing(attempt(task, notice.is_set)) as reports:
        for report in reports:
            if not isinstance(report, End):
                events.reported(trial, report)
                continue
            kind = report.kind if report.status is TrialStatus.FAILED else ""
            if kind == "node lost":
                say(f"stopping    {report.reason}")
                raise KeyboardInterrupt
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
