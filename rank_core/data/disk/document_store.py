"""A collection's texts on disk, looked up by doc_id."""

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path

import numpy as np

from rank_core.cache import cache_root, cached_directory
from rank_core.data.disk.table import MappedTable, Rows, Stored, TableWriter, batches, id_bytes
from rank_core.errors import BadInput
from rank_core.progress import reported

STORE_VERSION = 3
TEXTS, HASH = "texts", "hash.txt"
STORES, SOURCES = f"documents-{STORE_VERSION}", "document-sources"


class DocumentStore(Stored[str]):
    """{doc_id: text}, read-only and in source order."""

    @cached_property
    def content_hash(self) -> str:
        """16 hex digits that identify all ids and texts."""
        return (self.folder / HASH).read_text(encoding="ascii")

    @cached_property
    def _texts(self) -> Rows:
        return self.table.column(TEXTS)

    def value(self, row: int) -> str:
        """The text of a row."""
        return self._texts[row].tobytes().decode()


class TextsHash:
    """The content hash of ids and texts, added one after the other."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(self, name: str, text: bytes) -> None:
        """Adds a text as UTF-8."""
        content = id_bytes(name)
        self._digest.update(b"%d %d\n" % (len(content), len(text)) + content + text)

    def write(self, folder: Path) -> str:
        """Writes 16 hex digits to the folder's `HASH`, and returns them."""
        (folder / HASH).write_text(self._digest.hexdigest()[:16], encoding="ascii")
        return self._digest.hexdigest()[:16]


def utf8(text: str) -> bytes:
    """A text in UTF-8; half of a surrogate pair becomes a question mark."""
    return text.encode("utf-8", "replace")


def write_document_store(
    folder: Path,
    documents: Iterable[tuple[str, str]],
    *,
    source: str,
    repeated: Callable[[str], object] | None = None,
) -> DocumentStore:
    """Writes (doc_id, text) pairs to an empty folder. `source` names them in messages; `repeated`
    may raise a more detailed error for a duplicate id."""
    digest = TextsHash()
    with TableWriter(folder, **{TEXTS: np.uint8}) as table:
        for batch in batches(reported(_checked(documents, source), source)):
            names, texts = [name for name, _ in batch], [utf8(text) for _, text in batch]
            table.append(names, **{TEXTS: texts})
            for name, text in zip(names, texts, strict=True):
                digest.add(name, text)
    digest.write(folder)
    written = MappedTable(folder)
    if not len(written):
        raise BadInput(f"{source} has no documents")
    if (twice := written.repeated_id()) is not None:
        if repeated is not None:
            repeated(twice)
        raise BadInput(f"{source}: duplicate doc_id {twice!r}")
    return DocumentStore(folder)


def stored_documents(
    key: str,
    documents: Callable[[], Iterable[tuple[str, str]]],
    *,
    source: str,
    repeated: Callable[[str], object] | None = None,
) -> DocumentStore:
    """The store of a source in the state that `key` identifies, built on first use. Sources with
    equal documents share a store."""

    def build(folder: Path) -> None:
        new = folder / "new"
        new.mkdir()
        store = write_document_store(new, documents(), source=source, repeated=repeated)
        cached_directory(STORES, store.content_hash, lambda final: _move(new, final))
        (folder / HASH).write_text(store.content_hash, encoding="ascii")
        shutil.rmtree(new)

    for _ in range(2):
        noted = cached_directory(SOURCES, key, build)
        store = cache_root() / STORES / (noted / HASH).read_text(encoding="ascii")
        if store.is_dir():
            return DocumentStore(store)
        shutil.rmtree(noted, ignore_errors=True)  # that part of the cache was deleted
    raise BadInput(f"{store} disappears: is another process clearing the cache?")


def _move(folder: Path, final: Path) -> None:
    for path in folder.iterdir():
        path.rename(final / path.name)


def _checked(documents: Iterable[tuple[str, str]], source: str) -> Iterator[tuple[str, str]]:
    """The same pairs; raises `BadInput` for ids that are not one word."""
    for doc_id, text in documents:
        if doc_id.split() != [doc_id] or "\0" in doc_id:
            raise BadInput(
                f"{source}: a doc_id must be one word without white space, found {doc_id!r}"
            )
        yield doc_id.encode("utf-8", "replace").decode(), text
