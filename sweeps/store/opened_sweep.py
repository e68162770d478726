"""A finished or running sweep for a command: a folder, or a URI whose files are fetched into the
mirror on this machine."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rank_core.errors import BadInput
from sweeps.store.driver_lock import living_driver
from sweeps.store.scores import pull_dataset
from sweeps.store.storage_retry import answered
from sweeps.store.sweep_file import FILE, FIRST_STAGE, INTERPOLATED, NoSweep, no_sweep
from sweeps.store.trial_events import EventLog
from sweeps.store.trial_store import Store

FILES = (FILE, "trials.parquet", "failures.parquet", "test_access.jsonl")
"""With the per-query values, the judgments and the event log, all files that a report needs."""


@contextmanager
def opened(where: str, *, trials: bool = False) -> Iterator[Store]:
    """A sweep with its files in `folder`, with `trials` also those of its trials. Errors about a
    copy name its URI."""
    store = find_sweep(where)
    if not store.is_local:
        answered(store, lambda: _bring(store, trials))
    try:
        yield store
    except BadInput as error:
        raise BadInput(str(error).replace(str(store.folder), store.uri)) from None


def find_sweep(where: str) -> Store:
    """The store of a sweep from its folder or its URI, which may not exist."""
    if "://" not in where:
        folder = Path(where).absolute()
        if not os.path.exists(folder):
            raise NoSweep(f"{where} does not exist; DIR must be a sweep's folder")
        if not os.path.isdir(folder):
            raise BadInput(f"DIR must be a sweep's folder, got the file {where}")
        above = folder.parent.parent
        return Store(str(above), str(folder.relative_to(above)))
    parent, _, collection = where.rstrip("/").rpartition("/")
    storage, _, experiment = parent.rpartition("/")
    if not parent.partition("://")[2]:
        raise BadInput(
            "DIR as a URI must be storage/experiment/collection, as in "
            f"s3://bucket/path/window_stride/python-docs; got {where}"
        )
    if not storage.partition("://")[2]:  # version 0.1 had no folder for the collection
        return Store(parent, collection)
    return Store(storage, f"{experiment}/{collection}")


def drives_here(store: Store) -> bool:
    """True if a command on this machine drives the sweep; `folder` is then newer than a remote
    storage."""
    lease = living_driver(store)
    return lease is not None and lease.is_here and lease.mirror == str(store.folder)


def _bring(store: Store, trials: bool) -> None:
    if drives_here(store):
        return
    store.folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (store.folder / name).unlink(missing_ok=True)
        store.pull_file(name)
    if not (store.folder / FILE).exists():
        raise no_sweep(store.uri, store.collections())
    pull_dataset(store)
    for name in ("qrels", FIRST_STAGE, INTERPOLATED):
        store.pull_folder(name)
    EventLog(store)
    if trials:
        store.pull(store.finished())
