"""The one store on disk: a table whose rows have an id each and values of different lengths.

A column is two files: `NAME.DTYPE` has the values of all rows, one after the other, and
`NAME.offsets` where each row begins. The ids are a column as well; beside it are the hashes of all
ids in ascending order, and their rows. Files are memory-mapped: opening takes milliseconds and no
memory per row, and all processes of a machine share the pages. A table never changes once written.
"""

import hashlib
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rank_core.errors import BadInput

HASH_BYTES = 8  # of 3 million ids, a collision in one of four million collections
IDS, HASHES, ORDER = "ids", "index.hashes", "index.rows"
ROWS_AT_ONCE = 512
CHARACTERS_AT_ONCE = 1 << 22  # tokenizers need 100 to 700 bytes of memory per token

Value = TypeVar("Value")


class Rows:
    """A column: an array of values per row, read-only."""

    def __init__(self, folder: Path, name: str) -> None:
        files = [path for path in folder.glob(f"{name}.*") if path.suffix != ".offsets"]
        if not files:
            raise BadInput(f"{folder} lacks its {name}; delete it, and it will be built again")
        self.values = _mapped(files[0], files[0].suffix[1:])
        self.offsets: NDArray[np.int64] = _mapped(folder / f"{name}.offsets", np.int64)
        if not len(self.offsets) or len(self.values) != self.offsets[-1]:
            raise BadInput(f"{files[0]} is incomplete; delete {folder}, and it will be built again")
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


class MappedTable:
    """The ids and columns in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ids = folder, Rows(folder, IDS)
        self._hashes = _mapped(folder / HASHES, np.uint64).data
        self._order = _mapped(folder / ORDER, np.int64).data
        if not len(self._hashes) == len(self._order) == len(self.ids):
            raise BadInput(f"{folder} is incomplete; delete it, and it will be built again")

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[str]:
        return (_decoded(name) for name in self.ids)

    def column(self, name: str) -> Rows:
        """A column by its name."""
        return Rows(self.folder, name)

    def id_of(self, row: int) -> str:
        """The id of a row."""
        return _decoded(self.ids[row])

    def find(self, name: object) -> int:
        """The row of an id; -1 for an unknown one."""
        if isinstance(name, str):
            content = id_bytes(name)
            target = _hash(content)
            place = bisect_left(self._hashes, target)
            while place < len(self._hashes) and self._hashes[place] == target:
                row = self._order[place]
                if self.ids[row].tobytes() == content:  # not merely a collision
                    return row
                place += 1
        return -1

    def repeated_id(self) -> str | None:
        """An id that two rows have; None if all are distinct."""
        hashes = np.asarray(self._hashes)
        for place in np.flatnonzero(hashes[1:] == hashes[:-1]).tolist():
            name, following = map(self.id_of, self._order[place : place + 2])
            if name == following:
                return name
        return None


class TableWriter:
    """Writes a table to an empty folder, which is complete when the context ends."""

    def __init__(self, folder: Path, **columns: DTypeLike) -> None:
        self._folder = folder
        types = {name: np.dtype(dtype) for name, dtype in {IDS: np.uint8, **columns}.items()}
        self._sizes = {name: dtype.itemsize for name, dtype in types.items()}
        self._ends = dict.fromkeys(types, 0)
        self._values = {
            name: (folder / f"{name}.{dtype.name}").open("xb") for name, dtype in types.items()
        }
        self._offsets = {name: (folder / f"{name}.offsets").open("xb") for name in types}
        for file in self._offsets.values():
            file.write(bytes(8))

    def append(self, ids: Sequence[str], **columns: Sequence[Any]) -> None:
        """Adds rows: their ids, and per column an array (or the bytes) of each row."""
        names = [id_bytes(name) for name in ids]
        for column, rows in {IDS: names, **columns}.items():
            content, lengths = b"".join(rows), [*map(len, rows)]
            if len(rows) != len(ids) or len(content) != sum(lengths) * self._sizes[column]:
                raise ValueError(f"{column} must have a row of its own type per id")
            ends = self._ends[column] + np.cumsum(lengths, dtype=np.int64)
            self._values[column].write(content)
            self._offsets[column].write(ends.tobytes())
            self._ends[column] += sum(lengths)

    def __enter__(self) -> "TableWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for file in (*self._values.values(), *self._offsets.values()):
            file.close()
        if kind is not None:
            return
        ids = Rows(self._folder, IDS)
        hashes = np.fromiter((_hash(name.tobytes()) for name in ids), np.uint64, count=len(ids))
        order = np.argsort(hashes, kind="stable")
        (self._folder / HASHES).write_bytes(hashes[order].tobytes())
        (self._folder / ORDER).write_bytes(order.astype(np.int64).tobytes())


class Stored(Mapping[str, Value]):
    """{id: value} of a table, read on access, in the order of its rows. It is pickled as its
    folder, and opened at the first look-up in each process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.folder,)

    @abstractmethod
    def value(self, row: int) -> Value:
        """The value of a row."""

    @cached_property
    def table(self) -> MappedTable:
        """The table in the folder."""
        return MappedTable(self.folder)

    def row(self, name: object) -> int:
        """The row of an id; raises KeyError for an unknown one."""
        row = self.table.find(name)
        if row < 0:
            raise KeyError(name)
        return row

    def rows(self, names: Iterable[str]) -> NDArray[np.int64]:
        """The rows of ids; -1 for unknown ones."""
        return np.array([self.table.find(name) for name in names], dtype=np.int64)

    def ids_of(self, rows: NDArray[np.integer[Any]]) -> list[str]:
        """The ids of rows."""
        return [self.table.id_of(row) for row in rows.tolist()]

    def __getitem__(self, name: str) -> Value:
        return self.value(self.row(name))

    def __contains__(self, name: object) -> bool:
        return self.table.find(name) >= 0

    def __iter__(self) -> Iterator[str]:
        return iter(self.table)

    def __len__(self) -> int:
        return len(self.table)

    def items(self) -> ItemsView[str, Value]:
        """All ids and values, read in order and without look-ups."""
        return _InOrder(self)


class _InOrder(ItemsView[str, Value]):
    def __init__(self, stored: Stored[Value]) -> None:
        super().__init__(stored)
        self._stored = stored

    def __iter__(self) -> Iterator[tuple[str, Value]]:
        rows = range(len(self._stored))
        return zip(self._stored, map(self._stored.value, rows), strict=True)


def batches(pairs: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Batches of ids and texts, limited in number and in characters."""
    batch: list[tuple[str, str]] = []
    size = 0
    for pair in pairs:
        batch.append(pair)
        size += len(pair[1])
        if len(batch) == ROWS_AT_ONCE or size >= CHARACTERS_AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def id_bytes(name: str) -> bytes:
    """A string as unique bytes; half of a surrogate pair is kept."""
    return name.encode("utf-8", "surrogatepass")


def _decoded(name: NDArray[np.uint8]) -> str:
    return name.tobytes().decode("utf-8", "surrogatepass")


def _hash(name: bytes) -> int:
    return int.from_bytes(hashlib.sha256(name).digest()[:HASH_BYTES], "little")


def _mapped(path: Path, dtype: DTypeLike) -> NDArray[Any]:
    """A file as a read-only array; a plain view, because `memmap` is slow to index."""
    size = path.stat().st_size if path.exists() else 0
    if size < np.dtype(dtype).itemsize:
        empty = np.zeros(0, dtype=dtype)  # empty files cannot be mapped
        empty.flags.writeable = False
        return empty
    shape = (size // np.dtype(dtype).itemsize,)  # a copy may end within a value
    return np.memmap(path, dtype=dtype, mode="r", shape=shape).view(np.ndarray)
