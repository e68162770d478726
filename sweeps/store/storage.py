"""A storage: files at paths below a folder or any fsspec URI, with the same calls for both.
`driver:///PATH` is such a URI: a folder of the driver's host, for the nodes of a cluster that do
not see it. `sweeps/ray_engine/driver_disk.py` carries its calls through Ray to a `Storage` there.

A file is whole or absent. Every call may be repeated. A command that writes opens its storage;
its calls are then repeated for `WAIT_SECONDS` while the storage is away, and nothing is written
below a mount point without its mount.
"""

import logging
import math
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from errno import ELOOP, ENOENT
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import fsspec
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from rank_core.errors import BadInput
from rank_core.files import NO_FILE, REFUSED_NAME, shown_path
from rank_core.secrets import redact_text
from sweeps.terminal.text import duration

MARK = ".sweep"
"""A file of every opened local storage: a mount point without its mount lacks it."""
WAIT_SECONDS = 120.0
ANSWER_SECONDS = 60.0
LINE_SECONDS = 60.0  # between messages about a storage that is away
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
SCHEMES = ("file", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "hdfs", "memory")
"""Schemes whose files can be written, listed and replaced."""
DRIVER = "driver"
"""The scheme of the driver's disk, which no user names: only trials' processes know it."""
PROGRAM_ERRORS = (BadInput, TypeError, AttributeError, KeyError, IndexError, AssertionError)
"""Errors that no waiting repairs. Filesystems raise many other kinds."""
UNFINISHED = ".unfinished-"

_log = logging.getLogger(__name__)
T = TypeVar("T")


class StorageAway(Exception):
    """A storage failed for `WAIT_SECONDS`."""


class Entry(NamedTuple):
    """A file of a listing."""

    size: int
    modified: float  # by the storage's clock, in seconds since the epoch


def _working_folder() -> str | None:
    """None in a folder that was removed or unmounted."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


class Storage:
    """The files below a folder or URI; paths are relative to it. With `opened` it must have been
    opened by this command, perhaps in another process. Without `waits` it fails at once where it is
    away."""

    def __init__(
        self,
        uri: str,
        *,
        opened: bool = False,
        waits: bool = True,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        rule = "--storage must be a folder or a URI such as s3://bucket/path"
        if not uri:
            raise BadInput(f"{rule}, got ''")
        if (text := shown_path(uri)) != uri:
            raise BadInput(f"{rule} whose name is UTF-8, got {text}: rename it")
        scheme = uri.partition("://")[0] if "://" in uri else "file"
        try:
            # `::` chains filesystems (a zip in a bucket): fsspec reads such files and cannot
            # replace them.
            if scheme not in (*SCHEMES, DRIVER) or "::" in uri:
                raise ValueError(f"unknown scheme; known: {', '.join(SCHEMES)}")
            self.fs, root = fsspec.core.url_to_fs(uri)
        except Exception as error:  # every filesystem has its own kinds
            raise BadInput(f"{rule}, got {uri}: {error}") from None
        self.is_local = isinstance(self.fs, LocalFileSystem)
        self.is_memory = isinstance(self.fs, MemoryFileSystem)
        # Trials run in other working directories.
        self.root = os.path.abspath(root) if self.is_local else root.rstrip("/")
        self.uri = self.root if self.is_local else str(self.fs.unstrip_protocol(self.root))
        self._working_folder = _working_folder()
        self._opened, self._waits, self._sleep = opened, waits, sleep
        self._told: float | None = None  # when a message last said that it is away
        self._away = False  # by the last message

    def open(self) -> None:
        """Makes the folder and its mark, and checks that it is writable."""
        probe = f".writable-{uuid.uuid4().hex[:8]}"

        def write() -> None:
            self.fs.makedirs(self.root, exist_ok=True)
            if self.is_local:
                Path(self.root, MARK).touch()
            # Only a write proves that writing is allowed: permissions, quotas and policies of
            # buckets have no question of their own.
            self.fs.pipe_file(self._at(probe), b"ok")
            self.fs.rm_file(self._at(probe))

        try:
            self.answered(write)
        except (OSError, ValueError) as error:
            raise BadInput(f"--storage must be writable, got {self.uri}: {reason(error)}") from None
        self._opened = True

    def answered(self, ask: Callable[[], T]) -> T:
        """The first answer of a storage. Raises `BadInput` where a remote one fails or is silent
        for `ANSWER_SECONDS`: clients of a wrong endpoint retry for ever."""
        if self.is_local:
            return ask()
        future: Future[T] = Future()

        def wait() -> None:
            try:
                future.set_result(ask())
            except Exception as error:  # every filesystem has its own kinds
                future.set_exception(error)

        # A daemon: the thread of a client that retries for ever must not keep the process alive.
        threading.Thread(target=wait, daemon=True, name="storage").start()
        try:
            return future.result(ANSWER_SECONDS)
        except PROGRAM_ERRORS:
            raise
        except TimeoutError:
            what = f"no answer for {ANSWER_SECONDS:.0f} s"
        except Exception as error:
            what = reason(error)
        raise BadInput(f"the storage must be reachable, got {self.uri}: {what}")

    def read(self, path: str, *, wait: bool = True) -> bytes | None:
        """The content of a file, None where it is absent; without `wait`, asked for once."""
        return self.retried(lambda: self._read(path), f"{path} cannot be read", wait)

    def read_all(self, paths: Iterable[str]) -> dict[str, bytes]:
        """{path: content} of the files that exist, read in parallel where that saves time."""
        wanted = list(paths)
        if self.is_local:
            return {path: data for path in wanted if (data := self.read(path)) is not None}

        def read() -> dict[str, bytes]:
            at = {self._at(path): path for path in wanted}
            found = {}
            for full, content in (self.fs.cat(list(at), on_error="return") if at else {}).items():
                if not isinstance(content, Exception):
                    found[at[str(full)]] = bytes(content)
                # Anything but absence is a failure of the whole call: a file that cannot be read
                # now is not a file that is not there.
                elif not isinstance(content, FileNotFoundError):
                    raise content
            return found

        return self.retried(read, "files cannot be read")

    def write(self, path: str, data: bytes | Path, *, wait: bool = True) -> None:
        """Writes a file, or a copy of a local one, atomically; without `wait`, tried once."""
        self.retried(lambda: self._put(path, data), f"{path} cannot be written", wait)

    def create(self, path: str, data: bytes) -> bool:
        """Writes a file unless it exists; True if it now has this content."""

        def create() -> bool:
            try:
                self._put(path, data, create=True)
            # The error of an existing file cannot be told from others by its class, but by looking.
            except Exception:  # of an existing file every filesystem has its own kind
                if (there := self._read(path)) is None:
                    raise
                return there == data  # an earlier try may have got through
            return True

        return self.retried(create, f"{path} cannot be written")

    def fetch(self, path: str, folder: Path) -> Path:
        """A file on this machine's disk: itself, or its copy in `folder`."""
        if self.is_local:
            return Path(self._at(path))
        target = folder / path.rpartition("/")[2]
        folder.mkdir(parents=True, exist_ok=True)
        get = partial(self.fs.get_file, self._at(path), str(target))
        self.retried(get, f"{path} cannot be read")
        return target

    def files(self, prefix: str = "") -> dict[str, Entry]:
        """{path: its size and time} of all files below a folder; empty where it is absent."""

        def find() -> dict[str, Entry]:
            if self.is_local:
                below = os.path.relpath(self._at(prefix), self.root)
                return dict(_walk(Path(self._at(prefix)), "" if below == "." else f"{below}/"))
            self.fs.invalidate_cache()
            found = self.fs.find(self._at(prefix), detail=True)
            start = len(self.root) + 1
            return {
                str(path)[start:]: Entry(int(info["size"]), _modified(info))
                for path, info in sorted(found.items())
            }

        return self.retried(find, f"{prefix or self.uri} cannot be listed")

    def folders(self, prefix: str = "") -> list[str]:
        """The names of the folders directly below one; empty where it is absent."""

        def names() -> list[str]:
            self.fs.invalidate_cache()
            try:
                found = self.fs.ls(self._at(prefix), detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return []
            paths = (str(info["name"]) for info in found if info["type"] == "directory")
            return sorted(path.rstrip("/").rpartition("/")[2] for path in paths)

        return self.retried(names, f"{prefix or self.uri} cannot be listed")

    def remove(self, path: str) -> None:
        """Removes a file, if it exists."""

        def remove() -> None:
            with suppress(FileNotFoundError, KeyError):  # the second of a memory
                self.fs.rm_file(self._at(path))

        self.retried(remove, f"{path} cannot be removed")

    def remove_folder(self, path: str) -> None:
        """Removes a folder with its files, if it exists."""

        def remove() -> None:
            self.fs.invalidate_cache()
            with suppress(FileNotFoundError):
                if self.is_local and os.path.islink(self._at(path)):
                    os.unlink(self._at(path))  # what it leads to is not of this storage
                elif self.is_local:
                    shutil.rmtree(self._at(path))
                elif found := self.fs.find(self._at(path)):
                    self.fs.rm(found)

        self.retried(remove, f"{path} cannot be removed")

    def now(self) -> float:
        """The storage's time: clocks of machines are never compared."""
        # No storage tells the time, but each stamps what is written.
        probe = f".clock-{uuid.uuid4().hex[:8]}"
        try:
            self.write(probe, b"now")
            return self.modified(probe) or time.time()
        finally:
            self.remove(probe)

    def modified(self, path: str) -> float | None:
        """When a file was written, by the storage's clock; None where it is absent."""
        self.fs.invalidate_cache()
        with suppress(FileNotFoundError):
            ask = partial(self.fs.info, self._at(path))
            return _modified(self.retried(ask, f"{path} cannot be read"))
        return None

    def free_bytes(self) -> float:
        """What is free on its disk; infinite of an object store."""
        if self.is_local:
            return shutil.disk_usage(self.root).free
        return float(self.fs.free_bytes()) if self.uri.startswith(DRIVER) else math.inf

    def require(self) -> None:
        """Raises while an opened folder is away: unmounted or renamed, it is missing or empty, and
        an empty one would accept writes. An object store raises by itself."""
        if not self._opened or not self.is_local:
            return
        if not os.path.exists(self._at(MARK)):
            raise OSError(ENOENT, "this folder is missing or not mounted", self.root)
        if self._working_folder and not _working_folder():
            # The process stood in the folder that was unmounted. Libraries ask where it stands.
            with suppress(OSError):
                os.chdir(self._working_folder)

    def retried(self, action: Callable[[], T], what: str, wait: bool = True) -> T:
        """The value of a repeatable action; with `wait` an opened storage is tried again."""
        if not wait:
            self.require()
            return action()
        # Monotonic: a clock that is set while we wait would end the wait at once or never.
        deadline = time.monotonic() + (WAIT_SECONDS if self._waits else 0.0)
        pause, failed = FIRST_PAUSE, False
        while True:
            try:
                self.require()
                value = action()
                self.require()  # otherwise it was read or written where the storage is not
                if failed:
                    self.tell_back()
                return value
            except PROGRAM_ERRORS:
                raise
            except Exception as error:
                no_file = isinstance(error, FileNotFoundError) or (
                    isinstance(error, OSError) and error.errno in NO_FILE
                )
                if isinstance(error, OSError) and error.errno in REFUSED_NAME:
                    raise BadInput(f"{self.uri}: {what}: {reason(error)}") from None
                # An absent file is an answer. But an unmounted folder lacks all files, and that is
                # none.
                if no_file and self._is_there():
                    raise
                if not self._opened:
                    if isinstance(error, OSError) and self.is_local:
                        raise
                    raise BadInput(f"{self.uri} must be readable: {reason(error)}") from None
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    # By now a person is needed; the sweep ends, and the same command resumes it.
                    raise StorageAway(f"{self.uri}: {what}: {reason(error)}") from error
                self.tell_away(f"{what}: {reason(error)}; trying again for {duration(remaining)}")
                failed = True
            self._sleep(pause)
            # Doubled, as all processes of a sweep ask at once, and a storage that recovers has
            # enough to do.
            pause = min(2 * pause, LONGEST_PAUSE)

    def tell_away(self, text: str) -> None:
        """Says that the storage is away, once a minute whichever thread of the process waits."""
        if self._told is None or time.monotonic() - self._told >= LINE_SECONDS:
            self._told, self._away = time.monotonic(), True
            _log.warning("%s: %s", self.uri, text)

    def tell_back(self) -> None:
        """Says that a storage that was said to be away answers again."""
        if self._away:
            self._away = False
            _log.warning("%s is back", self.uri)

    def _is_there(self) -> bool:
        try:
            self.require()
        except OSError:
            return False
        return True

    def _read(self, path: str) -> bytes | None:
        try:
            if self.is_local:
                return Path(self._at(path)).read_bytes()
            return bytes(self.fs.cat_file(self._at(path)))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _put(self, path: str, data: bytes | Path, *, create: bool = False) -> None:
        """Writes a file whole or not at all; with `create` it must not exist. Folders are made
        below the root alone."""
        target = self._at(path)
        if not self.is_local:
            if isinstance(data, Path):
                self.fs.put_file(str(data), target)
            else:
                self.fs.pipe_file(target, data, **({"mode": "create"} if create else {}))
            return
        unfinished = self.unfinished(path, uuid.uuid4().hex[:8])
        try:
            if isinstance(data, Path):
                shutil.copyfile(data, unfinished)
            else:
                unfinished.write_bytes(data)
            appear(unfinished, Path(target), create=create)
        finally:
            unfinished.unlink(missing_ok=True)

    def unfinished(self, path: str, name: str) -> Path:
        """The place where a file of a folder is written before it appears; its folder is made."""
        # Folder by folder and never the root: `makedirs` would rebuild an unmounted storage on the
        # local disk.
        for above in reversed(Path(path).parents[:-1]):
            Path(self.root, above).mkdir(exist_ok=True)
        # In the same folder: a rename is atomic only within a filesystem.
        return Path(self._at(path)).with_name(f"{UNFINISHED}{name}")

    def _at(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root


def appear(unfinished: Path, target: Path, *, create: bool) -> None:
    """Gives a written file its name, in one step; with `create` no file may have it."""
    if create:
        _link(unfinished, target)
    else:
        os.replace(unfinished, target)


def _link(source: Path, target: Path) -> None:
    """Gives a file another name that must not exist."""
    try:
        # A hard link fails where the name exists, in one step of the filesystem; a rename would
        # replace it.
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:  # a disk without links
        with target.open("xb") as file:
            file.write(source.read_bytes())


def _walk(folder: Path, begin: str, links: tuple[str, ...] = ()) -> Iterator[tuple[str, Entry]]:
    """The files below a folder, whose names begin with `begin`, that was come to by `links`, their
    folders and targets; a link that leads back to one of them is left out."""
    try:
        items = sorted(os.scandir(folder), key=lambda item: item.name)
    except OSError as error:
        if error.errno in NO_FILE:
            return
        raise
    for item in items:
        with suppress(FileNotFoundError):  # removed meanwhile
            on_the_way = links
            if item.is_symlink():
                here, target = os.path.realpath(folder), _target(item.path)
                if not target or target in links or Path(here).is_relative_to(target):
                    continue
                on_the_way += (here, target)
            if item.is_dir():
                yield from _walk(Path(item.path), f"{begin}{item.name}/", on_the_way)
            elif not item.name.startswith(UNFINISHED):
                info = item.stat()
                yield f"{begin}{item.name}", Entry(info.st_size, info.st_mtime)


def _target(link: str) -> str:
    """Where a link leads; "" for one that leads to itself."""
    try:
        return os.path.realpath(link, strict=True)
    except OSError as error:
        if error.errno != ELOOP:
            raise
        return ""


def _modified(info: Any) -> float:
    for name in ("mtime", "LastModified", "last_modified", "created", "updated"):
        if (value := info.get(name)) is not None:
            return float(value if isinstance(value, int | float) else value.timestamp())
    return 0.0


def reason(error: BaseException) -> str:
    """The cause of an error in a line: the system's message, or else its first line."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            path = cause.filename2 or cause.filename
            return redact_text(cause.strerror + (f": {path}" if path else ""))
        cause = cause.__cause__ or cause.__context__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return redact_text(lines[0] if lines else type(error).__name__)[:300]
