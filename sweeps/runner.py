"""The seam to Ray Tune: runs what a feed hands out and passes on what becomes of it."""

import os
import shutil
import tempfile
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

from ray import tune
from ray.tune import Callback, Stopper
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.search import Searcher

from sweeps.feed import Feed
from sweeps.monitor import Monitor
from sweeps.plan import Trial
from sweeps.resources import DRIVER_CPU, Resources
from sweeps.store import Store
from sweeps.trainable import run_in_train, run_in_tune

PROCESS_DEATHS = 3  # a trial whose process died is started again this often


class _Launches:
    """Which trial runs as which of Tune's, and which come again because their process died."""

    def __init__(self, feed: Feed, monitor: Monitor, slots: int) -> None:
        self.feed, self.monitor, self.slots = feed, monitor, slots
        self.live: dict[str, Trial] = {}  # by Tune's id of the attempt
        self.stopped: set[str] = set()  # Tune's ids of those the feed wants stopped
        self.again: deque[Trial] = deque()
        self.deaths: Counter[str] = Counter()  # by our name of the trial

    @property
    def over(self) -> bool:
        return self.feed.over and not self.live and not self.again

    def next(self, tune_id: str) -> Trial | None:
        if len(self.live) >= self.slots:
            return None
        trial = self.again.popleft() if self.again else self.feed.next()
        if trial:
            self.live[tune_id] = trial
        return trial

    def reported(self, tune_id: str, report: Mapping[str, Any]) -> None:
        trial = self.live[tune_id]
        if "status" in report:
            self.monitor.news(trial, report)

    def stops(self, tune_id: str, report: Mapping[str, Any]) -> bool:
        if report.get("status") != "running" or not self.feed.stop(
            self.live[tune_id], report["news"]
        ):
            return False
        self.stopped.add(tune_id)
        return True

    def completed(self, tune_id: str) -> None:
        trial = self.live.pop(tune_id)
        if tune_id in self.stopped:
            self.monitor.stopped(trial)
        else:
            self.monitor.died(trial, "the trial ended without a result")
        self.feed.ended(trial, self.monitor.ended[trial.name])

    def failed(self, tune_id: str, error: Exception | None) -> None:
        trial = self.live.pop(tune_id)
        self.deaths[trial.name] += 1
        if trial.name not in self.monitor.ended and self.deaths[trial.name] <= PROCESS_DEATHS:
            self.again.append(trial)
            return
        # Ray's own text runs over many lines; the first says what happened.
        reason = str(error).strip().splitlines()[0] if error else "unknown"
        self.monitor.died(trial, f"{type(error).__name__}: {reason}")
        self.feed.ended(trial, self.monitor.ended[trial.name])


class _Adapter:
    """Tune pickles what it is given; nothing of ours is ever unpickled."""

    def __init__(self, launches: _Launches) -> None:
        self.launches = launches

    def __getstate__(self) -> dict[str, Any]:
        return {}


class _Search(_Adapter, Searcher):
    """Asks the feed for Tune's next trial."""

    def __init__(self, launches: _Launches, store: Store, resources: Resources) -> None:
        _Adapter.__init__(self, launches)
        Searcher.__init__(self)
        self.store, self.resources = store, resources

    def suggest(self, trial_id: str) -> Any:
        trial = self.launches.next(trial_id)
        if trial:
            return {"work": _work(trial, self.store, self.resources)}
        return Searcher.FINISHED if self.launches.over else None

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        """The callback tells more."""

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Tune's own state is scrap: the trial store is what a later command goes on from."""


class _Stop(_Adapter, Stopper):
    """Ends the trials that the feed gives up."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return self.launches.stops(trial_id, result)

    def stop_all(self) -> bool:
        return False


class _Bridge(_Adapter, Callback):
    """Passes Tune's events on."""

    def on_trial_start(self, iteration: int, trials: Any, trial: TuneTrial, **info: Any) -> None:
        self.launches.monitor.started(self.launches.live[trial.trial_id])

    def on_trial_result(
        self, iteration: int, trials: Any, trial: TuneTrial, result: dict[str, Any], **info: Any
    ) -> None:
        self.launches.reported(trial.trial_id, result)

    def on_trial_complete(self, iteration: int, trials: Any, trial: TuneTrial, **info: Any) -> None:
        self.launches.completed(trial.trial_id)

    def on_trial_error(self, iteration: int, trials: Any, trial: TuneTrial, **info: Any) -> None:
        self.launches.failed(trial.trial_id, trial.get_error())

    def on_step_end(self, iteration: int, trials: list[TuneTrial], **info: Any) -> None:
        # A process that could not be reused for the next trial ends that trial without a call.
        for trial in trials:
            if trial.status == TuneTrial.ERROR and trial.trial_id in self.launches.live:
                self.launches.failed(trial.trial_id, trial.get_error())


def run_trials(feed: Feed, *, store: Store, resources: Resources, monitor: Monitor) -> None:
    """Runs what the feed hands out until it is over, as many side by side as there are slots."""
    scratch = tempfile.mkdtemp(prefix="ranksweep-tune-")
    launches = _Launches(feed, monitor, resources.slots)
    # Tune would start the processes of a searcher's trials one after the other.
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(resources.slots)
    if resources.num_workers == 1:
        request = {"cpu": resources.cpus, "gpu": resources.gpus}
        trainable = tune.with_resources(run_in_tune, request)
    else:
        trainable = tune.with_resources(run_in_train, {"cpu": DRIVER_CPU})
    tuner = tune.Tuner(
        trainable,
        tune_config=tune.TuneConfig(
            search_alg=_Search(launches, store, resources), num_samples=-1, reuse_actors=True
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=scratch,
            stop=_Stop(launches),
            callbacks=[_Bridge(launches)],
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
