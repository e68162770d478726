"""Rows of different lengths in two files: all values, one row after the other, and their offsets.

Both files only grow, so whatever a checkpoint covers stays valid however the writer ends.
"""

import hashlib
import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rank_core.errors import BadInput

HASH_BYTES = 8  # two of 3 million ids share a hash once in four million collections
HASHES, ROWS = "id_hashes.uint64", "id_rows.int64"


class Rows:
    """The first `num_rows` rows, memory-mapped and read-only."""

    def __init__(self, folder: Path, name: str, dtype: DTypeLike, num_rows: int) -> None:
        self.values = map_file(_values(folder, name), dtype)
        self.offsets: NDArray[np.int64] = map_file(_offsets(folder, name), np.int64)[: num_rows + 1]
        if len(self.offsets) <= num_rows or len(self.values) < self.offsets[-1]:
            raise BadInput(
                f"{_values(folder, name)} must hold {num_rows:,} rows, found fewer; "
                f"delete {folder} to have it built anew"
            )
        # A view gives Python's own integers, several times as fast as the array gives numpy's.
        self._offsets = self.offsets.data

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, row: int) -> NDArray[Any]:
        return self.values[self._offsets[row] : self._offsets[row + 1]]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self[row] for row in range(len(self)))

    def lengths(self) -> NDArray[np.int64]:
        """Values in each row."""
        return np.diff(self.offsets)


def num_rows(folder: Path, name: str) -> int:
    """How many rows a folder holds, all of them written."""
    return max(0, _offsets(folder, name).stat().st_size // 8 - 1)


class RowsWriter:
    """Appends rows after the first `num_rows` that a folder holds; what follows them is dropped."""

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
        """Some rows: all their values, and how many belong to each."""
        ends = self._size + np.cumsum(lengths, dtype=np.int64)
        if values.dtype != self._dtype or self._size + len(values) != ends[-1]:
            raise ValueError(f"rows must be {sum(lengths)} {self._dtype}, got {values!r}")
        for file, array in zip(self._files, (values, ends), strict=True):
            file.write(array.tobytes())
        self._size = int(ends[-1])

    def flush(self) -> None:
        """Everything appended is on the disk when this returns, even if the power fails then."""
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        """No more rows."""
        for file in self._files:
            file.close()


def write_file(path: Path, array: NDArray[Any]) -> None:
    """A file of an array's values, on the disk when this returns."""
    with path.open("wb") as file:
        file.write(array.tobytes())
        file.flush()
        os.fsync(file.fileno())


def map_file(path: Path, dtype: DTypeLike) -> NDArray[Any]:
    """A file as a read-only array; a plain one, because `memmap` is slow to index."""
    if not path.stat().st_size:
        empty = np.zeros(0, dtype=dtype)  # nothing can be mapped
        empty.flags.writeable = False
        return empty
    usable = path.stat().st_size // np.dtype(dtype).itemsize  # a killed writer may leave half a one
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
    """Any string as bytes that no other string has; half a surrogate pair is kept as it is."""
    return doc_id.encode("utf-8", "surrogatepass")


def write_id_index(folder: Path, ids: Rows) -> None:
    """The hashes of all ids in rising order, and the row that each belongs to."""
    hashes = np.fromiter((_hash(name.tobytes()) for name in ids), dtype=np.uint64, count=len(ids))
    order = np.argsort(hashes, kind="stable")
    write_file(folder / HASHES, hashes[order])
    write_file(folder / ROWS, order.astype(np.int64))


def repeated_id(folder: Path, ids: Rows) -> str | None:
    """An id that two rows have; None where every id is its row's own."""
    hashes, rows = map_file(folder / HASHES, np.uint64), map_file(folder / ROWS, np.int64)
    for place in np.flatnonzero(hashes[1:] == hashes[:-1]).tolist():
        name, next_name = (ids[row].tobytes() for row in rows[place : place + 2].tolist())
        if name == next_name:
            return _decoded(name)
    return None


class IdIndex:
    """doc_id -> row, for ids of any length and alphabet."""

    def __init__(self, folder: Path, ids: Rows) -> None:
        self._ids = ids
        self._hashes = map_file(folder / HASHES, np.uint64).data
        self._rows = map_file(folder / ROWS, np.int64).data
        if not len(self._hashes) == len(self._rows) == len(ids):
            raise BadInput(
                f"the index of {folder} must have {len(ids):,} entries; delete the folder"
            )

    def row(self, doc_id: object) -> int:
        """The row of that very id; a KeyError if there is none."""
        row = self.find(doc_id)
        if row < 0:
            raise KeyError(doc_id)
        return row

    def find(self, doc_id: object) -> int:
        """The row of that very id; -1 if there is none."""
        if isinstance(doc_id, str):
            name = id_bytes(doc_id)
            wanted = _hash(name)
            place = bisect_left(self._hashes, wanted)
            while place < len(self._hashes) and self._hashes[place] == wanted:
                row = self._rows[place]
                if self._ids[row].tobytes() == name:  # another id may have the same hash
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
