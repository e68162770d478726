"""Content-addressed folders on the local disk, built once for all processes."""

import functools
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from filelock import FileLock, Timeout

from rank_core import notes
from rank_core.errors import BadInput
from rank_core.home import NO_HOME, has_home
from rank_core.lines import beside
from rank_core.parsing import parsed_json

SECONDS_BEFORE_WORD = 5.0
MESSAGES = {
    "chunks": "cutting documents into chunks",
    "collections": "preparing the collection",
    "document-frequencies": "counting document frequencies",
    "document-sources": "reading the documents",
    "first-stage": "ranking candidates with BM25",
    "hub": "laying out the files of the Hugging Face Hub",
    "lucene-index": "indexing the documents",
    "tokens": "tokenising documents and queries",
    "training": "preparing the training pairs",
    "transforms": "preparing the collection",
    "untrained": "writing the untrained backbone",
}
"""The log's message for each kind of folder that takes time to build."""
Restore = Callable[[str, str, Path], bool]
"""Fills an empty folder with what another machine has built: kind and key; False where it has not
or the content is damaged, which leaves the folder empty."""
_restore: list[Restore] = []
_Loader = TypeVar("_Loader", bound=Callable[..., Any])
_Opened = dict[tuple[str, str], None]  # (kind, key)
_opened: list[_Opened] = [{}]  # of this process, then of each block that notes them
SECONDS = ".seconds"
"""The file, in a folder that took more than a second, of how long it took to build: {KIND/KEY:
seconds} of itself and of what was built for it."""
_nested: list[dict[str, float]] = []  # the same, of the builds under way, the outermost first
_log = logging.getLogger(__name__)


def cache_root() -> Path:
    """`$RANKSWEEP_CACHE`, or `~/.cache/ranksweep`. Raises `BadInput` for a user without a home
    folder, as a container may have, where the variable is not set."""
    if given := os.environ.get("RANKSWEEP_CACHE"):
        return Path(given).expanduser()  # no shell has, in a file of variables
    if not has_home():
        raise BadInput(NO_HOME)
    return Path.home() / ".cache" / "ranksweep"


@functools.cache
def _log_once(message: str) -> None:
    _log.info(message)


@contextmanager
def restored_by(restore: Restore) -> Iterator[None]:
    """Asks for folders of another machine in the block, before they are built."""
    _restore.append(restore)
    try:
        yield
    finally:
        _restore.remove(restore)


@contextmanager
def opened_anew() -> Iterator[_Opened]:
    """Notes the folders that are opened in the block, for `used_folders`."""
    opened: _Opened = {}
    _opened.append(opened)
    try:
        yield opened
    finally:
        _opened[:] = [one for one in _opened if one is not opened]


def loaded_once(maxsize: int) -> Callable[[_Loader], _Loader]:
    """A decorator as `lru_cache`, for a function that opens folders of the cache: every call opens
    them, also one that is answered from memory."""

    def decorate(function: _Loader) -> _Loader:
        @functools.lru_cache(maxsize)
        def loaded(*args: Any) -> tuple[Any, _Opened]:
            with opened_anew() as opened:
                return function(*args), opened

        @functools.wraps(function)
        def load(*args: Any) -> Any:
            value, opened = loaded(*args)
            for noted in _opened:
                noted.update(opened)
            return value

        vars(load)["cache_clear"] = loaded.cache_clear
        return cast(_Loader, load)

    return decorate


def used_folders() -> list[tuple[str, str]]:
    """(kind, key) of the folders that are there and that were opened in the innermost block of
    `opened_anew`, or in this process."""
    return [(kind, key) for kind, key in _opened[-1] if (cache_root() / kind / key).is_dir()]


def build_seconds(folders: Iterable[tuple[str, str]]) -> float:
    """The seconds that it took to build folders (kind, key) here, with what was built for them."""
    # By name: what was built for one of them may be another one.
    seconds: dict[str, float] = {}
    for kind, key in folders:
        with suppress(OSError, ValueError, TypeError, AttributeError, BadInput):
            content = parsed_json((cache_root() / kind / key / SECONDS).read_bytes())
            seconds |= {name: float(value) for name, value in content.items()}
    return sum(seconds.values())


@contextmanager
def _locked(path: Path, kind: str) -> Iterator[None]:
    """The lock of a build; a process that waits long for it says so on standard error."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=SECONDS_BEFORE_WORD)
    except Timeout:
        beside(f"waiting for another process: {MESSAGES.get(kind, kind)}")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def cached_directory(
    kind: str, key: str, build: Callable[[Path], None], *, restores: bool = True
) -> Path:
    """`<cache>/<kind>/<key>`, made by `build(empty_folder)` if it does not exist yet. The folder
    appears by one rename under a lock: no reader sees it half built, and the remains of a killed
    builder are never used. What was noted while it was built is noted whenever it is opened.

    `restores=False` builds it here, whatever another machine has. Raises `ValueError` for a key
    that is not the name of a folder."""
    if Path(key).name != key or key in ("", ".."):  # it may come from another machine
        raise ValueError(f"{key!r} is not the name of a folder of the cache")
    home = cache_root() / kind
    final = home / key
    for opened in _opened:
        opened[kind, key] = None
    if final.is_dir():
        with suppress(OSError):  # another user's
            os.utime(final)  # its last use, for `ranksweep storage --cache`
        notes.say_again(final)
        return final
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"the cache must be a writable folder, got {cache_root()}: {error.strerror}; the "
            "environment variable RANKSWEEP_CACHE names another"
        ) from None
    with _locked(home / f"{key}.lock", kind):
        if final.is_dir():
            notes.say_again(final)
            return final
        for leftover in home.glob(f"{key}.building-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        building = Path(tempfile.mkdtemp(prefix=f"{key}.building-", dir=home))
        try:
            if restores and any(restore(kind, key, building) for restore in _restore):
                notes.say_again(building)
            else:
                _build(kind, key, building, build)
            building.rename(final)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise
    return final


def _build(kind: str, key: str, folder: Path, build: Callable[[Path], None]) -> None:
    if kind in MESSAGES:
        _log_once(MESSAGES[kind])
    begun, nested = time.monotonic(), dict[str, float]()
    _nested.append(nested)
    try:
        with notes.kept_in(folder):
            build(folder)
    finally:
        _nested[:] = [one for one in _nested if one is not nested]
    seconds = time.monotonic() - begun
    nested[f"{kind}/{key}"] = seconds - sum(nested.values())
    if _nested:
        _nested[-1].update(nested)
    if seconds > 1:
        (folder / SECONDS).write_text(json.dumps(nested))


class CacheEntry(NamedTuple):
    """A folder that `cached_directory` built."""

    kind: str
    path: Path
    num_bytes: int
    used: float  # when it was last used or read, in seconds since the epoch


def cache_entries() -> Iterator[CacheEntry]:
    """The folders of the cache, which are built again when they are needed; nothing else that is
    kept beside them, such as the answers of chat models."""
    for lock in sorted(cache_root().glob("*/*.lock")):
        path = lock.with_suffix("")
        with suppress(OSError):  # removed meanwhile
            files = [file.stat() for file in path.rglob("*") if file.is_file()]
            times = [max(file.st_mtime, file.st_atime) for file in files]
            size = sum(file.st_size for file in files)
            yield CacheEntry(path.parent.name, path, size, max([path.stat().st_mtime, *times]))


def remove_folder(kind: str, key: str) -> None:
    """Removes a folder of the cache, by one rename: a killed removal leaves what the next build of
    the folder removes."""
    home = cache_root() / kind
    with _locked(home / f"{key}.lock", kind):
        gone = home / f"{key}.building-removed"
        with suppress(FileNotFoundError):
            (home / key).rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
