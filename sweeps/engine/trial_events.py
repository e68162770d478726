"""The trials of a sweep while an engine runs them: each event goes to the records, MLflow, the
search and the screen."""

import logging
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from operator import itemgetter
from typing import Any

from rank_core.secrets import redact_text
from rank_core.trial.trial import Progress
from sweeps.engine.kept_weights import KeptWeights
from sweeps.engine.progress import Screen
from sweeps.engine.trial_task import End
from sweeps.plan.plan import Trial
from sweeps.search.search import Search
from sweeps.store.records import Records
from sweeps.store.trial_status import INTERRUPTED, RESIZED, TrialStatus
from sweeps.tracking.thread import MlflowThread
from sweeps.tracking.trial_run import report_points


class TrialEvents:
    """The events of a sweep's trials, which its engine calls in the driver. `callbacks` are objects
    of the caller of Python, which are told of trials too; what they raise is logged."""

    def __init__(
        self,
        records: Records,
        mlflow: MlflowThread,
        search: Search,
        screen: Screen,
        weights: KeptWeights,
        callbacks: Sequence[object] = (),
    ) -> None:
        self.records, self.mlflow, self.search, self.screen = records, mlflow, search, screen
        self.weights, self._callbacks = weights, callbacks

    def started(self, trial: Trial, workers: int = 1) -> None:
        """An attempt begins."""
        number = self.records.begin(trial.name, workers)
        self.search.limit.started(trial, workers)
        self.mlflow.changed(trial.name)
        self.screen.started(trial, number)
        self._tell("started", trial, trial.config)

    def reported(self, trial: Trial, news: Progress) -> None:
        """A trial reports its progress."""
        report = asdict(news)
        self.mlflow.reported(trial.name, report)
        self.screen.reported(trial, news)
        self.search.describe_in_time()
        if self._callbacks:
            for step, points in groupby(report_points(report, 0), itemgetter(2)):
                self._tell("reported", trial, {name: value for name, value, *_ in points}, step)

    def ended(self, trial: Trial, end: End, *, again: bool = False, node: str = "") -> None:
        """An attempt ended with a result, by a fault or by ASHA, and the trial with it unless it
        runs `again`. `node` is that of a fault."""
        facts: dict[str, Any] = {"reason": end.reason, "host": end.host}
        if end.status is TrialStatus.FAILED:
            facts |= {"kind": end.kind, "again": again, "node": node}
        self.records.end(trial.name, end.status, **facts)
        if end.result:
            self.weights.finished(trial.name)
            if self.weights.exceed:
                cells = [cell.cell for cell in self.search.plan.cells]
                self.weights.prune(cells, self.search.eliminated)
        if end.traceback and not again:
            text = redact_text(end.traceback)
            self.records.write_file(f"failures/{trial.name}.txt", text.encode())
        self.mlflow.changed(trial.name)
        self.screen.ended(trial, end, again=again)
        if again:
            self.search.limit.lost(trial)
        else:
            if end.result:
                self.search.measured(trial, end.result.worker_seconds)
            self.search.ended(trial, end.status)
            self._tell("finished" if end.result else "failed", trial, trial.config)

    def _tell(self, what: str, trial: Trial, *facts: object) -> None:
        for one in self._callbacks:
            try:
                if call := getattr(one, what, None):
                    call(trial.name, *facts)
            except Exception:
                logging.getLogger(__name__).exception("callback %r of %s failed", one, what)

    def resized(self, trial: Trial, reason: str) -> None:
        """An attempt has saved its state, from which the next one goes on with more workers."""
        self.records.end(trial.name, RESIZED, reason=reason, again=True)
        self.mlflow.changed(trial.name)
        self.search.limit.lost(trial)
        self.screen.goes_on(trial, reason)

    def gave_up(self, trial: Trial) -> None:
        """An attempt was given up with its engine, without a fault of its own; it runs again."""
        self._interrupted(trial.name)
        self.search.limit.lost(trial)

    def interrupted(self) -> None:
        """The driver stops early, at any point: running trials count as not run."""
        for name in self.records.running:
            self._interrupted(name)

    def _interrupted(self, name: str) -> None:
        self.records.end(name, INTERRUPTED, reason=INTERRUPTED)
        self.mlflow.changed(name)
