"""Checkpoints of a running trial, in a folder or at any fsspec URI: atomic, infrequent, never
fatal.

A file's name has the trial's position and a hash of the content, so that readers detect broken or
incomplete files. A thread writes while training continues. The best weights have their own file,
written when they change.
"""

import contextlib
import copy
import hashlib
import logging
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import fsspec
import torch
from fsspec.implementations.local import LocalFileSystem

from rank_core.checkpoints import COST_SHARE, Cadence
from rank_core.files import file_sha256

logger = logging.getLogger(__name__)

SUFFIX = ".checkpoint"
BEST = ".best"
DIGITS = 16  # of a hash
KEPT = 2  # the last two, in case the last cannot be read
ABANDONED_SECONDS = 3600.0  # age after which another trial's checkpoint counts as abandoned
Position = tuple[int, int]
"""(finished models, steps of the current model)."""
Content = dict[str, Any]
"""Tensors, plain values, and functions that return one, which the writing thread calls."""


class Best(NamedTuple):
    """The best weights so far and their data; the tensors no longer change."""

    step: int  # of the current model, at which they were the best
    content: Content


class _Files(NamedTuple):
    """The paths of a checkpoint."""

    last: str
    best: str = ""


class Checkpoints:
    """The checkpoints of a trial in `uri`, its own folder, two levels below an existing one. A
    checkpoint is always due after step `pause`, where the trial will be paused. `wait` retries
    listing on unreliable storage: a trial that finds no checkpoint starts again."""

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
        self._kept: list[_Files] = []  # oldest first
        self._writing: threading.Thread | None = None

    def due(self, step: int) -> bool:
        """True if a checkpoint is due after `step` steps of the current model; by time, not while
        one is being written."""
        if step == self._pause:
            return True
        if self.cadence.steps:
            return step % self.cadence.steps == 0
        if self._writing is not None and self._writing.is_alive():
            return False
        interval = max(60 * self.cadence.minutes, self._cost / COST_SHARE)
        return self.clock() - self._since >= interval

    def save(self, content: Content, position: Position, *, best: Best | None = None) -> None:
        """Copies tensors to the host; a thread writes them and removes older checkpoints. At the
        step of a pause, this waits until they are written.

        A checkpoint that does not fit or cannot be written is skipped with a warning, without
        ending the trial. A kill leaves the previous one.
        """
        self.finish()
        before = self.clock()
        prefix = _prefix(position[0], best.step) if best else ""
        written = self._kept[-1].best if self._kept else ""
        if best and written.rpartition("/")[2].startswith(prefix):
            best = None
        try:
            host = _on_host(content)
            host_best = _on_host(best.content, changes=False) if best else None
        except (RuntimeError, MemoryError) as error:
            logger.warning("no checkpoint: its copy does not fit the host's memory: %s", error)
            self._since = self.clock()
            return

        def write() -> None:
            try:
                self._write(_complete(host), position, prefix, host_best and _complete(host_best))
            except Exception as error:  # of any kind, by filesystem
                name = type(error).__name__
                logger.warning("no checkpoint in %s: %s: %s", self.root, name, error)
            self._since = self.clock()
            self._cost = self._since - before

        self._writing = threading.Thread(target=write, name="checkpoint")
        self._writing.start()
        if position[1] == self._pause:
            self.finish()

    def finish(self) -> None:
        """Waits until the current checkpoint is written."""
        if self._writing is not None:
            self._writing.join()
            self._writing = None

    def names(self) -> list[str]:
        """The names of the existing files, latest position first."""
        return self._wait(self._names)

    def _names(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            self.fs.invalidate_cache()
            paths = [str(path) for path in self.fs.ls(self.root, detail=False)]
            names = [path.rstrip("/").split("/")[-1] for path in paths if path.endswith(SUFFIX)]
            return sorted(names, reverse=True)
        return []

    def load(self, name: str) -> dict[str, Any] | None:
        """The content of a file with tensors on the CPU, and the best checkpoint's as `best`; None
        if it is broken or missing."""
        files = _Files(f"{self.root}/{name}")
        try:
            content = self._read(files.last)
            if content and (best := content.get("best")):
                files = files._replace(best=f"{self.root}/{best}")
                content["best"] = self._read(files.best)
        except Exception as error:  # as above; unreadable counts as missing
            logger.warning("a checkpoint cannot be read: %s/%s: %s", self.root, name, error)
            return None
        if content is None or content.get("best", {}) is None:
            logger.warning("a checkpoint is broken and skipped: %s/%s", self.root, name)
            return None
        self._kept = [files]
        return content

    def clear(self) -> None:
        """Removes the trial's checkpoints, once it is finished or starts again."""
        self.finish()
        with contextlib.suppress(Exception):  # later trials remove what remains
            if self.fs.exists(self.root):
                self.fs.rm(self.root, recursive=True)

    def _write(
        self, content: Content, position: Position, prefix: str, best: Content | None
    ) -> None:
        """Writes the checkpoint, and first the best weights, with prefix `prefix`, if changed."""
        refusal = self._refusal(_num_bytes(content) + _num_bytes(best))
        if refusal:
            logger.warning("no checkpoint: %s", refusal)
            return
        if self.is_local:
            os.stat(Path(self.root).parents[1])  # fails if the disk is not mounted
        self.fs.makedirs(self.root, exist_ok=True)
        of_best = self._file(best, prefix, BEST) if best else self._kept[-1].best if prefix else ""
        names = {"best": of_best.rpartition("/")[2]} if of_best else {}
        files = _Files(self._file(content | names, _prefix(*position), SUFFIX), of_best)
        before = [kept for kept in self._kept if kept.last != files.last]
        self._kept = [*before[1 - KEPT :], files]
        self._remove_others()

    def _file(self, content: Content, prefix: str, suffix: str) -> str:
        """The path of a file with this content, written atomically."""
        # Local files are written in place and renamed; for a URI, locally and uploaded.
        folder = self.root if self.is_local else None
        unfinished = Path(folder or tempfile.gettempdir(), f".unfinished-{uuid.uuid4().hex}")
        try:
            with unfinished.open(
                "xb"
            ) as file:  # with the umask's permissions, for others to resume
                hashed = _Hashed(file)
                torch.save(content, hashed)  # type: ignore[arg-type]
            final = f"{self.root}/{prefix}-{hashed.digest}{suffix}"
            if self.is_local:
                os.replace(unfinished, final)
            else:
                self.fs.put_file(str(unfinished), final)
        finally:
            unfinished.unlink(missing_ok=True)
        return final

    def _read(self, path: str) -> dict[str, Any] | None:
        """The content of a file; None if its hash is not that of its name."""
        with self._local(path) as local:
            if file_sha256(local)[:DIGITS] != path.rpartition(".")[0].rpartition("-")[2]:
                return None
            content: dict[str, Any] = torch.load(local, map_location="cpu", weights_only=True)
        return content

    def _remove_others(self) -> None:
        """Removes all other checkpoints of this trial, including those of killed processes."""
        kept = {path for files in self._kept for path in files}
        self.fs.invalidate_cache()
        for path in self.fs.ls(self.root, detail=False):
            if str(path) not in kept:
                self.fs.rm_file(path)

    def _refusal(self, size: int) -> str:
        """The reason not to write `size` bytes; empty if there is none. Removes old checkpoints to
        make room."""
        here = Path(self.root if self.is_local else tempfile.gettempdir())
        while not here.exists():
            here = here.parent
        free = shutil.disk_usage(here).free
        if size > free / 2:  # the rest is for results
            return f"{_mebibytes(size)} is more than half of the free space of {here}"
        quota = self.cadence.quota_bytes
        if not quota or self._taken() + size <= quota:
            return ""
        if len(self._kept) > 1:
            del self._kept[:-1]
            self._remove_others()
        abandoned = iter(self._abandoned())
        while self._taken() + size > quota and (path := next(abandoned, "")):
            self.fs.rm_file(path)
        if self._taken() + size <= quota:
            return ""
        return f"{_mebibytes(size)} more would exceed the quota of {_mebibytes(quota)}"

    def _taken(self) -> int:
        """The bytes of all trials' checkpoints."""
        self.fs.invalidate_cache()
        parent = self.root.rpartition("/")[0]
        return int(self.fs.du(parent)) if self.fs.exists(parent) else 0

    def _abandoned(self) -> list[str]:
        """Files of trials without a running process, by age, oldest first."""
        files = [str(path) for path in self.fs.find(self.root.rpartition("/")[0])]
        others = [path for path in files if not path.startswith(f"{self.root}/")]
        age = {path: time.time() - self.fs.modified(path).timestamp() for path in others}
        old = [path for path in others if age[path] > ABANDONED_SECONDS]
        return sorted(old, key=age.__getitem__, reverse=True)

    @contextlib.contextmanager
    def _local(self, path: str) -> Iterator[Path]:
        if self.is_local:
            yield Path(path)
            return
        copy = Path(tempfile.gettempdir()) / f"ranksweep-{uuid.uuid4().hex}"
        try:
            self.fs.get_file(path, str(copy))
            yield copy
        finally:
            copy.unlink(missing_ok=True)


def _prefix(models: int, steps: int) -> str:
    return f"{models:03}-{steps:09}"


def _on_host(content: Any, *, changes: bool = True) -> Any:
    """A snapshot of the content on the CPU; tensors there are not copied unless it `changes`."""
    if isinstance(content, torch.Tensor):
        return content.detach().to("cpu", copy=changes)
    if isinstance(content, dict):
        host = copy.copy(content)  # with torch's attributes of module states
        host.update({key: _on_host(value, changes=changes) for key, value in content.items()})
        return host
    if isinstance(content, list | tuple):
        return type(content)(_on_host(value, changes=changes) for value in content)
    return content


def _complete(content: Content) -> Content:
    return {name: value() if callable(value) else value for name, value in content.items()}


class _Hashed:
    """A file that is written sequentially, and the hash of its content."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._hash = file, hashlib.sha256()

    def write(self, data: bytes) -> int:
        """Writes and hashes `data`."""
        self._hash.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        """Flushes the file."""
        self._file.flush()

    @property
    def digest(self) -> str:
        """16 hex digits over the content."""
        return self._hash.hexdigest()[:DIGITS]


def _num_bytes(content: Any) -> int:
    """The approximate size of the file: of its tensors and texts."""
    if isinstance(content, torch.Tensor):
        return content.numel() * content.element_size()
    if isinstance(content, dict):
        return sum(map(_num_bytes, content.values()))
    if isinstance(content, list | tuple):
        return sum(map(_num_bytes, content))
    return len(content) if isinstance(content, str) else 8


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"
