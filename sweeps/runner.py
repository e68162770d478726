"""The seam to Ray Tune: runs trials on the cluster and hands their reports to the monitor."""

import shutil
import tempfile
from typing import Any

from ray import tune
from ray.tune import Callback

from sweeps.monitor import Monitor
from sweeps.plan import Trial
from sweeps.resources import DRIVER_CPU, Resources
from sweeps.store import Store
from sweeps.trainable import run_in_train, run_in_tune

PROCESS_DEATHS = 3  # a trial whose process died is started again this often


class _Bridge(Callback):
    """Passes Tune's events on. Pickled with the Tuner, so it leaves the monitor behind."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self.monitor.started(trial.config["work"]["name"])

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any
    ) -> None:
        if "status" in result:
            self.monitor.news(trial.config["work"]["name"], result)

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self.monitor.died(trial.config["work"]["name"], "the trial ended without a result")

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        error = trial.get_error()
        # Ray's own text runs over many lines; the first says what happened.
        reason = str(error).strip().splitlines()[0] if error else "unknown"
        self.monitor.died(trial.config["work"]["name"], f"{type(error).__name__}: {reason}")


def run_trials(
    trials: list[Trial], *, store: Store, resources: Resources, monitor: Monitor
) -> None:
    """Runs the trials in their order, as many side by side as there are slots."""
    # Tune's own state is scrap: the trial store is what a later command goes on from.
    scratch = tempfile.mkdtemp(prefix="ranksweep-tune-")
    work = [_work(trial, store, resources) for trial in trials]
    if resources.num_workers == 1:
        request = {"cpu": resources.cpus, "gpu": resources.gpus}
        trainable = tune.with_resources(run_in_tune, request)
    else:
        trainable = tune.with_resources(run_in_train, {"cpu": DRIVER_CPU})
    tuner = tune.Tuner(
        trainable,
        param_space={"work": tune.grid_search(work)},
        tune_config=tune.TuneConfig(max_concurrent_trials=resources.slots, reuse_actors=True),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=scratch,
            callbacks=[_Bridge(monitor)],
            failure_config=tune.FailureConfig(max_failures=PROCESS_DEATHS),
            verbose=0,
        ),
    )
    try:
        tuner.fit()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _work(trial: Trial, store: Store, resources: Resources) -> dict[str, Any]:
    return {
        "name": trial.name,
        "settings": trial.config.settings(),
        "storage": store.storage,
        "sweep": store.sweep,
        "num_workers": resources.num_workers,
        "cpus": resources.cpus,
        "gpus": resources.gpus,
        "threads": resources.threads,
    }
