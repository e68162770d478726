"""What runs inside a trial's process. Imports neither mlflow nor optuna.

One worker: a plain Tune function, its process reused by the next trial. Several: the same
`run_trial` in every worker of a Ray Train group.
"""

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rank_core.checkpoints.checkpoint import Cadence, Checkpoints
from rank_core.chunking.inputs import load_inputs
from rank_core.errors import Diverged
from rank_core.settings.config import TrialConfig
from rank_core.trial.fold_model import pause_step
from rank_core.trial.trial import Progress, TrialResult, run_trial
from sweeps.ray_engine.group_failure import WorkerFailed, end_of, end_of_group
from sweeps.ray_engine.nodes import elsewhere
from sweeps.store.rungs import Rung, best_on_dev, leave_rung, read_rung
from sweeps.store.storage_retry import patient_read, publish_kept, publish_or_keep
from sweeps.store.trial_store import HISTORY, Store

Report = Callable[[dict[str, Any]], None]


def run_in_tune(config: dict[str, Any]) -> None:
    """A Tune trial that computes in its own process."""
    from ray import tune

    _run(config["work"], tune.report)


def run_in_train(config: dict[str, Any]) -> None:
    """A Tune trial that drives a Ray Train group and computes nothing itself."""
    from ray import train, tune
    from ray.train.torch import TorchConfig, TorchTrainer
    from ray.tune.integration.ray_train import TuneReportCallback

    work = config["work"]
    trial_id = tune.get_context().get_trial_id()
    scratch = tempfile.mkdtemp(prefix="ranksweep-train-")
    resources = {"CPU": work["cpus"]}
    if work["gpus"]:
        resources["GPU"] = work["gpus"]
    try:
        TorchTrainer(
            _train_worker,
            train_loop_config=work,
            torch_config=TorchConfig(backend="nccl" if work["gpus"] else "gloo"),
            scaling_config=train.ScalingConfig(
                num_workers=work["num_workers"],
                use_gpu=bool(work["gpus"]),
                resources_per_worker=resources,
                label_selector=elsewhere(work["avoid"]),  # type: ignore[call-arg]
            ),
            run_config=train.RunConfig(
                name=f"train-{trial_id}",
                storage_path=scratch,
                callbacks=[TuneReportCallback()],  # type: ignore[list-item]
                failure_config=train.FailureConfig(
                    max_failures=0,
                    controller_failure_limit=3,  # type: ignore[call-arg]
                ),
            ),
        ).fit()
    except Exception as error:  # Ray Train has a class for each way in which a group may end
        tune.report(end_of_group(error))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _train_worker(work: dict[str, Any]) -> None:
    """One worker's part of a trial; an error of one ends them all (`group_failure`)."""
    import ray
    from ray import train
    from ray.train.torch import get_device

    if work["gpus"]:
        torch.cuda.set_device(get_device())
    try:
        _compute(work, train.report, publishes=train.get_context().get_world_rank() == 0)
    except Exception as error:
        actor = ray.get_runtime_context().get_actor_id()
        raise WorkerFailed(end_of(error) | {"actor": actor}) from None


def _run(work: dict[str, Any], report: Report) -> None:
    """Runs the trial and reports its progress; ends with a report that has a `status`.

    A trial that cannot succeed (bad settings, a diverging loss, a bug) ends with a reason instead
    of an exception, so that nothing tries it again. Only a dying process is tried again.
    """
    try:
        _compute(work, report, publishes=True)
    except Exception as error:
        report(end_of(error))


def _compute(work: dict[str, Any], report: Report, *, publishes: bool) -> None:
    """The trial itself, in a process that may be one of several workers."""
    # Ray and `ray submit` set the thread count of a process by rules of their own.
    torch.set_num_threads(max(1, int(work["threads"])))
    torch.use_deterministic_algorithms(True, warn_only=True)
    workdir = Path(tempfile.mkdtemp(prefix="ranksweep-trial-"))
    checkpoints: Checkpoints | None = None
    try:
        store = Store(work["storage"], work["sweep"])
        if work["num_workers"] == 1 and (kept := publish_kept(store, work["name"])):
            report({"status": kept["status"], "result": kept})
            return
        if work["epochs"] and (rung := read_rung(store, work["name"], work["epochs"])):
            report({"status": "stopped", "reason": rung.text()})
            return
        config = TrialConfig().override(work["settings"])
        history: list[str] = []
        cadence = Cadence(**work["cadence"])
        pause = _pause(config, work["epochs"])
        if cadence.minutes:
            folder = store.checkpoint_folder(work["name"])
            wait = partial(patient_read, store)
            checkpoints = Checkpoints(folder, cadence, pause=pause, wait=wait)
        for news in run_trial(config, workdir, checkpoints=checkpoints):
            if isinstance(news, TrialResult):
                if publishes:
                    (workdir / HISTORY).write_text("\n".join(history))
                    publish_or_keep(store, workdir, work["name"])
                    if checkpoints:
                        checkpoints.clear()
                # Store addresses are content: by now the trial is safe, whoever dies next.
                report({"status": news.status, "result": asdict(news)})
            else:
                history.append(json.dumps(asdict(news)))
                report({"status": "running", "news": asdict(news)})
                if news.step == pause:
                    rung = _rung(config, work["epochs"], news, history)
                    if publishes:
                        leave_rung(store, work["name"], rung)
                    report({"status": "stopped", "reason": rung.text()})
                    break
    except Diverged:
        if checkpoints and publishes:
            checkpoints.clear()  # it would diverge again
        raise
    finally:
        shutil.rmtree(workdir, ignore_errors=True)


def _pause(config: TrialConfig, epochs: int) -> int | None:
    """The step after which the trial rests; None where it runs to its end."""
    if not epochs:
        return None
    return pause_step(config, load_inputs(config.collection, config.model.backbone), epochs)


def _rung(config: TrialConfig, epochs: int, news: Progress, history: list[str]) -> Rung:
    measure = config.evaluation.measures[0]
    return Rung(
        epochs=epochs,
        num_epochs=config.training.num_epochs,
        step=news.step,
        num_steps=news.num_steps,
        measure=measure,
        dev=best_on_dev(history, measure, news.step),
    )
