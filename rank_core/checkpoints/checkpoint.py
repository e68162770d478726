"""The checkpoint of a running trial, in a folder or at any fsspec URI: replaced atomically,
infrequent, never fatal. Training waits while it is written. The best weights have their own file,
written when they change; the checkpoint has its name."""

import contextlib
import logging
import shutil
import tempfile
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
import torch
from fsspec.implementations.local import LocalFileSystem

from rank_core.checkpoints import COST_SHARE, Cadence
from rank_core.files import atomic_write
from rank_core.units import size_text

logger = logging.getLogger(__name__)

FILE = "checkpoint"
"""The name of the file; that of the best weights begins with it."""
Content = dict[str, Any]
"""Tensors and plain values."""


class Best(NamedTuple):
    """The best weights so far, and their data."""

    step: int  # of the current model, at which they were the best
    content: Callable[[], Content]  # called when they have changed


class Checkpoints:
    """The checkpoint of a trial in `uri`, its own folder. `wait` retries listing on unreliable
    storage: a trial that finds no checkpoint starts again. `require` raises while the storage is
    unavailable."""

    def __init__(
        self,
        uri: str,
        cadence: Cadence,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[Callable[[], list[str]]], list[str]] = lambda read: read(),
        require: Callable[[], object] = lambda: None,
    ) -> None:
        self.fs, root = fsspec.core.url_to_fs(uri)
        self.is_local = isinstance(self.fs, LocalFileSystem)
        self.root, self.cadence, self.clock = root.rstrip("/"), cadence, clock
        self._wait, self._require = wait, require
        self._since = clock()
        self._cost = 0.0  # seconds that the last one took
        self._best = ""  # name of the file of the best weights

    def due(self, step: int) -> bool:
        """True if a checkpoint is due after `step` steps of the current model."""
        if self.cadence.steps:
            return step % self.cadence.steps == 0
        # A checkpoint that took c seconds is followed by c / .02 seconds of work.
        interval = max(60 * self.cadence.minutes, self._cost / COST_SHARE)
        return self.clock() - self._since >= interval

    def save(
        self, content: Content, position: tuple[int, int], *, best: Best | None = None
    ) -> None:
        """Writes the content in place of the last one. `position` is (finished models, steps of the
        current model).

        A checkpoint that does not fit or cannot be written is skipped with a warning, without
        ending the trial. A kill leaves the previous one.
        """
        before = self.clock()
        name = f"{FILE}.best-{position[0]:03}-{best.step:09}" if best else ""
        try:
            self._write(content, name, best.content() if best and name != self._best else None)
        except Exception as error:  # of any kind, by filesystem
            logger.warning("no checkpoint in %s: %s: %s", self.root, type(error).__name__, error)
        self._since = self.clock()
        self._cost = self._since - before

    def load(self) -> Content | None:
        """The content of the last checkpoint with tensors on the CPU, and the best weights' as
        `best`; None if there is none, or a broken one."""
        if FILE not in self._wait(self._names):
            return None
        try:
            content = self._read(FILE)
            self._best = content.get("best", "")
            if self._best:
                content["best"] = self._read(self._best)
        except Exception as error:  # as above; unreadable counts as missing
            logger.warning("a checkpoint is broken and not used: %s: %s", self.root, error)
            return None
        return content

    def clear(self) -> None:
        """Removes the trial's checkpoint, once it is finished or starts again."""
        with contextlib.suppress(Exception):  # what remains is of no use, and does no harm
            self._remove(kept=())
            self.fs.rmdir(self.root)  # an object store has none

    def _names(self) -> list[str]:
        """The files of this trial's checkpoints, also those of killed writers."""
        with contextlib.suppress(FileNotFoundError):
            self.fs.invalidate_cache()
            paths = [str(path) for path in self.fs.ls(self.root, detail=False)]
            names = [path.rstrip("/").rpartition("/")[2] for path in paths]
            return [name for name in names if name.lstrip(".").startswith(FILE)]
        return []

    def _write(self, content: Content, best_name: str, best: Content | None) -> None:
        """Writes the best weights, if changed, and then the checkpoint, which names them."""
        refusal = self._refusal(_num_bytes(content) + _num_bytes(best))
        if refusal:
            logger.warning("no checkpoint: %s", refusal)
            return
        self._require()
        self.fs.makedirs(self.root, exist_ok=True)
        if best:
            self._put(best, best_name)
        # Now the new state counts. The best weights are complete by then, and those of the old
        # state are still there.
        self._put(content | ({"best": best_name} if best_name else {}), FILE)
        self._best = best_name
        self._remove(kept=(FILE, best_name))

    def _put(self, content: Content, name: str) -> None:
        """Writes a file atomically: locally in place and renamed; for a URI uploaded."""
        if self.is_local:
            with atomic_write(Path(self.root, name)) as unfinished:
                torch.save(content, unfinished)
            return
        with _temporary() as local:
            torch.save(content, local)
            self.fs.put_file(str(local), f"{self.root}/{name}")

    def _read(self, name: str) -> Content:
        """The content of a file; raises an error of any kind if it is broken."""
        path = f"{self.root}/{name}"
        with contextlib.nullcontext(Path(path)) if self.is_local else _temporary() as local:
            if not self.is_local:
                self.fs.get_file(path, str(local))
            with zipfile.ZipFile(local) as archive:  # torch does not check the checksums
                if broken := archive.testzip():
                    raise zipfile.BadZipFile(f"{broken} has another checksum")
            # `weights_only`: a checkpoint in a shared storage is data, and must not run code.
            content: Content = torch.load(local, map_location="cpu", weights_only=True)
        return content

    def _remove(self, kept: tuple[str, ...]) -> None:
        for name in set(self._names()).difference(kept):
            self.fs.rm_file(f"{self.root}/{name}")

    def _refusal(self, size: int) -> str:
        """The reason not to write `size` bytes; empty if there is none."""
        here = Path(self.root if self.is_local else tempfile.gettempdir())
        while not here.exists():
            here = here.parent
        free = shutil.disk_usage(here).free
        if size > free / 2:  # the rest is for results
            return f"{size_text(size)} is more than half of the free space of {here}"
        if quota := self.cadence.quota_bytes:
            self.fs.invalidate_cache()
            files = self.fs.glob(f"{self.root.rpartition('/')[0]}/*/{FILE}*", detail=True)
            if sum(int(file["size"]) for file in files.values()) + size > quota:
                return f"{size_text(size)} more would exceed the quota of {size_text(quota)}"
        return ""


@contextlib.contextmanager
def _temporary() -> Iterator[Path]:
    path = Path(tempfile.gettempdir()) / f"ranksweep-{uuid.uuid4().hex}"
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _num_bytes(content: Any) -> int:
    """The approximate size of the file: of its tensors and texts."""
    if isinstance(content, torch.Tensor):
        return content.numel() * content.element_size()
    if isinstance(content, dict):
        return sum(map(_num_bytes, content.values()))
    if isinstance(content, list | tuple):
        return sum(map(_num_bytes, content))
    return len(content) if isinstance(content, str) else 8
