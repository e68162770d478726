"""Files that are written whole or not at all, and their hashes."""

import hashlib
import json
import math
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from errno import (
    EDQUOT,
    EFBIG,
    EILSEQ,
    EISDIR,
    ELOOP,
    ENAMETOOLONG,
    ENOENT,
    ENOSPC,
    ENOTDIR,
)
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from rank_core.errors import BadInput

_Reader = TypeVar("_Reader", bound=Callable[..., Any])

NO_FILE = (ENOENT, EISDIR, ELOOP, ENOTDIR)
"""Errors of a path that is not a file, whatever the state of the storage."""
REFUSED_NAME = (ENAMETOOLONG, EILSEQ)
"""Errors of a name that a file system does not allow, which no waiting mends."""
FULL = (ENOSPC, EDQUOT, EFBIG)
"""Errors of a disk or a quota without room."""
SCHEMA = "$schema"
"""The key by which a JSON file names its schema for editors; readers allow it and ignore it."""


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`, in the same existing folder. When the block ends, the
    temporary file replaces `path`; when it fails, it is removed. No reader sees half a file."""
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.unfinished")
    try:
        yield unfinished
        os.replace(unfinished, path)
    except OSError as error:
        if error.filename is not None or error.errno not in FULL:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None  # of a write: no name
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yields an empty folder beside `folder`, a new or empty one. When the block ends, it becomes
    `folder`; when the block fails, it is removed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.unfinished")
    unfinished.mkdir()
    try:
        yield unfinished
        unfinished.replace(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def finite(value: Any) -> Any:
    """`value` as any reader of JSON takes it: null in place of numbers that are none (NaN,
    infinite)."""
    if isinstance(value, Mapping):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: Path, content: Any) -> None:
    """Writes `content` as indented JSON, whole or not at all."""
    with atomic_write(path) as unfinished:
        unfinished.write_text(json.dumps(content, indent=1), encoding="utf-8")


def read_file(path: Path) -> bytes:
    """The content of a file. A `BadInput` names one that is none; errors of the storage are passed
    on."""
    try:
        return path.read_bytes()
    except OSError as error:
        if error.errno not in NO_FILE:
            raise
        raise BadInput(f"{path} {unreadable(path, error)}") from None


def unreadable(path: Path, error: OSError) -> str:
    """Why a file cannot be read, as it follows its name in a message."""
    if isinstance(error, FileNotFoundError):
        link = "; it is a symbolic link to a missing file" if path.is_symlink() else ""
        return f"does not exist{link}"
    if isinstance(error, IsADirectoryError):
        return "is a folder, not a file"
    return f"cannot be read: {error.strerror or error}"


def shown_path(path: str | Path) -> str:
    """A path as text that can be printed and written: bytes of a name that are no UTF-8 become
    `\\xff`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def is_there(path: str | Path) -> bool:
    """Whether a text is the path of something; False for one that cannot be a path, such as a long
    list of names."""
    return os.path.exists(path)


FileState = tuple[str | int, ...]
"""The path of a file and what changes with its content: bytes, times, place on the disk."""
_TICK = 2.0  # seconds; no file system's clock is coarser


def file_state(path: Path) -> FileState:
    """The state of a file. Tools can set the time of the last change of a content (`cp -p`, tar),
    but not that of its entry."""
    stat = path.stat()
    return str(path), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


def is_young(state: FileState) -> bool:
    """Whether a file may change again without a change of its state: within a tick of a clock."""
    return time.time() - max(map(int, state[2:4])) / 1e9 < _TICK


def content_state(path: Path) -> FileState:
    """The state of a file; of a young one its content instead, which is read for it."""
    state = file_state(path)
    return (str(path), file_sha256(path)) if is_young(state) else state


def kept_while_unchanged(maxsize: int, folder: int = 0) -> Callable[[_Reader], _Reader]:
    """A decorator as `lru_cache`, for a function that reads the folder which its argument at the
    place `folder` names: it is called again after a file of that folder, or of a folder in it, has
    changed by path or state, and while one is young. What is no folder (a name of a hub) has no
    state."""

    def decorate(function: _Reader) -> _Reader:
        @lru_cache(maxsize)
        def kept(state: tuple[FileState, ...], *args: Any) -> Any:
            return function(*args)

        @wraps(function)
        def read(*args: Any) -> Any:
            states = _states_of(Path(args[folder]))
            return function(*args) if any(map(is_young, states)) else kept(states, *args)

        vars(read)["cache_clear"] = kept.cache_clear
        return cast(_Reader, read)

    return decorate


def _states_of(folder: Path) -> tuple[FileState, ...]:
    states = []
    for path in sorted([*folder.glob("*"), *folder.glob("*/*")]):
        with suppress(OSError):  # a file that is going
            states.append(file_state(path.absolute()))
    return tuple(states)


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's content, 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
