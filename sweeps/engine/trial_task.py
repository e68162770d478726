"""A trial as every engine runs it: its task, its reports, its files. Imports neither ray, mlflow
nor optuna."""

import json
import shutil
import socket
import tempfile
import time
import traceback
from bdb import BdbQuit
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rank_core import distributed
from rank_core.checkpoints import Cadence
from rank_core.checkpoints.checkpoint import Checkpoints, Leave
from rank_core.checkpoints.weights import WEIGHTS, stored_cell
from rank_core.chunking.inputs import cell_of, load_inputs
from rank_core.errors import BadInput, Diverged
from rank_core.machine import begin_on_device, compute_as_decided
from rank_core.retrieval.vectors import exchanged
from rank_core.settings.config import TrialConfig
from rank_core.trial.trial import Progress, TrialResult, own_paths, run_trial
from rank_core.units import GIBIBYTE
from sweeps.plan.options import Options
from sweeps.plan.plan import Trial
from sweeps.store.failures import FailureKind, kind_of_reason, reason_of
from sweeps.store.records import HISTORY, Records, trial_name
from sweeps.store.shared_vectors import SharedVectors
from sweeps.store.storage import Storage
from sweeps.store.trial_status import TrialStatus

PROGRESS_SECONDS = 5.0  # between two replacements of a trial's progress
UPLOAD_SECONDS = 3.0  # for a checkpoint on its way, where an attempt ends early


@dataclass(frozen=True)
class TrialTask:
    """The task of a trial, given to each of its processes."""

    name: str
    config: TrialConfig
    competes: bool  # ASHA may stop it
    storage: str
    sweep: str
    threads: int
    cadence: Cadence  # of its checkpoints
    gpu_share: float = 1.0  # of the memory of its GPU, if any
    elastic: bool = False  # whether the number of its workers may change
    auto_precision: Mapping[str, str] = field(default_factory=dict)  # of the sweep
    shares_vectors: bool = False  # with caches of other nodes


@dataclass(frozen=True)
class End:
    """The last report of an attempt; whether a `failed` trial runs again depends on its kind."""

    status: TrialStatus
    result: TrialResult | None = None  # of a done or collapsed trial
    reason: str = ""
    kind: FailureKind = "error"
    traceback: str = ""
    left: Leave | None = None  # how it left on a notice or a wish
    process: str = ""  # the engine's id of the process that failed; empty: the trial's own
    host: str = field(default_factory=socket.gethostname)  # of the process that made the report


News = Progress | End


class Leaves(Exception):
    """A trial ends on a notice, as its node goes soon, or on a wish. It has saved its state where
    it could."""

    def __init__(self, leave: Leave) -> None:
        super().__init__(leave.text)
        self.leave = leave


def no_notice() -> bool:
    """A node that stays."""
    return False


def trial_task(
    trial: Trial, records: Records, options: Options, *, shares_vectors: bool = False
) -> TrialTask:
    """The task of a trial under a command's options."""
    quota = int(options.checkpoint_gib * GIBIBYTE)
    return TrialTask(
        name=trial.name,
        config=trial.config,
        competes=trial.competes,
        storage=records.storage.uri,
        sweep=records.sweep,
        threads=options.cpus_per_worker,
        cadence=Cadence(options.checkpoint_minutes, quota_bytes=quota),
        gpu_share=options.gpu_share,
        elastic=bool(options.min_workers),
        auto_precision=options.auto_precision,
        shares_vectors=shares_vectors,
    )


def attempt(task: TrialTask, notice: Callable[[], bool] = no_notice) -> Generator[News]:
    """Runs a trial in this process; yields its progress, and last its `End`. Once `notice` is true,
    it ends after a checkpoint of its next step.

    A trial that cannot succeed (bad settings, a diverging loss, a bug) ends with a reason, not an
    exception: only a trial whose process dies runs again.
    """
    try:
        yield from compute(task, notice)
    except BdbQuit:  # leaving the debugger ends the command
        raise KeyboardInterrupt from None
    except Exception as error:
        yield end_of(error)


def end_of(error: Exception) -> End:
    """The last report of a process that ends with an error."""
    if isinstance(error, Diverged):
        return End(TrialStatus.DIVERGED, reason=str(error) or reason_of(error))
    if isinstance(error, BadInput):
        return End(TrialStatus.FAILED, reason=str(error) or reason_of(error))
    if isinstance(error, Leaves):
        why = "room for more workers" if error.leave.wished else "its node is going"
        reason = f"{why}; {error}"
        return End(TrialStatus.FAILED, reason=reason, kind="node lost", left=error.leave)
    reason = reason_of(error)
    kind = kind_of_reason(reason)
    if kind == "device":
        reason = reason.partition("\n")[0]  # the rest is general advice
    text = "".join(traceback.format_exception(error))
    return End(TrialStatus.FAILED, reason=reason, kind=kind, traceback=text)


def compute(
    task: TrialTask,
    notice: Callable[[], bool] = no_notice,
    wish: Callable[[], bool] = no_notice,
) -> Iterator[News]:
    """Runs a trial in this process, one of several workers perhaps; raises its errors, and
    `Leaves` after a `notice`, or a `wish` once its state is saved."""
    # Ray and `ray submit` set another thread count.
    torch.set_num_threads(max(1, task.threads))
    compute_as_decided(task.auto_precision)
    begin_on_device(task.gpu_share)
    _check_planned(task)
    rank, _ = distributed.world()
    storage = Storage(task.storage, opened=True)
    records = Records(storage, task.sweep)
    checkpoints = None
    if task.cadence.minutes:
        checkpoints = Checkpoints(
            records.checkpoint_folder(task.name),
            task.cadence,
            wait=partial(storage.retried, what="checkpoints cannot be listed"),
            require=storage.require,
            notice=notice,
            wish=wish,
            elastic=task.elastic,
        )
    reports = _Reports(task.name, records)
    workdir, begin = (Path(tempfile.mkdtemp(prefix=f"ranksweep-{n}-")) for n in ("trial", "start"))
    try:
        start = _start(task.config, records, begin)
        for news in _run(task, workdir, checkpoints, start):
            if isinstance(news, TrialResult):
                if rank == 0:
                    (workdir / HISTORY).write_text("\n".join(reports.lines))
                    records.publish(task.name, workdir)
                    if checkpoints:
                        checkpoints.clear()
                # From here on the trial is safe in the storage.
                yield End(TrialStatus(news.status), news)
                continue
            reports.add(news, write=rank == 0)
            yield news
            if checkpoints and checkpoints.leaving:
                raise Leaves(checkpoints.leaving)
    except Diverged:
        if checkpoints and rank == 0:
            checkpoints.clear()  # never runs again
        raise
    finally:
        if checkpoints:
            checkpoints.finish(UPLOAD_SECONDS)
        for made in (workdir, begin):
            shutil.rmtree(made, ignore_errors=True)


def _run(
    task: TrialTask, workdir: Path, checkpoints: Checkpoints | None, start: Path | None
) -> Iterator[Progress | TrialResult]:
    """`run_trial`, which shares vectors where the task does."""
    sharing = exchanged(SharedVectors(task.storage)) if task.shares_vectors else nullcontext()
    with sharing:
        yield from run_trial(task.config, workdir, checkpoints=checkpoints, start=start)


def _start(config: TrialConfig, records: Records, folder: Path) -> Path | None:
    """The weights of the trained trial that a trial on a test set starts from, brought from the
    storage; None for others. Raises `BadInput` where they are gone or were changed."""
    cell = stored_cell(config.training.init_from)
    if not cell:
        return None
    weights = records.read(trial_name(cell, config.seed), WEIGHTS)
    (folder / WEIGHTS).write_bytes(weights)
    return folder / WEIGHTS


class _Reports:
    """The reports of a running trial, for others every few seconds."""

    def __init__(self, name: str, records: Records) -> None:
        self.lines: list[str] = []
        self._name, self._records = name, records
        self._curve: list[dict[str, Any]] = []
        self._dev: dict[str, Any] = {"dev": None, "dev_step": None}  # the latest
        self._written = float("-inf")

    def add(self, news: Progress, *, write: bool) -> None:
        """Adds a report, and writes the trial's progress where it is due."""
        report = asdict(news)
        self.lines.append(json.dumps(report))
        self._curve += report["curve"]
        if news.dev:
            self._dev = {"dev": news.dev, "dev_step": news.step}
        if write and time.monotonic() - self._written >= PROGRESS_SECONDS:
            self._records.progress(self._name, report | {"curve": self._curve} | self._dev)
            self._written = time.monotonic()


def _check_planned(task: TrialTask) -> None:
    """Refuse data, an encoder or code of the user's own that differ from the trial's hash."""
    inputs = load_inputs(task.config.collection, task.config.model.backbone)
    if task.name != trial_name(cell_of(task.config, inputs), task.config.seed):
        own = own_paths(task.config)
        raise BadInput(
            f"{', '.join([task.config.collection, task.config.model.backbone, *own])}: in this "
            "process the data, the encoder or the code is not what the sweep was planned with: a "
            "file was edited, or this node has another version installed"
        )
