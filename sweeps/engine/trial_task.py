"""A trial as every engine runs it: its task, its reports, its files. Imports neither ray, mlflow
nor optuna."""

import json
import shutil
import tempfile
import traceback
from bdb import BdbQuit
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch

from rank_core import distributed
from rank_core.checkpoints import Cadence
from rank_core.checkpoints.checkpoint import Checkpoints
from rank_core.chunking.inputs import cell_of, load_inputs
from rank_core.errors import BadInput, Diverged
from rank_core.machine import begin_on_device
from rank_core.settings.config import TrialConfig
from rank_core.trial.fold_model import pause_step
from rank_core.trial.own_names import own_paths
from rank_core.trial.trial import Progress, TrialResult, run_trial
from sweeps.plan.options import Options
from sweeps.plan.plan import Trial
from sweeps.store.checksums import seal
from sweeps.store.failures import Kind, kind_of_reason
from sweeps.store.rungs import Rung, best_on_dev, leave_rung, read_rung
from sweeps.store.storage_retry import patient_read, publish_kept, publish_or_keep
from sweeps.store.trial_status import TrialStatus
from sweeps.store.trial_store import HISTORY, Store

GIBIBYTE = 2**30


@dataclass(frozen=True)
class TrialTask:
    """The task of a trial, given to each of its processes."""

    name: str
    config: TrialConfig
    epochs: int  # before it pauses; 0: it runs to its end
    storage: str
    sweep: str
    threads: int
    cadence: Cadence  # of its checkpoints
    gpu_share: float = 1.0  # of the memory of its GPU, if any


@dataclass(frozen=True)
class End:
    """The last report of an attempt. A `stopped` trial pauses at a rung; whether a `failed` one
    runs again depends on its kind."""

    status: TrialStatus
    result: TrialResult | None = None  # of a done or collapsed trial
    reason: str = ""
    kind: Kind = "error"
    traceback: str = ""
    process: str = ""  # the engine's id of the process that failed; empty: the trial's own


Report = Progress | End


def trial_task(trial: Trial, store: Store, options: Options) -> TrialTask:
    """The task of a trial under a command's options."""
    quota = int(options.checkpoint_gib * GIBIBYTE)
    return TrialTask(
        name=trial.name,
        config=trial.config,
        epochs=trial.epochs,
        storage=store.storage,
        sweep=store.sweep,
        threads=options.cpus_per_worker,
        cadence=Cadence(options.checkpoint_minutes, quota_bytes=quota),
        gpu_share=options.gpu_share,
    )


def attempt(task: TrialTask) -> Generator[Report]:
    """Runs a trial in this process; yields its progress, and last its `End`.

    A trial that cannot succeed (bad settings, a diverging loss, a bug) ends with a reason, not an
    exception: only a trial whose process dies runs again.
    """
    try:
        yield from compute(task)
    except BdbQuit:  # leaving the debugger ends the command
        raise KeyboardInterrupt from None
    except Exception as error:
        yield end_of(error)


def end_of(error: Exception) -> End:
    """The last report of a process that ends with an error."""
    if isinstance(error, Diverged):
        return End(TrialStatus.DIVERGED, reason=str(error))
    if isinstance(error, BadInput):
        return End(TrialStatus.FAILED, reason=str(error))
    reason = f"{type(error).__name__}: {error}"
    kind = kind_of_reason(reason)
    if kind == "device":
        reason = reason.partition("\n")[0]  # the rest is general advice
    text = "".join(traceback.format_exception(error))
    return End(TrialStatus.FAILED, reason=reason, kind=kind, traceback=text)


def compute(task: TrialTask) -> Iterator[Report]:
    """Runs a trial in this process, one of several workers perhaps; raises its errors."""
    # Ray and `ray submit` set another thread count.
    torch.set_num_threads(max(1, task.threads))
    begin_on_device(task.gpu_share)
    _check_own_code(task)
    rank, num_workers = distributed.world()
    store = Store(task.storage, task.sweep)
    if num_workers == 1 and (kept := publish_kept(store, task.name)):
        yield End(TrialStatus(kept["status"]), TrialResult(**kept))
        return
    if task.epochs and (rung := read_rung(store, task.name, task.epochs)):
        yield End(TrialStatus.STOPPED, reason=rung.text())
        return
    pause = _pause(task)
    checkpoints = _checkpoints(task, store, pause)
    history: list[str] = []
    workdir = Path(tempfile.mkdtemp(prefix="ranksweep-trial-"))
    try:
        for news in run_trial(task.config, workdir, checkpoints=checkpoints):
            if isinstance(news, TrialResult):
                if rank == 0:
                    (workdir / HISTORY).write_text("\n".join(history))
                    seal(workdir)
                    publish_or_keep(store, workdir, task.name)
                    if checkpoints:
                        checkpoints.clear()
                # From here on the trial is safe in the store.
                yield End(TrialStatus(news.status), news)
                continue
            history.append(json.dumps(asdict(news)))
            yield news
            if news.step == pause:
                reached = _rung(task, news, history)
                if rank == 0:
                    leave_rung(store, task.name, reached)
                yield End(TrialStatus.STOPPED, reason=reached.text())
                break
    except Diverged:
        if checkpoints and rank == 0:
            checkpoints.clear()  # never runs again
        raise
    finally:
        shutil.rmtree(workdir, ignore_errors=True)


def _check_own_code(task: TrialTask) -> None:
    """Refuse the user's own code or data if it differs from the trial's hash."""
    own = own_paths(task.config)
    if not own:
        return
    inputs = load_inputs(task.config.collection, task.config.model.backbone)
    if task.name != f"{cell_of(task.config, inputs)}-seed{task.config.seed}":
        raise BadInput(
            f"{', '.join(own)}: in this process the code, or the data it reads, is not what the "
            "sweep was planned with: a file was edited, or this node has another version installed"
        )


def _checkpoints(task: TrialTask, store: Store, pause: int | None) -> Checkpoints | None:
    if not task.cadence.minutes:
        return None
    wait = partial(patient_read, store)
    folder = store.checkpoint_folder(task.name)
    return Checkpoints(folder, task.cadence, pause=pause, wait=wait)


def _pause(task: TrialTask) -> int | None:
    """The step after which the trial pauses; None: never."""
    if not task.epochs:
        return None
    inputs = load_inputs(task.config.collection, task.config.model.backbone)
    return pause_step(task.config, inputs, task.epochs)


def _rung(task: TrialTask, news: Progress, history: list[str]) -> Rung:
    measure = task.config.evaluation.measures[0]
    return Rung(
        epochs=task.epochs,
        num_epochs=task.config.training.num_epochs,
        step=news.step,
        num_steps=news.num_steps,
        measure=measure,
        dev=best_on_dev(history, measure, news.step),
    )
