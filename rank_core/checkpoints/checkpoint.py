"""The checkpoint of a running trial, in a folder or at any fsspec URI: replaced atomically,
infrequent, never fatal. Training waits until it is on a disk of the node; a thread brings it to a
storage elsewhere. The best weights have their own file, written when they change; the checkpoint
has its name."""

import contextlib
import logging
import os
import random
import shutil
import socket
import tempfile
import threading
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
import torch
from fsspec.implementations.local import LocalFileSystem

from rank_core.checkpoints import STRETCH, Cadence
from rank_core.checkpoints.upload import Upload
from rank_core.files import atomic_write
from rank_core.units import size_text

logger = logging.getLogger(__name__)

FILE = "checkpoint"
"""The name of the file; that of the best weights begins with it."""
Content = dict[str, Any]
"""Tensors and plain values."""
Taken = tuple[tuple[int, int], float]
"""The position of a state, (finished models, steps of the current one), and the time of it."""
ENDING_SECONDS = 5.0  # for an older state on its way, when the node goes
CLEAR_SECONDS = 30.0  # for one on its way, when none is needed any more


class Best(NamedTuple):
    """The best weights so far, and their data."""

    step: int  # of the current model, at which they were the best
    content: Callable[[], Content]  # called when they have changed


class Saved(NamedTuple):
    """A state in the storage."""

    position: tuple[int, int]  # finished models, steps of the current one
    age: float  # seconds


@dataclass(frozen=True)
class Leave:
    """How a trial leaves before its end."""

    wished: bool  # to go on with more workers; else a node of its goes
    state: Saved | None  # the last one that this attempt has saved, if any

    @property
    def text(self) -> str:
        """`checkpoint of step 27, 0.0 s old`."""
        if self.state is None:
            return "no checkpoint could be written"
        return f"checkpoint of step {self.state.position[1]}, {self.state.age:.1f} s old"


class Checkpoints:
    """The checkpoint of a trial in `uri`, its own folder. `wait` retries listing on unreliable
    storage: a trial that finds no checkpoint starts again. `require` raises while the storage is
    unavailable. Once `notice` is true, as the node goes soon, the next step is saved, and the trial
    is `leaving`. Once `wish` is true, it leaves likewise, but only with a state that is saved. With
    `elastic`, a trial goes on from the state of any number of workers."""

    def __init__(
        self,
        uri: str,
        cadence: Cadence,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[Callable[[], list[str]]], list[str]] = lambda read: read(),
        require: Callable[[], object] = lambda: None,
        notice: Callable[[], bool] = lambda: False,
        wish: Callable[[], bool] = lambda: False,
        elastic: bool = False,
    ) -> None:
        self.fs, root = fsspec.core.url_to_fs(uri)
        self.is_local = isinstance(self.fs, LocalFileSystem)
        self.root, self.cadence, self.clock = root.rstrip("/"), cadence, clock
        self._wait, self._require, self._notice, self._wish = wait, require, notice, wish
        self.elastic = elastic
        self.leaving: Leave | None = None  # once the trial ends early
        self._is_here = self.is_local and _one_disk(Path(self.root), Path(tempfile.gettempdir()))
        self._upload, self._late = Upload(clock), threading.Event()
        # Trials begin together, and would upload together. No number of a trial depends on it.
        self._random = random.Random(self.root)
        self._stretch = self._next_stretch()
        self._since = clock()
        self._cost = 0.0  # seconds that the trial waited for the last one
        self._best = ""  # name of the file of the best weights
        self._saved: Taken | None = None  # the state in the storage
        if not self._is_here:
            _remove_left()

    def due(self, step: int) -> bool:
        """True if a checkpoint is due after `step` steps of the current model."""
        if self.noticed or self.wished:
            return not self.leaving
        if self.cadence.steps:
            return step % self.cadence.steps == 0
        if self._upload.running:
            return False
        interval = self.cadence.interval(self._cost, self._upload.seconds)
        if self.clock() - self._since < self._stretch * interval:
            return False
        return self._is_here or self._upload.turn()

    @property
    def noticed(self) -> bool:
        """Whether the node goes soon."""
        return self._notice()

    @property
    def wished(self) -> bool:
        """Whether the trial should leave once its state is saved."""
        return self._wish()

    def leave(self, state: Saved | None) -> None:
        """The trial leaves, as its node goes. `state` is `saved` of the worker that writes."""
        self.leaving = Leave(wished=False, state=state)

    def leave_on_wish(self, state: Saved | None, position: tuple[int, int]) -> None:
        """The trial leaves if `state`, as in `leave`, is that of its current `position`. Otherwise
        it goes on and heeds no further wish, as none is worth lost work."""
        if state and state.position == position:
            self.leaving = Leave(wished=True, state=state)
        else:
            self._wish = lambda: False

    @property
    def saved(self) -> Saved | None:
        """The state in the storage, if this attempt has written it."""
        if self._saved is None:
            return None
        position, taken = self._saved
        return Saved(position, self.clock() - taken)

    def save(
        self, content: Content, position: tuple[int, int], *, best: Best | None = None
    ) -> None:
        """Writes the content in place of the last one. `position` is (finished models, steps of the
        current model).

        A checkpoint that does not fit or cannot be written is skipped with a warning, without
        ending the trial. A kill leaves the previous one. By a number of steps it is in the storage
        when this returns; else perhaps after it, at the latest when `finish` does.
        """
        self._upload.wait(ENDING_SECONDS if self.noticed else None)
        if self._upload.running:
            self._drop()  # the newer state is the one that counts
        before = self.clock()
        name = f"{FILE}.best-{position[0]:03}-{best.step:09}" if best else ""
        with self._not_fatal():
            changed = best.content() if best and name != self._best else None
            self._write(content, name, changed, (position, before))
        self._since = self.clock()
        self._cost = self._since - before
        self._stretch = self._next_stretch()
        if self.cadence.steps:
            self._upload.wait()
        if not self._upload.running:  # also where none began: it was refused, or failed
            self._upload.end_turn()

    def finish(self, seconds: float) -> None:
        """Waits at most so long for a checkpoint on its way; a later one does not count, as the
        trial may run elsewhere by then."""
        self._upload.wait(seconds)
        self._late.set()
        self._upload.end_turn()

    def forget(self) -> None:
        """What was loaded is not used: the trial starts anew, and writes its best weights again."""
        self._best = ""

    def load(self) -> Content | None:
        """The content of the last checkpoint with tensors on the CPU, and the best weights' as
        `best`; None if there is none, or a broken one."""
        if FILE not in self._wait(self._names):
            return None
        self.forget()
        try:
            content = self._read(FILE)
            if best := content.get("best", ""):
                content["best"] = self._read(best)
        except Exception as error:  # as above; unreadable counts as missing
            logger.warning("a checkpoint is broken and not used: %s: %s", self.root, error)
            return None
        self._best = best
        return content

    def clear(self) -> None:
        """Removes the trial's checkpoint, once it is finished."""
        self._late.set()
        self._upload.wait(CLEAR_SECONDS)  # its unfinished file would stay
        self._upload.end_turn()
        self.forget()
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

    def _drop(self) -> None:
        """The upload on its way does not count, and nobody waits for it."""
        self._late.set()
        self._upload = Upload(self.clock)

    def _write(self, content: Content, best_name: str, best: Content | None, taken: Taken) -> None:
        """Writes the best weights, if changed, and then the checkpoint, which names them: at once
        to a storage on this disk, else to the node's disk, and from there behind the trial."""
        size = _num_bytes(content) + _num_bytes(best)
        if refusal := self._refusal(size):
            logger.warning("no checkpoint: %s", refusal)
            return
        self._require()
        # The best weights come first: the checkpoint that names them counts once it is there.
        contents = {best_name: best} if best else {}
        contents[FILE] = content | ({"best": best_name} if best_name else {})
        if self._is_here or (self.is_local and _lacks_room(Path(tempfile.gettempdir()), size)):
            self.fs.makedirs(self.root, exist_ok=True)
            for name, one in contents.items():
                with atomic_write(Path(self.root, name)) as unfinished:
                    torch.save(one, unfinished)
            self._written(best_name, taken)
            return
        node = Path(tempfile.mkdtemp(prefix=f"{_left_by(os.getpid())}-"))
        try:
            for name, one in contents.items():
                torch.save(one, node / name)
        except BaseException:
            shutil.rmtree(node, ignore_errors=True)
            raise
        self._late = threading.Event()
        sent = partial(self._send, node, tuple(contents), best_name, taken, self._late)
        self._upload.start(sent)

    def _send(
        self,
        node: Path,
        names: tuple[str, ...],
        best_name: str,
        taken: Taken,
        late: threading.Event,
    ) -> None:
        """Brings files from the node's disk to the storage, unless it is `late` by then."""
        try:
            with self._not_fatal():
                self._require()
                self.fs.makedirs(self.root, exist_ok=True)
                for name in names:
                    self._bring(node / name, late)
                if not late.is_set():
                    self._written(best_name, taken)
        finally:
            shutil.rmtree(node, ignore_errors=True)

    def _bring(self, file: Path, late: threading.Event) -> None:
        """Brings a file under its name, whole or not at all. What was late while it was on its way
        does not replace the file of another attempt."""
        if late.is_set():
            return
        unfinished = f"{self.root}/.{file.name}.{uuid.uuid4().hex[:8]}.unfinished"
        try:
            if self.is_local:
                shutil.copyfile(file, unfinished)
            else:
                self.fs.put_file(str(file), unfinished)
            if not late.is_set():
                self.fs.mv(unfinished, f"{self.root}/{file.name}")
        finally:
            with contextlib.suppress(Exception):
                self.fs.rm_file(unfinished)

    def _written(self, best_name: str, taken: Taken) -> None:
        """The new state counts: the files of the old one go."""
        self._best, self._saved = best_name, taken
        self._remove(kept=(FILE, best_name))

    @contextlib.contextmanager
    def _not_fatal(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # of any kind, by filesystem
            logger.warning("no checkpoint in %s: %s: %s", self.root, type(error).__name__, error)

    def _next_stretch(self) -> float:
        """The next interval in units of the cadence's."""
        return 1.0 if self._is_here else self._random.uniform(*STRETCH)

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
        if _lacks_room(here, size):  # the rest is for results
            return f"{size_text(size)} is more than half of the free space of {_existing(here)}"
        if quota := self.cadence.quota_bytes:
            self.fs.invalidate_cache()
            files = self.fs.glob(f"{self.root.rpartition('/')[0]}/*/{FILE}*", detail=True)
            if sum(int(file["size"]) for file in files.values()) + size > quota:
                return f"{size_text(size)} more would exceed the quota of {size_text(quota)}"
        return ""


def _left_by(pid: int | str) -> str:
    """The beginning of the names of folders for uploads of a process of this host."""
    return f"ranksweep-checkpoint-{socket.gethostname()}-{pid}"


def _remove_left() -> None:
    """Removes what processes of this host that ended within an upload have left."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_left_by('*')}-*"):
        pid = folder.name.removeprefix(_left_by("")).partition("-")[0]
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            shutil.rmtree(folder, ignore_errors=True)
        except (ValueError, OSError):  # another's
            continue


@contextlib.contextmanager
def _temporary() -> Iterator[Path]:
    path = Path(tempfile.gettempdir()) / f"ranksweep-{uuid.uuid4().hex}"
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _existing(path: Path) -> Path:
    """A path, or the nearest folder above it that is there."""
    while not path.exists():
        path = path.parent
    return path


def _one_disk(*paths: Path) -> bool:
    """Whether the paths are, or would be, on one file system."""
    try:
        return len({os.stat(_existing(path)).st_dev for path in paths}) == 1
    except OSError:
        return False


def _lacks_room(folder: Path, size: int) -> bool:
    return size > shutil.disk_usage(_existing(folder)).free / 2


def _num_bytes(content: Any) -> int:
    """The approximate size of the file: of its tensors and texts."""
    if isinstance(content, torch.Tensor):
        return content.numel() * content.element_size()
    if isinstance(content, dict):
        return sum(map(_num_bytes, content.values()))
    if isinstance(content, list | tuple):
        return sum(map(_num_bytes, content))
    return len(content) if isinstance(content, str) else 8
