"""The storage: can it be written, and is there room."""

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rank_core.cache import cache_root
from sweeps.commands.doctor.finding import Finding
from sweeps.store.trial_store import Store

ROOM = 2 * 2**30
"""Bytes below which a sweep with checkpoints may run out of room."""


@dataclass(frozen=True)
class Probe:
    """A file that lies in the storage while it is examined; None where none could be written."""

    findings: tuple[Finding, ...]
    path: Path | None = None  # of a storage that is a folder


@contextlib.contextmanager
def probed(store: Store) -> Iterator[Probe]:
    """Writes a probe file, says how that went, and takes it away with the end of the block."""
    root = store.root.rpartition("/")[0]
    if store.is_local and not Path(root).is_dir():
        yield Probe((_not_there_yet(Path(root)),))
        return
    file = f"{root}/.doctor-{uuid.uuid4().hex[:8]}"
    try:
        store.fs.pipe_file(file, b"ok")
    except Exception as error:  # every filesystem has its own kinds
        yield Probe((_not_writable(store.storage, f"{type(error).__name__}: {error}"),))
        return
    try:
        found = [Finding("ok", f"storage {store.storage} can be written")]
        found += _room(Path(root)) if store.is_local else []
        yield Probe(tuple(found), Path(file) if store.is_local else None)
    finally:
        store.fs.rm_file(file)


def cache_findings() -> Iterator[Finding]:
    """The cache of collections, tokens and backbones."""
    existing = nearest_existing(cache_root())
    if not os.access(existing, os.W_OK) or not existing.is_dir():
        yield Finding(
            "error",
            f"cache {cache_root()} cannot be written",
            "collections and tokens are kept there",
            "set RANKSWEEP_CACHE to a folder that can",
        )
        return
    yield Finding("ok", f"cache {cache_root()}")
    yield from _room(existing)


def nearest_existing(path: Path) -> Path:
    """The path itself, or the first folder above it that exists."""
    path = path.absolute()
    return next(one for one in (path, *path.parents) if one.exists())


def _not_there_yet(root: Path) -> Finding:
    existing = nearest_existing(root)
    if not existing.is_dir():
        return _not_writable(str(root), f"{existing} is a file")
    if not os.access(existing, os.W_OK):
        return _not_writable(str(root), f"{existing} is not ours to write")
    return Finding("ok", f"storage {root} is new, a sweep will make it")


def _not_writable(storage: str, reason: str) -> Finding:
    return Finding(
        "error",
        f"storage {storage} cannot be written ({reason})",
        "every result goes there",
        "change its permissions, or pass another --storage",
    )


def _room(folder: Path) -> list[Finding]:
    free = shutil.disk_usage(folder).free
    if free >= ROOM:
        return []
    return [
        Finding(
            "warning",
            f"{free / 2**30:.1f} GiB free on the disk of {folder}",
            "a full disk ends every trial",
            "make room, or use another disk",
        )
    ]
