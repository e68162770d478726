"""Prepared inputs in the storage: the folders of the cache that a sweep reads, put there once by
the driver, from which nodes with a cache of their own restore them instead of preparing again.

A folder of the cache is `prepared/KIND/KEY/`, its files and, written last, their sizes and hashes.
What comes back is data: of some kinds alone, with these hashes, and below one folder.
"""

import json
import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from errno import ENOSPC
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from rank_core.cache import SECONDS, build_seconds, cache_root, used_folders
from rank_core.data.store import SOURCES, STORES
from rank_core.files import FULL, file_sha256
from rank_core.parsing import parsed_json
from rank_core.progress import reported
from rank_core.units import size_text
from sweeps.store.storage import Entry, Storage, StorageAway, reason
from sweeps.terminal.text import duration

FOLDER = "prepared"
LIST = ".files.json"
"""Of a folder: {file: [bytes, SHA-256]}."""
KINDS = (
    STORES, SOURCES,
    *("chunks", "collections", "document-frequencies", "first-stage"),
    *("tokens", "training", "transforms"),
)  # fmt: skip
"""Kinds of the cache that take time to make and have tables alone: no code, no model."""
GIGABIT = 125e6  # bytes per second
WORTH_SAYING = 60.0  # seconds
_log = logging.getLogger(__name__)


class Preparation(NamedTuple):
    """What the inputs that a command has read cost whoever does not have them."""

    num_bytes: int
    seconds: float  # to make them, once, without a GPU

    @property
    def there(self) -> float:
        """The seconds until a node elsewhere can begin: they are made and brought to it."""
        return self.seconds + self.num_bytes / GIGABIT if self.seconds >= WORTH_SAYING else 0.0

    @property
    def text(self) -> str:
        """In words; "" for what takes less than a minute."""
        if self.seconds < WORTH_SAYING:
            return ""
        return (
            f"{size_text(self.num_bytes)} of inputs, made once in {duration(self.seconds)} without "
            "a GPU; a node with a cache of its own gets them from the storage, in "
            f"{duration(self.num_bytes / GIGABIT)} at 1 Gbit/s"
        )


def preparation() -> Preparation:
    """Of the inputs that this command has read."""
    used = [(kind, key) for kind, key in used_folders() if kind in KINDS]
    size = sum(path.stat().st_size for name in used for path in _files(*name))
    return Preparation(size, build_seconds(used))


class Prepared:
    """The prepared inputs of a storage."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def missing(self) -> dict[str, int]:
        """{KIND/KEY: bytes} of what this command has read and the storage does not have."""
        there = self.storage.files(FOLDER)
        used = {f"{kind}/{key}": (kind, key) for kind, key in used_folders() if kind in KINDS}
        lists = {name: f"{FOLDER}/{name}/{LIST}" for name in used}
        content = self.storage.read_all(path for path in lists.values() if path in there)
        return {
            name: sum(path.stat().st_size for path in _files(*folder))
            for name, folder in used.items()
            if not _is_whole(name, content.get(lists[name], b""), there)
        }

    def put(self, names: dict[str, int]) -> None:
        """Puts folders of the cache into the storage. Raises an error of any kind where it does not
        take them, or `OSError` where it has less than twice their room."""
        if self.storage.free_bytes() < 2 * sum(names.values()):
            raise OSError(ENOSPC, os.strerror(ENOSPC), self.storage.root)
        folders = {name: [*_files(*name.split("/"))] for name in names}
        steps = (step for name, files in folders.items() for step in self._put(name, name, files))
        total = len(names) + sum(map(len, folders.values()))
        for _ in reported(steps, "storage: files of inputs", total=total):
            pass

    def put_folder(self, name: str, kind: str, key: str) -> None:
        """Puts a folder of the cache into the storage, by another name below `prepared`. Raises an
        error of any kind where it does not take it."""
        for _ in self._put(name, f"{kind}/{key}", _files(kind, key)):
            pass

    def _put(self, name: str, folder: str, files: Iterable[Path]) -> Iterator[None]:
        """Writes the files of a folder of the cache, and then their list; yields after each."""
        listed: dict[str, tuple[int, str]] = {}
        for path in files:
            file = path.relative_to(cache_root() / folder).as_posix()
            self._write(f"{name}/{file}", path)
            listed[file] = path.stat().st_size, file_sha256(path)
            yield
        self._write(f"{name}/{LIST}", json.dumps(listed).encode())
        yield

    def _write(self, path: str, data: bytes | Path) -> None:
        """Waits for a storage that is away, and not for one that is full."""
        try:
            self.storage.write(f"{FOLDER}/{path}", data, wait=False)
        except Exception as error:  # every filesystem has its own kinds
            if isinstance(error, OSError) and error.errno in FULL:
                raise
            self.storage.write(f"{FOLDER}/{path}", data)

    def restore(self, kind: str, key: str, folder: Path) -> bool:
        """Fills an empty folder; False where the storage lacks it, where it cannot be read, and for
        damaged files, whose list is removed: the next driver puts them there again."""
        return kind in KINDS and self.restore_folder(f"{kind}/{key}", folder)

    def restore_folder(self, name: str, folder: Path) -> bool:
        """As `restore`, of a folder by its name below `prepared`."""
        name = f"{FOLDER}/{name}"
        try:
            found = parsed_json((self.storage.read(f"{name}/{LIST}") or b"{}").decode())
            for file, (size, digest) in found.items():
                target = _within(folder, file)
                target.parent.mkdir(parents=True, exist_ok=True)
                there = self.storage.fetch(f"{name}/{file}", target.parent)
                if there != target:  # a folder that this node sees
                    shutil.copyfile(there, target)
                if target.stat().st_size != size or file_sha256(target) != digest:
                    raise ValueError(f"{file} has another content")
        except OSError as error:  # of the storage, or of this node's disk
            _log.warning("%s/%s cannot be restored (%s)", self.storage.uri, name, reason(error))
        except (ValueError, TypeError, AttributeError) as error:
            _log.warning("%s/%s is damaged and not used: %s", self.storage.uri, name, error)
            with suppress(OSError, StorageAway):
                self.storage.remove(f"{name}/{LIST}")
        else:
            return bool(found)
        for one in folder.iterdir():
            shutil.rmtree(one) if one.is_dir() else one.unlink()
        return False


def _files(kind: str, key: str) -> Iterator[Path]:
    """The files of a folder of the cache, without the time that it took here."""
    folder = cache_root() / kind / key
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return (path for path in paths if path.name not in (LIST, SECONDS))


def _is_whole(name: str, content: bytes, there: Mapping[str, Entry]) -> bool:
    """Whether the storage has all files of a list in their sizes."""
    try:
        sizes = {file: size for file, (size, _) in parsed_json(content.decode()).items()}
        return all(there[f"{FOLDER}/{name}/{file}"].size == size for file, size in sizes.items())
    except (KeyError, ValueError, TypeError, AttributeError):
        return False


def _within(folder: Path, file: str) -> Path:
    """The place of a listed file. Raises `ValueError` for one outside of its folder."""
    path = PurePosixPath(file)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"{file!r} is not below its folder")
    return folder / path
