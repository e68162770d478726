"""Vectors of texts, stored once by the content of model and text.

A shard is a folder of the cache with the keys and vectors of up to `SHARD` texts, which appears
whole or not at all. An equal text is embedded once: for chunks that several windows share, for a
second sweep, and after a kill, which loses the shard in work. Vectors are memory-mapped: an index
may be larger than memory.
"""

import hashlib
from collections.abc import Callable, Container, Iterable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rank_core.arrays import Singles
from rank_core.cache import cache_root, cached_directory
from rank_core.progress import reported

SHARD = 1024
KIND, KEYS, VECTORS = "vectors", "keys.npy", "vectors.npy"
KEY = np.dtype("S16")
OPEN = 256  # mapped shards

Keys = NDArray[np.bytes_]


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

    def missing(self, key_N: Keys) -> NDArray[np.int64]:
        """The places of the first of each key without a vector, in ascending order."""
        _, first = np.unique(key_N, return_index=True)
        return np.sort(first[~np.isin(key_N[first], _keys(self.shards()))])

    def embed(
        self,
        key_N: Keys,
        places: NDArray[np.int64],
        texts: Callable[[NDArray[np.int64]], list[Text]],
        encode: Callable[[Sequence[Text]], Singles],
    ) -> None:
        """Embeds the texts at `places` of `key_N` and stores them, shard by shard. What another
        process has stored in the meantime is left out: cells with common chunks run side by side.
        """
        parts = [places[start : start + SHARD] for start in range(0, len(places), SHARD)]
        seen, stored = {*self.shards()}, set[bytes]()
        for part in reported(parts, f"vectors: shards of {SHARD:,} chunks"):
            new = self.shards(but=seen)
            seen.update(new)
            stored.update(_keys(new).tolist())
            part = part[[key not in stored for key in key_N[part].tolist()]]
            if not len(part):
                continue
            keys = key_N[part]
            name = hashlib.sha256(keys.tobytes()).hexdigest()[:16]
            build = partial(_write, keys=keys, texts=texts, part=part, encode=encode)
            seen.add(cached_directory(KIND, f"{self.model}-{name}", build))

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


def _keys(shards: Iterable[Path]) -> Keys:
    """The keys of the texts in some shards."""
    return np.concatenate([np.zeros(0, KEY), *(np.load(shard / KEYS) for shard in shards)])


def _write(
    folder: Path,
    *,
    keys: Keys,
    texts: Callable[[NDArray[np.int64]], list[Text]],
    part: NDArray[np.int64],
    encode: Callable[[Sequence[Text]], Singles],
) -> None:
    np.save(folder / VECTORS, np.ascontiguousarray(encode(texts(part)), np.float32))
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
