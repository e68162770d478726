"""The texts of a large collection on disk, memory-mapped and looked up by doc_id.

Opening costs milliseconds and no memory per document, however many there are: all processes of a
machine read the same pages. A store never changes after it was written, so it needs no lock.
"""

import hashlib
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rank_core.errors import BadInput

STORE_VERSION = 1
SECONDS_BETWEEN_REPORTS = 5.0
TEXTS, IDS, OFFSETS, ORDER, HASH = "texts.bin", "ids.npy", "offsets.npy", "order.npy", "hash.txt"


class _Arrays(NamedTuple):
    texts: NDArray[np.uint8]  # UTF-8 of all texts, one after the other
    ids: NDArray[np.bytes_]  # UTF-8, padded to one width, in the order of the source
    offsets: NDArray[np.int64]  # text i is texts[offsets[i] : offsets[i + 1]]
    order: NDArray[np.int64]  # ids[order] is sorted


class DocumentStore(Mapping[str, str]):
    """doc_id -> text, in the order of the source. Read-only; pickles as its folder alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[type["DocumentStore"], tuple[Path]]:
        return DocumentStore, (self.folder,)

    @cached_property
    def content_hash(self) -> str:
        """16 hex digits that name all ids and texts."""
        return (self.folder / HASH).read_text(encoding="ascii")

    @cached_property
    def _arrays(self) -> _Arrays:
        """Opened at the first look-up in a process; a mapping has no position to share."""
        path = self.folder / TEXTS
        texts: NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)
        if path.stat().st_size:
            texts = np.memmap(path, dtype=np.uint8, mode="r").view(np.ndarray)
        return _Arrays(texts, *(map_array(self.folder / name) for name in (IDS, OFFSETS, ORDER)))

    def rows(self, doc_ids: Sequence[str]) -> NDArray[np.int64]:
        """The numbers of documents in the order of the source, -1 where there is no such one."""
        ids, order = self._arrays.ids, self._arrays.order
        names = [doc_id.encode("utf-8", "replace") for doc_id in doc_ids]
        # An array cuts a name to its width and drops zeros at its end: that may be another's name.
        width = ids.dtype.itemsize
        fits = np.array([len(name) <= width and b"\0" not in name for name in names], dtype=bool)
        wanted = np.array(names, dtype=ids.dtype)
        places = np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)
        rows = order[places]
        return np.where(fits & (ids[rows] == wanted), rows, -1)

    def ids_of(self, rows: NDArray[np.integer[Any]]) -> list[str]:
        """The doc_ids of rows."""
        return [name.decode() for name in self._arrays.ids[rows].tolist()]

    def _row(self, doc_id: object) -> int:
        row = int(self.rows([doc_id])[0]) if isinstance(doc_id, str) else -1
        if row < 0:
            raise KeyError(doc_id)
        return row

    def __getitem__(self, doc_id: str) -> str:
        row = self._row(doc_id)
        start, end = self._arrays.offsets[row : row + 2]
        return self._arrays.texts[start:end].tobytes().decode()

    def __contains__(self, doc_id: object) -> bool:
        return isinstance(doc_id, str) and int(self.rows([doc_id])[0]) >= 0

    def __iter__(self) -> Iterator[str]:
        ids = self._arrays.ids
        for start in range(0, len(ids), 4096):
            yield from (name.decode() for name in ids[start : start + 4096].tolist())

    def __len__(self) -> int:
        return len(self._arrays.ids)


def map_array(path: Path) -> NDArray[Any]:
    """A saved array as a view of the file; a plain one, since `memmap` is slow to index."""
    array: NDArray[Any] = np.load(path, mmap_mode="r").view(np.ndarray)
    return array


def write_document_store(
    folder: Path, documents: Iterable[tuple[str, str]], *, source: str
) -> DocumentStore:
    """Write (doc_id, text) pairs into an empty folder in one pass; `source` names them in messages.

    Half of a surrogate pair, which no UTF-8 file can hold, becomes a question mark.
    """
    ids: list[bytes] = []
    offsets = [0]
    digest = hashlib.sha256()
    with (folder / TEXTS).open("wb", buffering=1 << 20) as file:
        for doc_id, text in _with_reports(documents, source):
            if doc_id.split() != [doc_id] or "\0" in doc_id:
                raise BadInput(
                    f"{source}: a doc_id must be one word without white space, found {doc_id!r}"
                )
            name, content = doc_id.encode("utf-8", "replace"), text.encode("utf-8", "replace")
            digest.update(b"%d %d\n" % (len(name), len(content)))
            digest.update(name)
            digest.update(content)
            file.write(content)
            ids.append(name)
            offsets.append(offsets[-1] + len(content))
    if not ids:
        raise BadInput(f"{source} must hold at least one document, found none")
    names = np.array(ids)
    order = np.argsort(names, kind="stable")
    repeated = np.flatnonzero(names[order[1:]] == names[order[:-1]])
    if len(repeated):
        raise BadInput(
            f"{source}: a doc_id may occur once, found {names[order[repeated[0]]].decode()!r} twice"
        )
    np.save(folder / IDS, names)
    np.save(folder / OFFSETS, np.asarray(offsets, dtype=np.int64))
    np.save(folder / ORDER, order.astype(np.int64))
    (folder / HASH).write_text(digest.hexdigest()[:16], encoding="ascii")
    return DocumentStore(folder)


def _with_reports(documents: Iterable[tuple[str, str]], source: str) -> Iterator[tuple[str, str]]:
    """The same pairs, with a line on stderr every few seconds."""
    last = time.monotonic()
    for number, pair in enumerate(documents):
        yield pair
        if not number % 256 and time.monotonic() - last > SECONDS_BETWEEN_REPORTS:
            last = time.monotonic()
            print(f"{source}: {number + 1:,} documents read", file=sys.stderr, flush=True)
