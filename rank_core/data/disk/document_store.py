"""The texts of a large collection on disk, memory-mapped and looked up by doc_id.

Opening costs milliseconds and no memory per document, however many there are: all processes of a
machine read the same pages. A store never changes after it was written, so it needs no lock.
"""

import hashlib
import sys
import time
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rank_core.data.disk.rows import (
    IdIndex,
    Rows,
    RowsWriter,
    num_rows,
    repeated_id,
    write_id_index,
)
from rank_core.errors import BadInput

STORE_VERSION = 2
SECONDS_BETWEEN_REPORTS = 5.0
TEXTS, IDS, HASH = "texts", "ids", "hash.txt"


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

    # Opened at the first look-up in a process; a mapping has no position to share.
    @cached_property
    def _texts(self) -> Rows:
        return Rows(self.folder, TEXTS, np.uint8, num_rows(self.folder, TEXTS))

    @cached_property
    def _index(self) -> IdIndex:
        ids = Rows(self.folder, IDS, np.uint8, num_rows(self.folder, IDS))
        return IdIndex(self.folder, ids)

    def rows(self, doc_ids: Sequence[str]) -> NDArray[np.int64]:
        """The numbers of documents in the order of the source, -1 where there is no such one."""
        return np.array([self._index.find(doc_id) for doc_id in doc_ids], dtype=np.int64)

    def ids_of(self, rows: NDArray[np.integer[Any]]) -> list[str]:
        """The doc_ids of rows."""
        return [self._index.id_of(row) for row in rows.tolist()]

    def __getitem__(self, doc_id: str) -> str:
        return _text(self._texts[self._index.row(doc_id)])

    def __contains__(self, doc_id: object) -> bool:
        return self._index.find(doc_id) >= 0

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._texts)

    def items(self) -> ItemsView[str, str]:
        """All documents in the order of the source, read from the files' start to their end."""
        return _InOrder(self)

    def in_order(self) -> Iterator[tuple[str, str]]:
        """(doc_id, text) of each document, no look-up between them."""
        return zip(self._index, map(_text, self._texts), strict=True)


class _InOrder(ItemsView[str, str]):
    def __init__(self, store: DocumentStore) -> None:
        super().__init__(store)
        self._store = store

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return self._store.in_order()


def _text(row: NDArray[np.uint8]) -> str:
    return row.tobytes().decode()


def write_document_store(
    folder: Path, documents: Iterable[tuple[str, str]], *, source: str
) -> DocumentStore:
    """Write (doc_id, text) pairs into an empty folder in one pass; `source` names them in messages.

    Half of a surrogate pair, which no UTF-8 file can hold, becomes a question mark.
    """
    digest = hashlib.sha256()
    with (
        closing(RowsWriter(folder, IDS, np.uint8, 0)) as ids,
        closing(RowsWriter(folder, TEXTS, np.uint8, 0)) as texts,
    ):
        for doc_id, text in _with_reports(documents, source):
            if doc_id.split() != [doc_id] or "\0" in doc_id:
                raise BadInput(
                    f"{source}: a doc_id must be one word without white space, found {doc_id!r}"
                )
            name, content = doc_id.encode("utf-8", "replace"), text.encode("utf-8", "replace")
            digest.update(b"%d %d\n" % (len(name), len(content)))
            digest.update(name)
            digest.update(content)
            ids.append(np.frombuffer(name, dtype=np.uint8), [len(name)])
            texts.append(np.frombuffer(content, dtype=np.uint8), [len(content)])
    written = Rows(folder, IDS, np.uint8, num_rows(folder, IDS))
    if not len(written):
        raise BadInput(f"{source} must hold at least one document, found none")
    write_id_index(folder, written)
    if (twice := repeated_id(folder, written)) is not None:
        raise BadInput(f"{source}: a doc_id may occur once, found {twice!r} twice")
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
