"""Upload what is pending, in the foreground: for a sweep whose MLflow was away at its end."""

from pathlib import Path

from filelock import FileLock, Timeout

from rank_core.errors import BadInput
from sweeps.tracking.outbox import pending
from sweeps.tracking.state import target_of
from sweeps.tracking.trial_file import trial_files
from sweeps.tracking.uploader import Uploader
from sweeps.tracking.uri import NONE, check_tracking_uri


def sync(folder: Path, tracking_uri: str, experiment: str, *, timeout_s: float = 600) -> int:
    """The number of records that were uploaded. `folder` is a sweep's folder or its outbox.

    Raises `BadInput` if the store does not take all of them within `timeout_s`.
    """
    check_tracking_uri(tracking_uri)
    if tracking_uri == NONE:
        raise BadInput("sync needs a tracking URI other than none")
    outbox = _outbox_of(Path(folder))
    lock = FileLock(outbox / "uploader.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise BadInput(f"one process may upload {outbox}; another one does it now") from None
    lock.release()
    before = pending(outbox, target_of(tracking_uri, experiment))
    uploader = Uploader(outbox, tracking_uri, experiment)
    uploader.start()
    left = uploader.close(timeout_s)
    if left or not uploader.experiment_id:
        raise BadInput(
            f"{left} of {before} records in {outbox} are still pending; see the warnings"
        )
    return before


def _outbox_of(folder: Path) -> Path:
    inner = folder / "outbox"
    outbox = inner if inner.is_dir() else folder
    if not outbox.is_dir() or not trial_files(outbox):
        raise BadInput(f"a sweep folder holds outbox/*.jsonl, found none in {folder}")
    return outbox
