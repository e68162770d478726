"""Vectors of texts, stored once by the content of model and text.

A shard is a folder of the cache with the keys and vectors of up to `SHARD` texts, which appears
whole or not at all. An equal text is embedded once: for chunks that several windows share, for a
second sweep, for cells that run side by side, and after a kill, which loses the shard in work.
Vectors are memory-mapped: an index may be larger than memory.
"""

import hashlib
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from rank_core.arrays import Singles
from rank_core.cache import cache_root, cached_directory
from rank_core.progress import reported

SHARD = 1024
KIND, KEYS, VECTORS = "vectors", "keys.npy", "vectors.npy"
KEY = np.dtype("S16")
OPEN = 256  # mapped shards
PAUSE = 0.5  # seconds between looks at parts that other processes embed

Keys = NDArray[np.bytes_]
Places = NDArray[np.int64]


class Exchange(Protocol):
    """Where caches give each other vectors. A failure of that place raises nothing: the vectors are
    then embedded here."""

    def turn(self, part: str) -> AbstractContextManager[bool]:
        """Whether this process alone embeds a part in the block."""

    def bring(self, part: str, key_N: Keys) -> None:
        """Puts shards of a part that have some of the texts into this cache."""

    def put(self, part: str, shard: Path, seconds: float) -> None:
        """Takes a shard of a part, which took `seconds` to embed."""


_exchanges: list[Exchange] = []


@contextmanager
def exchanged(exchange: Exchange) -> Iterator[None]:
    """Shares vectors with other caches in the block."""
    _exchanges.append(exchange)
    try:
        yield
    finally:
        _exchanges.remove(exchange)


class Text(NamedTuple):
    """What a model embeds: a text and the title before it, if any."""

    title: str
    text: str

    @property
    def key(self) -> bytes:
        """16 bytes that identify it."""
        return hashlib.sha256(f"{len(self.title)} {self.title}{self.text}".encode()).digest()[:16]


class VectorStore:
    """The vectors of documents by one model, which `model` names by all that decides them."""

    def __init__(self, model: str) -> None:
        self.model = model

    def shards(self, but: Container[Path] = ()) -> list[Path]:
        """The complete shards but some, in a fixed order."""
        found = (cache_root() / KIND).glob(f"{self.model}-{'[0-9a-f]' * 16}")
        return sorted(path for path in found if path not in but and path.is_dir())

    def missing(self, key_N: Keys) -> Places:
        """The places of the first of each key without a vector, in ascending order."""
        _, first = np.unique(key_N, return_index=True)
        return np.sort(first[~np.isin(key_N[first], _keys(self.shards()))])

    def embed(
        self,
        key_N: Keys,
        parts: Mapping[str, Places],
        texts: Callable[[Places], list[Text]],
        encode: Callable[[Sequence[Text]], Singles],
    ) -> Places:
        """Embeds the texts at some places of `key_N`, by the name of the part that they are of, and
        stores them, shard by shard; returns the places of those that were embedded here.

        Cells with common chunks run side by side and have the same names of parts. One process at a
        time embeds a part: the others go on with other parts, and find it stored when they return.
        """
        left, seen, stored, embedded = dict(parts), {*self.shards()}, set[bytes](), []
        while left:
            before = len(left)
            for name in reported([*left], "vectors: parts of the collection"):
                part = f"{self.model}-{name}"
                with _turn(part) as mine:
                    if not mine:
                        continue
                    places = left.pop(name)
                    for exchange in _exchanges:
                        exchange.bring(part, key_N[places])
                    new = self.shards(but=seen)
                    seen.update(new)
                    stored.update(_keys(new).tolist())
                    places = places[[key not in stored for key in key_N[places].tolist()]]
                    self._embed_part(part, key_N, places, texts, encode)
                    embedded.append(places)
            if len(left) == before:  # others have them all
                time.sleep(PAUSE)
        return np.sort(np.concatenate([np.zeros(0, np.int64), *embedded]))

    def _embed_part(
        self,
        part: str,
        key_N: Keys,
        places: Places,
        texts: Callable[[Places], list[Text]],
        encode: Callable[[Sequence[Text]], Singles],
    ) -> None:
        for start in range(0, len(places), SHARD):
            some = places[start : start + SHARD]
            keys = key_N[some]
            name = hashlib.sha256(keys.tobytes()).hexdigest()[:16]
            build = partial(_write, keys=keys, texts=texts, places=some, encode=encode)
            begun = time.monotonic()
            shard = cached_directory(KIND, f"{self.model}-{name}", build)
            for exchange in _exchanges:
                exchange.put(part, shard, time.monotonic() - begun)

    def open(self, key_N: Keys) -> "Vectors":
        """The vectors of texts. Raises KeyError where one is missing."""
        shards = self.shards()
        stored = [np.load(shard / KEYS) for shard in shards]
        keys = np.concatenate([np.zeros(0, KEY), *stored])
        sizes = [len(shard) for shard in stored]
        shard_K = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        row_K = np.concatenate([np.arange(size, dtype=np.int32) for size in sizes] or [shard_K])
        order = np.argsort(keys, kind="stable")  # of two shards with one text the first
        found = np.searchsorted(keys[order], key_N)
        beyond = found.max(initial=-1) >= len(keys)
        if beyond or (keys[order[found]] != key_N).any():
            raise KeyError(f"{self.model} has no vector of a text")
        return Vectors(shards, shard_K[order[found]], row_K[order[found]])


@contextmanager
def _turn(part: str) -> Iterator[bool]:
    """Whether this process alone embeds a part in the block. The system releases the lock of a
    process that dies."""
    home = cache_root() / KIND
    home.mkdir(parents=True, exist_ok=True)
    with ExitStack() as turns:
        try:
            turns.enter_context(FileLock(home / f"{part}.turn").acquire(timeout=0))
        except Timeout:
            yield False
            return
        yield all([turns.enter_context(exchange.turn(part)) for exchange in _exchanges])


def _keys(shards: Iterable[Path]) -> Keys:
    """The keys of the texts in some shards."""
    return np.concatenate([np.zeros(0, KEY), *(np.load(shard / KEYS) for shard in shards)])


def _write(
    folder: Path,
    *,
    keys: Keys,
    texts: Callable[[Places], list[Text]],
    places: Places,
    encode: Callable[[Sequence[Text]], Singles],
) -> None:
    np.save(folder / VECTORS, np.ascontiguousarray(encode(texts(places)), np.float32))
    np.save(folder / KEYS, keys)


@lru_cache(maxsize=OPEN)
def _mapped(shard: Path) -> Singles:
    return np.load(shard / VECTORS, mmap_mode="r").view(np.ndarray)


class Vectors:
    """The vectors of a list of texts, read from their shards."""

    def __init__(
        self, shards: Sequence[Path], shard_N: NDArray[np.int32], row_N: NDArray[np.int32]
    ) -> None:
        self._shards, self._shard_N, self._row_N = shards, shard_N, row_N

    def __len__(self) -> int:
        return len(self._shard_N)

    def block(self, start: int, end: int, dimensions: int | None = None) -> Singles:
        """vector_ND of the texts [start, end), in memory; the first `dimensions` of them if
        given."""
        shard_N, row_N = self._shard_N[start:end], self._row_N[start:end]
        used = np.unique(shard_N)
        whole = _mapped(self._shards[used[0]]).shape[1] if len(used) else 0
        size = whole if dimensions is None else dimensions
        vector_ND = np.empty((len(shard_N), size), np.float32)
        for number in used.tolist():
            of_shard = shard_N == number
            vector_ND[of_shard] = _mapped(self._shards[number])[row_N[of_shard], :size]
        return vector_ND
