"""A collection's texts on disk, memory-mapped and looked up by doc_id.

Opening takes milliseconds and no memory per document; all processes of a machine share the pages.
A store never changes once written, so it needs no lock.
"""

import hashlib
import shutil
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rank_core.cache import cache_root, cached_directory
from rank_core.data.disk.build import IDS, build_store
from rank_core.data.disk.rows import IdIndex, Rows, num_rows, repeated_id
from rank_core.errors import BadInput

STORE_VERSION = 2
TEXTS, HASH = "texts", "hash.txt"
STORES, SOURCES = f"documents-{STORE_VERSION}", "document-sources"


class DocumentStore(Mapping[str, str]):
    """{doc_id: text}, read-only and in source order. It is pickled as its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[type["DocumentStore"], tuple[Path]]:
        return DocumentStore, (self.folder,)

    @cached_property
    def content_hash(self) -> str:
        """16 hex digits that identify all ids and texts."""
        return (self.folder / HASH).read_text(encoding="ascii")

    # Opened at the first look-up in each process; mappings have no file position to share.
    @cached_property
    def _texts(self) -> Rows:
        return Rows(self.folder, TEXTS, np.uint8, num_rows(self.folder, TEXTS))

    @cached_property
    def _index(self) -> IdIndex:
        ids = Rows(self.folder, IDS, np.uint8, num_rows(self.folder, IDS))
        return IdIndex(self.folder, ids)

    def rows(self, doc_ids: Sequence[str]) -> NDArray[np.int64]:
        """The row numbers of documents, in source order; -1 for unknown ones."""
        return np.array([self._index.find(doc_id) for doc_id in doc_ids], dtype=np.int64)

    def row(self, doc_id: str) -> int:
        """The row number of a document; raises KeyError for unknown ones."""
        return self._index.row(doc_id)

    def ids_of(self, rows: NDArray[np.integer[Any]]) -> list[str]:
        """The doc_ids of row numbers."""
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
        """All documents in source order, read sequentially."""
        return _InOrder(self)

    def in_order(self) -> Iterator[tuple[str, str]]:
        """(doc_id, text) of each document, without look-ups."""
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
    folder: Path,
    documents: Callable[[], Iterable[tuple[str, str]]],
    *,
    source: str,
    total: int | None = None,
    repeated: Callable[[str], object] | None = None,
) -> DocumentStore:
    """Writes (doc_id, text) pairs to a folder that is empty or from a killed writer of the same.
    `source` names them in messages; `repeated` may raise a more detailed error for a duplicate id.

    Half of a surrogate pair, which UTF-8 cannot encode, becomes a question mark.
    """
    build_store(
        folder, TEXTS, np.uint8, _checked(documents, source), _utf8, what=source, total=total
    )
    written = Rows(folder, IDS, np.uint8, num_rows(folder, IDS))
    if not len(written):
        raise BadInput(f"{source} has no documents")
    if (twice := repeated_id(folder, written)) is not None:
        if repeated is not None:
            repeated(twice)
        raise BadInput(f"{source}: duplicate doc_id {twice!r}")
    digest = hashlib.sha256()
    # Computed from the files, so that a resumed build gets the same hash.
    for name, text in zip(written, Rows(folder, TEXTS, np.uint8, len(written)), strict=True):
        digest.update(b"%d %d\n" % (len(name), len(text)))
        digest.update(name.data)
        digest.update(text.data)
    (folder / HASH).write_text(digest.hexdigest()[:16], encoding="ascii")
    return DocumentStore(folder)


def stored_documents(
    key: str,
    documents: Callable[[], Iterable[tuple[str, str]]],
    *,
    source: str,
    repeated: Callable[[str], object] | None = None,
) -> DocumentStore:
    """The store of a source in the state that `key` identifies, built on first use. Sources with
    equal documents share a store. A killed build is resumed by the next call."""

    def build(folder: Path) -> None:
        store = write_document_store(folder, documents, source=source, repeated=repeated)
        _keep(folder, store.content_hash)

    for _ in range(2):
        noted = cached_directory(SOURCES, key, build, resume=True)
        store = cache_root() / STORES / (noted / HASH).read_text(encoding="ascii")
        if store.is_dir():
            return DocumentStore(store)
        shutil.rmtree(noted, ignore_errors=True)  # that part of the cache was deleted
    raise BadInput(
        f"{store} disappears during its construction; is another process clearing the cache?"
    )


def _keep(folder: Path, content_hash: str) -> None:
    """Moves the store to the folder of its hash, and leaves the hash behind."""

    def move(final: Path) -> None:
        for path in list(folder.iterdir()):
            path.rename(final / path.name)

    cached_directory(STORES, content_hash, move)
    for path in list(folder.iterdir()):  # the same texts were already there
        path.unlink()
    (folder / HASH).write_text(content_hash, encoding="ascii")


def _checked(
    documents: Callable[[], Iterable[tuple[str, str]]], source: str
) -> Callable[[], Iterator[tuple[str, str]]]:
    """The same pairs; raises `BadInput` for ids that are not one word."""

    def pairs() -> Iterator[tuple[str, str]]:
        for doc_id, text in documents():
            if doc_id.split() != [doc_id] or "\0" in doc_id:
                raise BadInput(
                    f"{source}: a doc_id must be one word without white space, found {doc_id!r}"
                )
            yield doc_id.encode("utf-8", "replace").decode(), text

    return pairs


def _utf8(texts: list[str]) -> tuple[NDArray[Any], list[int]]:
    rows = [text.encode("utf-8", "replace") for text in texts]
    return np.frombuffer(b"".join(rows), dtype=np.uint8), [*map(len, rows)]
