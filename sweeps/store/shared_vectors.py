"""Vectors that nodes with caches of their own give each other through the storage.

A part of a collection is a folder below `prepared/vectors`: its shards, each as a folder of
prepared inputs, and the claim of the process that embeds it now. That process touches its claim;
one that was not touched for a minute is of a process that has died. A trial whose storage is away,
full or slow embeds everything itself.
"""

import io
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from rank_core.cache import cache_root, cached_directory
from rank_core.retrieval.vectors import KEY, KEYS, KIND, Keys
from rank_core.units import GIBIBYTE, size_text
from sweeps.store.lock import STALE_SECONDS, TOUCH_SECONDS
from sweeps.store.prepared import FOLDER, LIST, Prepared
from sweeps.store.storage import Storage, reason

CLAIM = ".claim"
FREE_BYTES = 20 * GIBIBYTE  # of the storage's disk, which results may need
JUDGED_AFTER = 5.0  # seconds of sharing
_log = logging.getLogger(__name__)
T = TypeVar("T")


def pays(embedding: float, sharing: float) -> bool:
    """Whether vectors go to the storage, by the seconds of embedding some and of putting them
    there. Another node takes them in about the time of putting them. If both together are shorter
    than embedding, one such node makes up for the cost."""
    return 2 * sharing < embedding


class _Absent(Exception):
    """The storage lacks a shard, or has it damaged."""


class SharedVectors:
    """The `Exchange` of a trial's process."""

    def __init__(self, uri: str) -> None:
        self._storage = Storage(uri, opened=True, waits=False)
        self._prepared = Prepared(self._storage)
        self._command = uuid.uuid4().hex.encode()
        self._shares = True
        self._embedding = self._sharing = 0.0  # seconds, of shards that went there
        self._claiming = 0.0  # seconds that the part's claim took
        self._clock: float | None = None  # the storage's time at 0 of this process's clock

    @contextmanager
    def turn(self, part: str) -> Iterator[bool]:
        """Whether no process of another cache embeds a part in the block."""
        claim = f"{FOLDER}/{KIND}/{part}/{CLAIM}"
        begun = time.monotonic()
        mine = self._tried(lambda: self._claim(claim), otherwise=True)
        self._claiming = time.monotonic() - begun
        if not (mine and self._shares):
            yield mine
            return
        over = threading.Event()
        touching = threading.Thread(target=self._touch, args=(claim, over), daemon=True)
        touching.start()
        try:
            yield True
        finally:
            over.set()
            touching.join(TOUCH_SECONDS)
            with suppress(Exception):  # otherwise the claim is soon too old
                self._storage.remove(claim)

    def bring(self, part: str, key_N: Keys) -> None:
        """Puts shards of a part that have some of the texts into this cache."""
        self._tried(lambda: self._bring(part, key_N), otherwise=None)

    def put(self, part: str, shard: Path, seconds: float) -> None:
        """Puts a shard, which took `seconds` to embed, into the storage."""
        if not self._shares:
            return
        begun = time.monotonic() - self._claiming
        self._tried(lambda: self._put(part, shard.name), otherwise=None)
        self._embedding += seconds
        self._sharing += time.monotonic() - begun
        self._claiming = 0.0
        if self._sharing > JUDGED_AFTER and not pays(self._embedding, self._sharing):
            self._stop(
                f"embedding took {self._embedding:.0f} s, putting into the storage "
                f"{self._sharing:.0f} s"
            )

    def _tried(self, action: Callable[[], T], otherwise: T) -> T:
        """The value of an action; after an error this trial shares nothing more."""
        if not self._shares:
            return otherwise
        try:
            return action()
        except Exception as error:  # every filesystem has its own kinds
            self._stop(reason(error))
            return otherwise

    def _stop(self, why: str) -> None:
        self._shares = False
        _log.warning("vectors are not shared with other nodes from here on: %s", why)

    def _claim(self, path: str) -> bool:
        if self._storage.create(path, self._command):
            return True
        touched = self._storage.modified(path)
        if touched is not None and self._now() - touched <= STALE_SECONDS:
            return False
        # Two processes that do this at once may both embed the part: which costs time alone.
        self._storage.remove(path)
        return self._storage.create(path, self._command)

    def _now(self) -> float:
        """The storage's time."""
        if self._clock is None:
            self._clock = self._storage.now() - time.monotonic()
        return self._clock + time.monotonic()

    def _touch(self, claim: str, over: threading.Event) -> None:
        while not over.wait(TOUCH_SECONDS):
            with suppress(Exception):  # every filesystem has its own kinds
                self._storage.write(claim, self._command)

    def _bring(self, part: str, key_N: Keys) -> None:
        folder = f"{FOLDER}/{KIND}/{part}/"
        names = [
            path.removeprefix(folder).removesuffix(f"/{LIST}")
            for path in self._storage.files(folder.rstrip("/"))
            if path.endswith(f"/{LIST}")
        ]
        new = [name for name in names if not (cache_root() / KIND / name).is_dir()]
        of_keys = self._storage.read_all(f"{folder}{name}/{KEYS}" for name in new)
        for name in new:
            keys = _keys_in(of_keys.get(f"{folder}{name}/{KEYS}", b""))
            if np.isin(key_N, keys).any():
                with suppress(_Absent):
                    cached_directory(KIND, name, partial(self._fill, f"{KIND}/{part}/{name}"))

    def _fill(self, name: str, folder: Path) -> None:
        if not self._prepared.restore_folder(name, folder):
            raise _Absent

    def _put(self, part: str, name: str) -> None:
        if (free := self._storage.free_bytes()) < FREE_BYTES:
            kept = size_text(FREE_BYTES)
            self._stop(f"{size_text(free)} of the storage's disk are free, and {kept} are kept")
            return
        self._prepared.put_folder(f"{KIND}/{part}/{name}", KIND, name)


def _keys_in(content: bytes) -> Keys:
    """The keys in a file of a shard; none of a damaged one."""
    with suppress(ValueError, EOFError, OSError):
        return np.load(io.BytesIO(content))
    return np.zeros(0, KEY)
