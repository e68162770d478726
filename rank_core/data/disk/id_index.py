"""Which row a doc_id names, found by bisection in mapped files: no table of ids in any process."""

import hashlib
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rank_core.data.disk.rows import Rows, map_file, write_file
from rank_core.errors import BadInput

HASH_BYTES = 8  # two of 3 million ids share a hash once in four million collections
HASHES, ROWS = "id_hashes.uint64", "id_rows.int64"


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
        one, other = (ids[row].tobytes() for row in rows[place : place + 2].tolist())
        if one == other:
            return _decoded(one)
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
