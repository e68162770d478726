"""The only thread that talks to MLflow; its failures never reach the sweep. `sync` does the same in
the foreground."""

import importlib
import logging
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from rank_core.errors import BadInput
from rank_core.secrets import redact_text
from sweeps.store.records import Records
from sweeps.store.storage import Storage, StorageAway
from sweeps.store.sweep_file import read_sweep_file
from sweeps.terminal.text import duration, numbered
from sweeps.tracking.client import (
    NONE,
    check_database,
    check_tracking_uri,
    create_database,
    reason_of,
)
from sweeps.tracking.experiment_runs import ExperimentRuns
from sweeps.tracking.runs import Runs

_log = logging.getLogger(__name__)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 15.0  # between passes; the second while MLflow is away
_LINE_S = 60.0  # between messages about it


class MlflowThread:
    """The copy of a sweep's trials, or of what else `runs` sends, in an experiment of MLflow, for
    its driver, which calls `changed` and `reported`; they return at once. What an earlier command
    did not send is sent, too."""

    def __init__(
        self,
        records: Records,
        tracking_uri: str,
        experiment: str,
        runs: type[ExperimentRuns] = Runs,
    ) -> None:
        check_tracking_uri(tracking_uri)
        self.tracking_uri, self._shown = tracking_uri, redact_text(tracking_uri)
        self.trouble = ""  # why MLflow is away
        self._records, self._experiment = records, experiment
        # A daemon: a call to MLflow that never returns must not keep a finished sweep alive.
        self._thread = threading.Thread(target=self._run, name="mlflow", daemon=True)
        self._lock = threading.Lock()
        self._reports: dict[str, list[Mapping[str, Any]]] = {}  # of trials with something to send
        self._changed: set[str] = set()  # those among them that began or ended
        self._sending = ""  # the trial that is on its way
        self._described = False  # whether view, description and report of the sweep's end are sent
        self._closing = threading.Event()
        self._deadline = float("inf")
        self._kind = runs
        self._runs: ExperimentRuns | None = None  # while connected
        self._ever = False  # whether it was connected
        self._since, self._told = 0.0, float("-inf")  # the outage, and the last line about one

    def start(self) -> None:
        """Begins to send. A database file is made here, and never while the sweep runs: its disk
        may go away."""
        if self.tracking_uri != NONE:
            with suppress(OSError):  # the thread says why it is unavailable
                self._records.storage.require()
                create_database(self.tracking_uri)
            # MLflow imports it in its thread; meanwhile the half-imported module breaks matplotlib.
            with suppress(ImportError):
                importlib.import_module("IPython")
            self._thread.start()

    def changed(self, name: str) -> None:
        """Sends the begin or the end of an attempt."""
        with self._lock:
            self._reports.setdefault(name, [])
            self._changed.add(name)

    def reported(self, name: str, report: Mapping[str, Any]) -> None:
        """Sends a report of a running trial."""
        with self._lock:
            self._reports.setdefault(name, []).append(report)

    def close(self, seconds: float = 60) -> str:
        """Sends the rest and the report within some seconds; returns what MLflow lacks then, ""
        for nothing."""
        if self._thread.ident is None:
            return ""
        self._deadline = time.monotonic() + seconds
        self._closing.set()
        self._thread.join(seconds + 1)
        with self._lock:  # what is on its way may never arrive
            waiting = {*self._reports, self._sending} - {""}
        if not self._ever:
            here = Records(Storage(self._records.storage.uri), self._records.sweep)
            with suppress(Exception):  # this storage does not wait while it is away
                states = here.states(read_sweep_file(here).trials).values()
                waiting |= {state.name for state in states if state.num_attempts}
        trials = [numbered(len(waiting), self._kind.noun)] if waiting else []
        return " and ".join(trials + ([] if self._described else ["the report"]))

    def _run(self) -> None:
        pause = _FIRST_PAUSE_S
        while time.monotonic() < self._deadline:
            last = self._closing.is_set()  # what was told before `close` is in this pass
            try:
                runs = self._pass()
                self._back()
                if last and not self._reports:
                    runs.find()
                    runs.describe()
                    self._described = True
                    return
                pause = _FIRST_PAUSE_S
            except Exception as error:  # MLflow, its database and the network have many kinds
                self._runs = None  # it may be empty when it is back
                if not isinstance(error, StorageAway):  # the driver says so
                    self._away(error)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
            time.sleep(min(pause, max(0.0, self._deadline - time.monotonic())))

    def _pass(self) -> ExperimentRuns:
        """Sends what there is. A trial that cannot be sent goes to the end: it does not block the
        others."""
        try:
            self._records.storage.require()
        except OSError as error:  # MLflow would make artifacts below an absent mount
            raise StorageAway(str(error)) from None
        runs = self._runs = self._runs or self._connect()
        for name in list(self._reports):
            if time.monotonic() > self._deadline:
                break
            with self._lock:
                # Taken out under the lock and sent outside: the driver's calls never wait for the
                # network.
                reports, changed = self._reports.pop(name), name in self._changed
                self._sending = name
                self._changed.discard(name)
            try:
                runs.send(name, reports, changed=changed)
            except BaseException:
                with self._lock:
                    # Put back before what has come meanwhile: points of a curve are sent in order.
                    self._reports[name] = reports + self._reports.pop(name, [])
                    self._changed.add(name)
                raise
            finally:
                self._sending = ""
        return runs

    def _connect(self) -> ExperimentRuns:
        """Connects, and notes all trials whose run is missing or unfinished."""
        records = Records(self._records.storage, self._records.sweep, command=self._records.command)
        runs = self._kind(records, self.tracking_uri, self._experiment, create=False)
        for name in runs.unsent():
            self.changed(name)
        if not self._ever:
            runs.describe()
        self._ever = True
        return runs

    def _away(self, error: Exception) -> None:
        now = time.monotonic()
        self._since = self._since or now
        self.trouble = reason_of(error)
        if now - self._told < _LINE_S:
            return
        self._told = now
        _log.warning(
            "MLflow at %s is unavailable%s (%s). Nothing is lost: %s has every %s and is sent "
            "when MLflow is back.",
            self._shown,
            f" for {duration(now - self._since)}" if now > self._since else " now",
            self.trouble,
            self._records.storage.uri,
            self._kind.noun,
        )

    def _back(self) -> None:
        if 0 < self._since <= self._told:  # no more lines for failures with successes in between
            seconds = duration(time.monotonic() - self._since)
            _log.warning("MLflow at %s is back after %s", self._shown, seconds)
        self._since, self.trouble = 0.0, ""


def sync(records: Records, tracking_uri: str, experiment: str) -> int:
    """Sends MLflow the trials whose run is missing or unfinished, view, description and report;
    returns the number of runs written. Raises `BadInput` where MLflow does not answer."""
    check_tracking_uri(tracking_uri)
    if tracking_uri == NONE:
        raise BadInput("sync needs a tracking URI other than none")
    check_database(tracking_uri)
    written = 0
    try:
        runs = Runs(records, tracking_uri, experiment)
        for state in runs.lacking():
            runs.write(state)
            written += 1
        runs.find()
        runs.describe()
    except (BadInput, StorageAway):
        raise
    except Exception as error:  # MLflow, its database and the network have many kinds
        raise BadInput(
            f"{written} runs were sent, and MLflow at {tracking_uri} does not take "
            f"the rest ({reason_of(error)})"
        ) from None
    return written
