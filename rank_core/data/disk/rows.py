"""Rows of different lengths in two files: the concatenated values, and the rows' offsets. Both
files only grow, so everything covered by a checkpoint stays valid."""

import hashlib
import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rank_core.errors import BadInput

HASH_BYTES = 8  # of 3 million ids, a collision in one of four million collections
HASHES, ROWS = "id_hashes.uint64", "id_rows.int64"


class Rows:
    """The first `num_rows` rows, memory-mapped and read-only."""

    def __init__(self, folder: Path, name: str, dtype: DTypeLike, num_rows: int) -> None:
        self.values = map_file(_values(folder, name), dtype)
        self.offsets: NDArray[np.int64] = map_file(_offsets(folder, name), np.int64)[: num_rows + 1]
        if len(self.offsets) <= num_rows or len(self.values) < self.offsets[-1]:
            raise BadInput(
                f"{_values(folder, name)} has fewer than {num_rows:,} rows; delete {folder}, and "
                "it will be built again"
            )
        # A memoryview gives Python integers, several times as fast as numpy's.
        self._offsets = self.offsets.data

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, row: int) -> NDArray[Any]:
        return self.values[self._offsets[row] : self._offsets[row + 1]]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self[row] for row in range(len(self)))

    def lengths(self) -> NDArray[np.int64]:
        """The number of values in each row."""
        return np.diff(self.offsets)


def num_rows(folder: Path, name: str) -> int:
    """The number of complete rows in a folder."""
    return max(0, _offsets(folder, name).stat().st_size // 8 - 1)


class RowsWriter:
    """Appends rows after the first `num_rows` in a folder; further ones are discarded."""

    def __init__(self, folder: Path, name: str, dtype: DTypeLike, num_rows: int) -> None:
        self._dtype = np.dtype(dtype)
        self._size = int(Rows(folder, name, dtype, num_rows).offsets[-1]) if num_rows else 0
        self._files = (
            _open_after(_values(folder, name), self._size * self._dtype.itemsize),
            _open_after(_offsets(folder, name), (num_rows + 1) * 8 if num_rows else 0),
        )
        if not num_rows:
            self._files[1].write(np.zeros(1, dtype=np.int64).tobytes())

    def append(self, values: NDArray[Any], lengths: Sequence[int]) -> None:
        """Appends rows, given their concatenated values and their lengths."""
        ends = self._size + np.cumsum(lengths, dtype=np.int64)
        if values.dtype != self._dtype or self._size + len(values) != ends[-1]:
            raise ValueError(f"rows must be {sum(lengths)} {self._dtype}, got {values!r}")
        for file, array in zip(self._files, (values, ends), strict=True):
            file.write(array.tobytes())
        self._size = int(ends[-1])

    def flush(self) -> None:
        """Writes everything appended to disk, safe even from a power failure."""
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        """Closes the files."""
        for file in self._files:
            file.close()


def write_file(path: Path, array: NDArray[Any]) -> None:
    """Writes an array's values to a file and syncs it to disk."""
    with path.open("wb") as file:
        file.write(array.tobytes())
        file.flush()
        os.fsync(file.fileno())


def map_file(path: Path, dtype: DTypeLike) -> NDArray[Any]:
    """A file as a read-only array; a plain view, because `memmap` is slow to index."""
    if not path.stat().st_size:
        empty = np.zeros(0, dtype=dtype)  # empty files cannot be mapped
        empty.flags.writeable = False
        return empty
    usable = (
        path.stat().st_size // np.dtype(dtype).itemsize
    )  # a killed writer may leave an incomplete value
    return np.memmap(path, dtype=dtype, mode="r", shape=(usable,)).view(np.ndarray)


def _values(folder: Path, name: str) -> Path:
    return folder / f"{name}.bin"


def _offsets(folder: Path, name: str) -> Path:
    return folder / f"{name}.offsets"


def _open_after(path: Path, size: int) -> BinaryIO:
    file = path.open("ab", buffering=1 << 20)
    file.truncate(size)
    return file


def id_bytes(doc_id: str) -> bytes:
    """A string as unique bytes; half of a surrogate pair is kept."""
    return doc_id.encode("utf-8", "surrogatepass")


def write_id_index(folder: Path, ids: Rows) -> None:
    """Writes the hashes of all ids in ascending order, and their rows."""
    hashes = np.fromiter((_hash(name.tobytes()) for name in ids), dtype=np.uint64, count=len(ids))
    order = np.argsort(hashes, kind="stable")
    write_file(folder / HASHES, hashes[order])
    write_file(folder / ROWS, order.astype(np.int64))


def repeated_id(folder: Path, ids: Rows) -> str | None:
    """An id that two rows have; None if all are distinct."""
    hashes, rows = map_file(folder / HASHES, np.uint64), map_file(folder / ROWS, np.int64)
    for place in np.flatnonzero(hashes[1:] == hashes[:-1]).tolist():
        name, next_name = (ids[row].tobytes() for row in rows[place : place + 2].tolist())
        if name == next_name:
            return _decoded(name)
    return None


class IdIndex:
    """{doc_id: row}, for ids of any length and alphabet."""

    def __init__(self, folder: Path, ids: Rows) -> None:
        self._ids = ids
        self._hashes = map_file(folder / HASHES, np.uint64).data
        self._rows = map_file(folder / ROWS, np.int64).data
        if not len(self._hashes) == len(self._rows) == len(ids):
            raise BadInput(
                f"the index of {folder} is incomplete; delete the folder to build it again"
            )

    def row(self, doc_id: object) -> int:
        """The row of an id; raises KeyError for unknown ones."""
        row = self.find(doc_id)
        if row < 0:
            raise KeyError(doc_id)
        return row

    def find(self, doc_id: object) -> int:
        """The row of an id; -1 for unknown ones."""
        if isinstance(doc_id, str):
            name = id_bytes(doc_id)
            target = _hash(name)
            place = bisect_left(self._hashes, target)
            while place < len(self._hashes) and self._hashes[place] == target:
                row = self._rows[place]
                if self._ids[row].tobytes() == name:  # not merely a collision
                    return row
                place += 1
        return -1

    def id_of(self, row: int) -> str:
        """The id of a row."""
        return _decoded(self._ids[row].tobytes())

    def __iter__(self) -> Iterator[str]:
        return (_decoded(name.tobytes()) for name in self._ids)


def _hash(name: bytes) -> int:
    return int.from_bytes(hashlib.sha256(name).digest()[:HASH_BYTES], "little")


def _decoded(name: bytes) -> str:
    return name.decode("utf-8", "surrogatepass")
