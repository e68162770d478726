"""The trials of a sweep while an engine runs them: each event goes to the records, MLflow, the
search and the screen."""

from dataclasses import asdict, replace

from rank_core.trial.trial import Progress
from sweeps.engine.progress import Screen
from sweeps.engine.trial_task import End
from sweeps.plan.plan import Trial
from sweeps.plan.secrets import redact_text
from sweeps.search.search import Search
from sweeps.store.kept_weights import KeptWeights
from sweeps.store.records import Records
from sweeps.store.trial_status import TrialStatus
from sweeps.tracking.thread import MlflowThread


class Drive:
    """The events of a sweep's trials, which its engine calls in the driver."""

    def __init__(
        self,
        records: Records,
        mlflow: MlflowThread,
        search: Search,
        screen: Screen,
        weights: KeptWeights,
    ) -> None:
        self.records, self.mlflow, self.search, self.screen = records, mlflow, search, screen
        self.weights = weights

    def started(self, trial: Trial) -> None:
        """An attempt begins."""
        number = self.records.begin(trial.name)
        self.mlflow.changed(trial.name)
        self.screen.started(trial, number)

    def reported(self, trial: Trial, news: Progress) -> None:
        """A trial reports its progress."""
        self.mlflow.reported(trial.name, asdict(news))
        self.screen.reported(trial, news)

    def failed(self, trial: Trial, end: End, *, again: bool, node: str = "") -> None:
        """An attempt ended by a fault, and the trial with it unless it runs `again`."""
        end = replace(end, reason=redact_text(end.reason))
        facts = {
            "kind": end.kind,
            "reason": end.reason,
            "again": again,
            "node": node,
            "host": end.host,
        }
        self.records.end(trial.name, TrialStatus.FAILED, **facts)
        if not again:
            self._keep_traceback(trial, end.traceback)
        self.mlflow.changed(trial.name)
        self.screen.failed(trial, end, again=again)
        if not again:
            self.search.ended(trial, TrialStatus.FAILED)

    def finished(self, trial: Trial, end: End) -> None:
        """A trial has a result, diverged, or was stopped by ASHA."""
        end = replace(end, reason=redact_text(end.reason))
        self.records.end(trial.name, end.status, reason=end.reason, host=end.host)
        if end.result:
            self.weights.finished(trial.name)
        self._keep_traceback(trial, end.traceback)
        self.mlflow.changed(trial.name)
        self.screen.finished(trial, end)
        self.search.ended(trial, end.status)

    def interrupted(self) -> None:
        """The driver stops early, at any point: running trials count as not run."""
        for name in self.records.running:
            self.records.end(name, "interrupted", reason="interrupted")
            self.mlflow.changed(name)

    def _keep_traceback(self, trial: Trial, text: str) -> None:
        if text:
            self.records.write_file(f"failures/{trial.name}.txt", redact_text(text).encode())
