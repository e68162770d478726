"""The disk of the driver's host, for the nodes that do not see it: `driver:///PATH` of fsspec.

An actor beside the driver does there what the filesystem of a node asks, by a `Storage` of the same
folder: the same atomic steps, and the same error for a folder that is away. Contents pass in pieces
of `PIECE` bytes, each written at its place, so that any call may be repeated.
"""

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EHOSTUNREACH, ENODEV, ENOSPC
from pathlib import Path
from shutil import disk_usage
from typing import Any, BinaryIO

import fsspec
import ray
from fsspec.spec import AbstractFileSystem
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rank_core.errors import BadInput
from sweeps.plan.options import cluster_address
from sweeps.store.lock import read_driver
from sweeps.store.records import Records
from sweeps.store.storage import ANSWER_SECONDS, DRIVER, UNFINISHED, Storage, appear

ACTOR = "ranksweep-storage"
"""The name of the actor, in the namespace of the driver's job."""
PIECE = 8 * 2**20
ABANDONED_SECONDS = 3600.0  # without a new piece
CALLS = 16  # that the actor answers at a time


@contextmanager
def driver_disk(records: Records) -> Iterator[None]:
    """On a cluster, the actor that writes a local storage for nodes that do not see it. Ray starts
    it again where it dies. Raises `BadInput` where the driver's host is no node of the cluster and
    has the storage for itself."""
    if not records.storage.is_local or not cluster_address():
        yield
        return
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    options = {"num_cpus": 0, "max_restarts": -1, "max_concurrency": CALLS}
    actor: Any = ray.remote(Disk)
    actor = actor.options(name=ACTOR, scheduling_strategy=here, **options)
    disk = actor.remote(records.storage.root)  # it ends with this last name of it
    if not ray.get(disk.sees.remote(records.sweep, records.command)):
        raise BadInput(
            f"--storage must be a folder that the cluster's head sees or a URI such as s3://, got "
            f"{records.storage.uri}: this command runs on none of the cluster's nodes"
        )
    yield


def sees_storage(storage: str, sweep: str, command: str) -> bool:
    """True on a node whose folder of this name is the driver's: `driver.json` of the sweep has the
    random token of the driver's `command`. A folder of the same name may be another disk's."""
    with suppress(OSError):  # one that this user may not enter
        driver = read_driver(Records(Storage(storage), sweep), wait=False)
        return driver is not None and driver.command == command
    return False


def storage_here(storage: str, sweep: str, command: str) -> str:
    """A storage as this node reaches it: the folder, where that is the driver's, or a URI."""
    if "://" in storage or sees_storage(storage, sweep, command):
        return storage
    return through_ray(storage)


def through_ray(root: str) -> str:
    """The URI of a folder of the driver's host."""
    fsspec.register_implementation(DRIVER, DriverDisk, clobber=True)
    return f"{DRIVER}://{root}"


class Disk:
    """The actor: the storage of the driver's host, by absolute paths."""

    def __init__(self, root: str) -> None:
        self.storage = Storage(root, opened=True)

    def sees(self, sweep: str, command: str) -> bool:
        """Whether this is the driver's folder."""
        return sees_storage(self.storage.root, sweep, command)

    def ask(self, what: str, path: str, *further: Any, **options: Any) -> Any:
        """The answer of the host's own filesystem."""
        self._require()
        answer = getattr(self.storage.fs, what)(path, *further, **options)
        self._require()
        return answer

    def write(self, path: str, name: str, piece: bytes, offset: int, size: int) -> None:
        """Writes a piece of a file of `size` bytes that is not there yet, to which `name` belongs.
        One that has no room is refused before it takes what others need."""
        self._require()
        if not offset and size > disk_usage(self.storage.root).free:
            raise OSError(ENOSPC, os.strerror(ENOSPC), path)
        unfinished = self.storage.unfinished(os.path.relpath(path, self.storage.root), name)
        if not offset:
            _remove_abandoned(unfinished.parent)
        handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            while piece:
                written = os.pwrite(handle, piece, offset)
                piece, offset = piece[written:], offset + written
        finally:
            os.close(handle)

    def read(self, path: str, offset: int, length: int) -> tuple[bytes, int, tuple[int, int]]:
        """A piece of a file, the size of the whole, and which file that was."""
        self._require()
        with open(path, "rb") as file:
            info = os.fstat(file.fileno())
            piece = os.pread(file.fileno(), length, offset)
        return piece, info.st_size, (info.st_ino, info.st_mtime_ns)

    def free_bytes(self) -> float:
        """What is free on the disk."""
        self._require()
        return self.storage.free_bytes()

    def finish(self, path: str, name: str, size: int, create: bool) -> None:
        """Lets a written file appear under its name."""
        unfinished = _unfinished(path, name)
        try:
            written = unfinished.stat().st_size if unfinished.exists() else 0
            if written != size:
                raise OSError(f"{path} has {written} of {size} bytes")
            appear(unfinished, Path(path), create=create)
        finally:
            self.drop(path, name)
        self._require()

    def drop(self, path: str, name: str) -> None:
        """Removes what was written of a file that will not be finished."""
        _unfinished(path, name).unlink(missing_ok=True)

    def _require(self) -> None:
        """As `Storage.require`, by an error that no reader takes for an absent file."""
        try:
            self.storage.require()
        except FileNotFoundError as error:
            raise OSError(ENODEV, error.strerror, error.filename) from None


def _unfinished(path: str, name: str) -> Path:
    """As `Storage.unfinished`, without making its folder: the storage may be away by now."""
    return Path(path).with_name(f"{UNFINISHED}{name}")


def _remove_abandoned(folder: Path) -> None:
    """Removes what nodes that were lost had written of files."""
    for file in folder.glob(f"{UNFINISHED}*"):
        with suppress(FileNotFoundError):
            if time.time() - file.stat().st_mtime > ABANDONED_SECONDS:
                file.unlink()


class DriverDisk(AbstractFileSystem):  # type: ignore[misc]
    """The filesystem of a node that asks the actor."""

    protocol = (DRIVER,)
    root_marker = "/"

    def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        try:
            actor = ray.get_actor(ACTOR)
            answer = getattr(actor, method).remote(*arguments, **options)
            return ray.get(answer, timeout=ANSWER_SECONDS)
        except RayTaskError as error:
            raise error.cause from None
        except (RayActorError, GetTimeoutError, ValueError) as error:  # the last: no such actor
            raise OSError(EHOSTUNREACH, "the driver's host does not answer through Ray") from error

    def free_bytes(self) -> float:
        """What is free on the driver's disk."""
        return float(self._call("free_bytes"))

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        """The entries of a folder, without files that are being written."""
        path = self._strip_protocol(path)
        entries = self._call("ask", "ls", path, detail=True)
        shown = [entry for entry in entries if not _is_unfinished(entry["name"])]
        return shown if detail else [entry["name"] for entry in shown]

    def find(self, path: str, *depth: Any, detail: bool = False, **options: Any) -> Any:
        """The files below a folder."""
        # Not of fsspec, which takes a folder that cannot be listed for an empty one.
        found = self._call(
            "ask", "find", self._strip_protocol(path), *depth, detail=True, **options
        )
        shown = {name: info for name, info in found.items() if not _is_unfinished(name)}
        return shown if detail else [*shown]

    def info(self, path: str, **options: Any) -> Any:
        """Size, time and type of a path."""
        return self._call("ask", "info", self._strip_protocol(path))

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Makes a folder and those above it."""
        self._call("ask", "makedirs", self._strip_protocol(path), exist_ok=exist_ok)

    def rm_file(self, path: str) -> None:
        """Removes a file."""
        self._call("ask", "rm_file", self._strip_protocol(path))

    _rm = rm_file

    def mv(self, path1: str, path2: str, **options: Any) -> None:
        """Gives a file another name, in place of the file that has it."""
        self._call("ask", "mv", *map(self._strip_protocol, (path1, path2)))

    def rmdir(self, path: str) -> None:
        """Removes an empty folder."""
        self._call("ask", "rmdir", self._strip_protocol(path))

    def cat_file(self, path: str, start: Any = None, end: Any = None, **options: Any) -> bytes:
        """The content of a file."""
        return b"".join(self._pieces(self._strip_protocol(path)))

    def get_file(self, rpath: str, lpath: str, *unused: Any, **options: Any) -> None:
        """Writes a copy of a file to this node's disk."""
        with open(lpath, "wb") as file:
            for piece in self._pieces(self._strip_protocol(rpath)):
                file.write(piece)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        """Writes a file, whole or not at all."""
        pieces = (value[at : at + PIECE] for at in range(0, len(value), PIECE))
        self._write(self._strip_protocol(path), pieces, len(value), create=mode == "create")

    def put_file(self, lpath: str, rpath: str, *unused: Any, **options: Any) -> None:
        """Writes a copy of a file of this node, whole or not at all."""
        with open(lpath, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            self._write(self._strip_protocol(rpath), _pieces_of(file), size)

    def _write(
        self, path: str, pieces: Iterator[bytes], size: int, *, create: bool = False
    ) -> None:
        name, offset = uuid.uuid4().hex[:8], 0
        try:
            self._call("write", path, name, next(pieces, b""), 0, size)
            for piece in pieces:
                offset += PIECE
                self._call("write", path, name, piece, offset, size)
            self._call("finish", path, name, size, create)
        except Exception:
            with suppress(OSError):
                self._call("drop", path, name)
            raise

    def _pieces(self, path: str) -> Iterator[bytes]:
        """The content of a file; raises where it is replaced meanwhile."""
        first, size, which = self._call("read", path, 0, PIECE)
        yield first
        for offset in range(PIECE, size, PIECE):
            piece, _, now = self._call("read", path, offset, PIECE)
            if now != which:
                raise OSError(f"{path} was replaced while it was read")
            yield piece


def _is_unfinished(path: str) -> bool:
    return os.path.basename(path).startswith(UNFINISHED)


def _pieces_of(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        yield piece
