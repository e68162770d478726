"""The one thread that talks to MLflow. Whatever happens to it, the sweep does not notice."""

import logging
import threading
import time
from pathlib import Path

from filelock import FileLock, Timeout

from sweeps.plan.secrets import redact_text
from sweeps.tracking.answers import Answer, meaning
from sweeps.tracking.client import artifact_root, connect, ensure_experiment
from sweeps.tracking.outbox import pending
from sweeps.tracking.projection import Projection
from sweeps.tracking.reconcile import reconcile
from sweeps.tracking.state import UploadState, target_of
from sweeps.tracking.upload import Upload
from sweeps.tracking.uri import NONE, check_tracking_uri
from sweeps.tracking.views import EXPERIMENT_TAGS, view_tags

_log = logging.getLogger("sweeps.tracking")

_IDLE_S, _CLOSING_IDLE_S = 0.5, 0.05  # between passes
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 15.0  # while the store is away
_VIEWS_EVERY_S = 10.0


class Uploader(threading.Thread):
    """Uploads an outbox while it grows; `close` drains it."""

    def __init__(self, outbox_folder: Path, tracking_uri: str, experiment: str) -> None:
        check_tracking_uri(tracking_uri)
        super().__init__(name="mlflow-uploader", daemon=True)
        self.folder = Path(outbox_folder)
        self.tracking_uri = tracking_uri
        self.experiment = experiment
        self._target = target_of(tracking_uri, experiment)
        self.experiment_id = ""  # known once the store has answered
        self._closing = threading.Event()
        self._deadline = float("inf")
        self._away_since: float | None = None
        self._upload: Upload | None = None
        self._reconciled = False
        self._views_due = 0.0

    def close(self, timeout_s: float = 60) -> int:
        """Upload what is left for at most `timeout_s`; the number of records still pending."""
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
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.folder / "uploader.lock")
        try:
            self._loop(lock)
        except Exception:
            _log.exception("the MLflow upload stopped; the outbox %s is complete", self.folder)
        finally:
            lock.release()

    def _loop(self, lock: FileLock) -> None:
        pause = _FIRST_PAUSE_S
        while True:
            last = self._closing.is_set()  # what was written before `close` is in this pass
            try:
                lock.acquire(timeout=0) if not lock.is_locked else None
                complete = self._round()
                pause = _FIRST_PAUSE_S
            except Exception as error:
                complete = False
                self._away(error)
                self._sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
            else:
                self._back()
                if not (complete and last):
                    self._sleep(_CLOSING_IDLE_S if last else _IDLE_S)
            if (complete and last) or time.monotonic() > self._deadline:
                return

    def _round(self) -> bool:
        if self._upload is None:
            self._upload = self._connect()
        complete = self._upload.one_pass(lambda: time.monotonic() <= self._deadline)
        if complete and not self._reconciled:
            self._reconcile(self._upload)
        if complete and (time.monotonic() >= self._views_due or self._closing.is_set()):
            self._views_due = time.monotonic() + _VIEWS_EVERY_S
            self._save_views(self._upload)
        return complete

    def _connect(self) -> Upload:
        client = connect(self.tracking_uri)
        root = artifact_root(self.tracking_uri, self.folder.parent)
        self.experiment_id = ensure_experiment(client, self.experiment, root)
        for name, value in EXPERIMENT_TAGS.items():
            client.set_experiment_tag(self.experiment_id, name, value)
        state = UploadState.load(self.folder, self._target)
        return Upload(self.folder, Projection(client, self.experiment_id), state)

    def _reconcile(self, upload: Upload) -> None:
        try:
            reconcile(upload.projection, self.folder)
        except Exception as error:
            if meaning(error) is Answer.LATER:
                raise
            _log.warning("old runs keep their status: %s", redact_text(str(error))[:300])
        self._reconciled = True

    def _save_views(self, upload: Upload) -> None:
        layout = upload.columns.changed()
        if layout is None:
            return
        try:
            for name, value in view_tags(layout).items():
                upload.projection.client.set_experiment_tag(self.experiment_id, name, value)
        except Exception as error:
            # A convenience of the web pages: worth a line, never a retry loop.
            _log.info("the saved view was not written: %s", redact_text(str(error)))
        upload.columns.shown(layout)

    def _away(self, error: Exception) -> None:
        """Warn once per outage, and connect anew: the store that comes back may be empty."""
        self._upload = None
        if self._away_since is None:
            self._away_since = time.monotonic()
            reason = (
                "another process is uploading it"
                if isinstance(error, Timeout)
                else redact_text(str(error))[:500]
            )
            _log.warning(
                "MLflow at %s takes nothing at the moment (%s). Nothing is lost: everything is "
                "in %s and is uploaded when it is back.",
                redact_text(self.tracking_uri),
                reason,
                self.folder,
            )

    def _back(self) -> None:
        if self._away_since is not None:
            seconds = time.monotonic() - self._away_since
            self._away_since = None
            _log.warning(
                "MLflow at %s is back after %.0f s", redact_text(self.tracking_uri), seconds
            )

    def _sleep(self, seconds: float) -> None:
        if self._closing.is_set():
            time.sleep(max(0.0, min(seconds, self._deadline - time.monotonic())))
        else:
            self._closing.wait(seconds)
