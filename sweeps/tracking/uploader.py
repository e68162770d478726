"""The only thread that talks to MLflow. Its failures never reach the sweep."""

import logging
import threading
import time
from pathlib import Path

from filelock import FileLock, Timeout

from rank_core.errors import BadInput
from sweeps.plan.secrets import redact_text
from sweeps.plan.terminal import duration
from sweeps.store.outage import Outage, reason_of
from sweeps.store.trial_events import EVENTS
from sweeps.tracking.client import artifact_root, connect, ensure_experiment
from sweeps.tracking.cursor import FOLDER, Cursor, pending, target_of
from sweeps.tracking.description import describe
from sweeps.tracking.mlflow_writer import RunWriter
from sweeps.tracking.upload import Answer, Upload, meaning
from sweeps.tracking.uri import NONE, check_tracking_uri
from sweeps.tracking.views import view_tags

_log = logging.getLogger("sweeps.tracking")

_IDLE_S, _CLOSING_IDLE_S = 0.5, 0.05  # between passes
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 15.0  # while the store is unavailable
_VIEWS_EVERY_S = 10.0
LOCK = f"{FOLDER}/uploader.lock"


class Uploader(threading.Thread):
    """The upload of the event log of the sweep in `folder` while it grows; `close` sends the
    rest."""

    def __init__(self, folder: Path, tracking_uri: str, experiment: str) -> None:
        check_tracking_uri(tracking_uri)
        super().__init__(name="mlflow-uploader", daemon=True)
        self.folder = Path(folder)
        self.tracking_uri = tracking_uri
        self.experiment = experiment
        self._target = target_of(tracking_uri, experiment)
        self.experiment_id = ""  # known once the store has answered
        self._closing = threading.Event()
        self._deadline = float("inf")
        self._outage = Outage()
        self.trouble = ""  # why the store is unavailable
        self._upload: Upload | None = None
        self._first = 0
        self._reconciled = False
        self._views_due = 0.0

    def close(self, timeout_s: float = 60) -> int:
        """Uploads the rest within `timeout_s` seconds; returns the number of pending events."""
        if self.tracking_uri == NONE:
            return 0
        self._deadline = time.monotonic() + timeout_s
        self._closing.set()
        if self.ident is not None:
            self.join(timeout_s + 1)
        return pending(self.folder, self._target)

    def run(self) -> None:
        """Pass after pass until closed; see `close`."""
        if self.tracking_uri == NONE:
            return
        lock = FileLock(self.folder / LOCK)
        try:
            self._loop(lock)
        except Exception:
            log = self.folder / EVENTS
            _log.exception("the MLflow upload stopped; the event log %s is complete", log)
        finally:
            lock.release()

    def _loop(self, lock: FileLock) -> None:
        pause = _FIRST_PAUSE_S
        while True:
            last = self._closing.is_set()  # what was written before `close` is in this pass
            complete = self._try(lock)
            if (complete and last) or time.monotonic() > self._deadline:
                return
            if complete is None:
                self._sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
            else:
                pause = _FIRST_PAUSE_S
                self._sleep(_CLOSING_IDLE_S if last else _IDLE_S)

    def _try(self, lock: FileLock) -> bool | None:
        """One pass: True if everything has arrived; None if the store is unavailable."""
        try:
            (self.folder / FOLDER).mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0) if not lock.is_locked else None
            complete = self._round()
        except Exception as error:
            self._away(error)
            return None
        self._back()
        return complete

    def _round(self) -> bool:
        if self._upload is None:
            self._upload = self._connect()
        complete = self._upload.one_pass(lambda: time.monotonic() <= self._deadline)
        if complete and not self._reconciled:
            self._reconcile(self._upload)
        if complete and (time.monotonic() >= self._views_due or self._closing.is_set()):
            self._views_due = time.monotonic() + _VIEWS_EVERY_S
            self._save_view(self._upload)
        return complete

    def _connect(self) -> Upload:
        client = connect(self.tracking_uri)
        root = artifact_root(self.tracking_uri, self.folder)
        self.experiment_id = ensure_experiment(client, self.experiment, root)
        describe(client, self.experiment_id, self.folder, self.experiment, "")
        cursor = Cursor.load(self.folder, self._target)
        writer = RunWriter(client, self.experiment_id, self.folder.absolute() / "runs")
        upload = Upload(self.folder, writer, cursor, self.experiment.rpartition("/")[2])
        upload.first = self._first
        return upload

    def _reconcile(self, upload: Upload) -> None:
        try:
            upload.reconcile()
        except Exception as error:
            if meaning(error) is Answer.LATER:
                raise
            _log.warning("old runs keep their status: %s", reason_of(error))
        self._reconciled = True

    def _save_view(self, upload: Upload) -> None:
        layout = upload.columns.changed()
        if layout is None:
            return
        try:
            for name, value in view_tags(layout).items():
                upload.writer.client.set_experiment_tag(self.experiment_id, name, value)
        except Exception as error:
            # A convenience of the web pages: a line, no retries.
            _log.info("the saved view was not written: %s", reason_of(error))
        upload.columns.shown(layout)

    def _away(self, error: Exception) -> None:
        """Warn, and connect again: the store may be empty when it is back."""
        if self._upload is not None:
            self._first, self._upload = self._upload.first, None
        busy = isinstance(error, Timeout)
        self.trouble = "another process is uploading it" if busy else reason_of(error)
        so_far = self._outage.seconds
        if self._outage.line_due(self.trouble):
            _log.warning(
                "MLflow at %s is unavailable %s (%s). Nothing is lost: %s has every event and is "
                "uploaded when MLflow is back.",
                redact_text(self.tracking_uri),
                f"for {duration(so_far)}" if so_far else "now",
                self.trouble,
                self.folder / EVENTS,
            )

    def _back(self) -> None:
        self.trouble = ""
        if (seconds := self._outage.over()) is not None:
            uri = redact_text(self.tracking_uri)
            _log.warning("MLflow at %s is back after %s", uri, duration(seconds))

    def _sleep(self, seconds: float) -> None:
        if self._closing.is_set():
            time.sleep(max(0.0, min(seconds, self._deadline - time.monotonic())))
        else:
            self._closing.wait(seconds)


def sync(folder: Path, tracking_uri: str, experiment: str, *, timeout_s: float = 600) -> int:
    """Uploads the pending events of the sweep in `folder` in the foreground, for a sweep that ended
    while MLflow was unavailable. Returns the number of uploaded events; raises `BadInput` if some
    are still pending after `timeout_s` seconds."""
    check_tracking_uri(tracking_uri)
    if tracking_uri == NONE:
        raise BadInput("sync needs a tracking URI other than none")
    log = folder / EVENTS
    if not log.is_file():
        raise BadInput(f"a sweep folder holds {EVENTS}, found none in {folder}")
    (folder / FOLDER).mkdir(exist_ok=True)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise BadInput(f"one process may upload {log}; another one does it now") from None
    lock.release()
    before = pending(folder, target_of(tracking_uri, experiment))
    uploader = Uploader(folder, tracking_uri, experiment)
    uploader.start()
    num_pending = uploader.close(timeout_s)
    if num_pending or not uploader.experiment_id:
        why = f" ({uploader.trouble})" if uploader.trouble else "; see the warnings"
        raise BadInput(f"{num_pending} of {before} events in {log} are still pending{why}")
    return before
