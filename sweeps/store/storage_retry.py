"""Retries for an unavailable storage, without a loss if it stays unavailable."""

import logging
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from rank_core.cache import cache_root
from rank_core.errors import BadInput
from sweeps.plan.secrets import redact_text
from sweeps.plan.terminal import duration
from sweeps.store.checksums import RESULT, DamagedTrial, damage, read_result
from sweeps.store.outage import Outage, reason_of
from sweeps.store.trial_store import ASIDE, Store

WAIT_SECONDS = 300.0
ANSWER_SECONDS = 60.0
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0
OURS = (BadInput, TypeError, AttributeError, KeyError, IndexError, AssertionError)
"""Errors that no waiting repairs. Filesystems raise many other kinds."""

_log = logging.getLogger("sweeps.storage")
T = TypeVar("T")


class StorageAway(Exception):
    """A storage rejected a write for `WAIT_SECONDS`."""


def patiently(action: Callable[[], T], what: str, wait_seconds: float | None = None) -> T:
    """Retries a repeatable action for some minutes while it fails, with a message every minute."""
    deadline = time.monotonic() + (WAIT_SECONDS if wait_seconds is None else wait_seconds)
    pause, outage = FIRST_PAUSE, Outage(time.monotonic)
    while True:
        try:
            result = action()
        except OURS:
            raise
        except Exception as error:
            remaining = deadline - time.monotonic()
            if remaining < pause:
                raise StorageAway(f"{what}: {type(error).__name__}: {error}") from error
            if outage.line_due(reason_of(error)):
                _log.warning(
                    "%s: %s; trying again for %s", what, reason_of(error), duration(remaining)
                )
        else:
            if outage.over() is not None:
                _log.warning("%s: the storage is back", what)
            return result
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def answered(store: Store, ask: Callable[[], T]) -> T:
    """The answer of a storage when a command begins. Raises `BadInput` if it fails or does not
    answer within `ANSWER_SECONDS`: clients of a wrong endpoint retry for ever."""
    answers: list[T] = []
    errors: list[Exception] = []

    def wait() -> None:
        try:
            answers.append(ask())
        except Exception as error:  # every filesystem has its own kinds
            errors.append(error)

    thread = threading.Thread(target=wait, daemon=True, name="storage")
    thread.start()
    thread.join(ANSWER_SECONDS)
    if answers:
        return answers[0]
    if errors and isinstance(errors[0], OURS):
        raise errors[0]
    what = (
        f"{type(errors[0]).__name__}: {errors[0]}"
        if errors
        else (f"no answer for {ANSWER_SECONDS:.0f} s")
    )
    raise BadInput(f"the storage must be reachable, got {store.uri}: {redact_text(what)}")


def patient_read(store: Store, read: Callable[[], T]) -> T:
    """The value of `read`, retried while the store is unavailable."""

    def there() -> T:
        store.require()
        try:
            return read()
        except DamagedTrial:
            store.require()  # without the storage everything seems to be missing
            raise

    return patiently(there, f"{store.storage} cannot be read")


def publish_or_keep(store: Store, workdir: Path, name: str) -> None:
    """Publishes a finished trial; if the storage stays unavailable, keeps it on this
    machine's disk for its next attempt here."""
    try:
        patiently(lambda: store.publish(workdir, name), f"{store.storage} rejected {name}")
    except StorageAway as error:
        kept = kept_folder(store, name)
        if not (kept / RESULT).exists():
            arriving = kept.with_name(f".{kept.name}-{uuid.uuid4().hex[:8]}")
            shutil.copytree(workdir, arriving)
            arriving.rename(kept)
        raise StorageAway(
            f"{error}. The finished trial is kept in {kept} on {socket.gethostname()}; the same "
            "command on this machine publishes it without computing it again"
        ) from error


def publish_kept(store: Store, name: str) -> dict[str, Any] | None:
    """Publishes the trial that an earlier attempt kept on this machine; returns its result, None
    without one."""
    kept = kept_folder(store, name)
    if not (kept / RESULT).exists():
        return None
    if damaged := damage(kept, thorough=True):
        _log.warning("%s is damaged (%s) and computed again", kept, damaged)
        kept.rename(kept.with_name(f"{name}{ASIDE}{uuid.uuid4().hex[:8]}"))
        return None
    result = read_result(kept).facts
    patiently(lambda: store.publish(kept, name), f"{store.storage} rejected {name}")
    shutil.rmtree(kept)
    return result


def kept_folder(store: Store, name: str) -> Path:
    """The local folder of a finished trial that the storage rejected."""
    return cache_root() / "unpublished" / store.identity / name
