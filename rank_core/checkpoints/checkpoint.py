"""Checkpoints of a running trial, in a folder or at any fsspec URI: whole, few, never fatal.

A file is named by the trial's position and by the hash of its own content, so that a reader detects
a broken or half-copied one, wherever it lies and however it came there.
"""

import contextlib
import hashlib
import logging
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import torch
from fsspec.implementations.local import LocalFileSystem

from rank_core.checkpoints import COST_SHARE, Cadence

logger = logging.getLogger(__name__)

SUFFIX = ".checkpoint"
KEPT = 2  # the last one, and the one before in case the last cannot be read
ABANDONED_SECONDS = 3600.0  # another trial's checkpoint is not refreshed: no process works on it
Position = tuple[int, int]
"""(finished models, steps of the next one)."""


class Checkpoints:
    """The checkpoints of one trial in `uri`, a folder of its own two levels below one that must be
    there. One is due after step `pause` whatever the cadence, because the trial will resume
    there. `wait` lists them where that may have to wait: one that finds none begins anew."""

    def __init__(
        self,
        uri: str,
        cadence: Cadence,
        *,
        pause: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[Callable[[], list[str]]], list[str]] = lambda read: read(),
    ) -> None:
        self.fs, root = fsspec.core.url_to_fs(uri)
        self.is_local = isinstance(self.fs, LocalFileSystem)
        self.root, self.cadence, self.clock = root.rstrip("/"), cadence, clock
        self._pause, self._wait = pause, wait
        self._since = clock()
        self._cost = 0.0  # seconds that the last one took
        self._kept: list[str] = []  # paths, the last one last

    def due(self, step: int) -> bool:
        """True where a checkpoint is due after `step` steps of the present model."""
        if step == self._pause:
            return True
        if self.cadence.steps:
            return step % self.cadence.steps == 0
        interval = max(60 * self.cadence.minutes, self._cost / COST_SHARE)
        return self.clock() - self._since >= interval

    def save(self, content: dict[str, Any], position: Position) -> None:
        """Writes tensors and plain values, and removes what is older. What does not fit, or cannot
        be written, is skipped with a warning: a trial never ends because of a checkpoint."""
        before = self.clock()
        try:
            refusal = self._refusal(_num_bytes(content))
            if refusal:
                logger.warning("no checkpoint: %s", refusal)
            else:
                self._write(content, position)
        except Exception as error:  # every filesystem has its own kinds
            logger.warning("no checkpoint in %s: %s: %s", self.root, type(error).__name__, error)
        self._since = self.clock()
        self._cost = self._since - before

    def names(self) -> list[str]:
        """The files that are there, the furthest first."""
        return self._wait(self._names)

    def _names(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            self.fs.invalidate_cache()
            paths = [str(path) for path in self.fs.ls(self.root, detail=False)]
            names = [path.rstrip("/").split("/")[-1] for path in paths if path.endswith(SUFFIX)]
            return sorted(names, reverse=True)
        return []

    def load(self, name: str) -> dict[str, Any] | None:
        """The content of a file, its tensors on the CPU; None if it is broken or gone."""
        try:
            with self._local(f"{self.root}/{name}") as path:
                if _digest(path) != name.removesuffix(SUFFIX).rpartition("-")[2]:
                    logger.warning("a checkpoint is broken and skipped: %s/%s", self.root, name)
                    return None
                content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # as above: what cannot be read is as good as not there
            logger.warning("a checkpoint cannot be read: %s/%s: %s", self.root, name, error)
            return None
        self._kept = [f"{self.root}/{name}"]
        return content

    def clear(self) -> None:
        """Removes the trial's checkpoints: it is safe in the store, or starts from nothing."""
        with contextlib.suppress(Exception):  # a later trial prunes what stays
            if self.fs.exists(self.root):
                self.fs.rm(self.root, recursive=True)

    def _write(self, content: dict[str, Any], position: Position) -> None:
        if self.is_local:
            os.stat(Path(self.root).parents[1])  # a mount point without its mount would take it
        self.fs.makedirs(self.root, exist_ok=True)
        # On a shared disk the file grows where it will stay; for a URI it is made here and sent.
        folder = self.root if self.is_local else None
        unfinished = Path(folder or tempfile.gettempdir(), f".unfinished-{uuid.uuid4().hex}")
        try:
            with unfinished.open("xb") as file:  # by the umask: others may resume the trial
                torch.save(content, file)
            done, steps = position
            final = f"{self.root}/{done:03}-{steps:09}-{_digest(unfinished)}{SUFFIX}"
            if self.is_local:
                os.replace(unfinished, final)
            else:
                self.fs.put_file(str(unfinished), final)
        finally:
            unfinished.unlink(missing_ok=True)
        before = [path for path in self._kept if path != final]
        self._kept = [*before[1 - KEPT :], final]
        self._remove_others()

    def _remove_others(self) -> None:
        """Removes all but the last checkpoints of this process, also those of killed processes."""
        self.fs.invalidate_cache()
        for path in self.fs.ls(self.root, detail=False):
            if str(path) not in self._kept:
                self.fs.rm_file(path)

    def _refusal(self, size: int) -> str:
        """Why `size` more bytes must not be written; empty where they may. Removes what it may to
        make room."""
        here = Path(self.root if self.is_local else tempfile.gettempdir())
        while not here.exists():
            here = here.parent
        free = shutil.disk_usage(here).free
        if size > free / 2:  # what is left is for the results
            return f"{_mebibytes(size)} would take more than half of what is free at {here}"
        quota = self.cadence.quota_bytes
        if not quota or self._taken() + size <= quota:
            return ""
        for path in (*self._kept[:-1], *self._abandoned()):
            self.fs.rm_file(path)
            self._kept = [kept for kept in self._kept if kept != path]
            if self._taken() + size <= quota:
                return ""
        return f"the quota of {_mebibytes(quota)} does not hold {_mebibytes(size)} more"

    def _taken(self) -> int:
        """Bytes of all trials' checkpoints."""
        self.fs.invalidate_cache()
        parent = self.root.rpartition("/")[0]
        return int(self.fs.du(parent)) if self.fs.exists(parent) else 0

    def _abandoned(self) -> list[str]:
        """Files of trials that no process seems to work on, the oldest first."""
        files = [str(path) for path in self.fs.find(self.root.rpartition("/")[0])]
        others = [path for path in files if not path.startswith(f"{self.root}/")]
        age = {path: time.time() - self.fs.modified(path).timestamp() for path in others}
        old = [path for path in others if age[path] > ABANDONED_SECONDS]
        return sorted(old, key=age.__getitem__, reverse=True)

    @contextlib.contextmanager
    def _local(self, path: str) -> Iterator[Path]:
        """The file on this machine's disk."""
        if self.is_local:
            yield Path(path)
            return
        copy = Path(tempfile.gettempdir()) / f"ranksweep-{uuid.uuid4().hex}"
        try:
            self.fs.get_file(path, str(copy))
            yield copy
        finally:
            copy.unlink(missing_ok=True)


def _num_bytes(content: Any) -> int:
    """About what the file will take: its tensors, and its long texts."""
    if isinstance(content, torch.Tensor):
        return content.numel() * content.element_size()
    if isinstance(content, dict):
        return sum(map(_num_bytes, content.values()))
    if isinstance(content, list | tuple):
        return sum(map(_num_bytes, content))
    return len(content) if isinstance(content, str) else 8


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"
