"""The one document store of each source, built once however many processes want it.

A store is named by a hash of its texts; which store belongs to a source is noted under the state
of its files (path, size, time), so that a changed source is read again and an unchanged one never.
"""

import hashlib
import json
import shutil
import sys
from pathlib import Path

from rank_core.cache import cache_root, cached_directory
from rank_core.data.disk.document_store import (
    HASH,
    STORE_VERSION,
    DocumentStore,
    write_document_store,
)
from rank_core.data.ir_datasets.files import FileState, file_states
from rank_core.data.ir_datasets.source import IrSource
from rank_core.errors import BadInput

STORES, SOURCES = f"documents-{STORE_VERSION}", "document-sources"


def open_documents(source: IrSource) -> DocumentStore:
    """All documents of a dataset."""
    source.require("docs")
    states = file_states(source.files("docs"))
    key = state_key([source.documents_id], states)

    def build(folder: Path) -> None:
        store = write_document_store(folder, source.documents(), source=source.documents_id)
        require_unchanged(source, states)
        number, name = len(store), store.content_hash
        _keep(folder, name)
        line = f"documents of {source.documents_id} stored: {number:,}, content {name}"
        print(line, file=sys.stderr, flush=True)

    for _ in range(2):
        noted = cached_directory(SOURCES, key, build)
        store = cache_root() / STORES / (noted / HASH).read_text(encoding="ascii")
        if store.is_dir():
            return DocumentStore(store)
        shutil.rmtree(noted, ignore_errors=True)  # someone emptied that part of the cache
    raise BadInput(f"{store} disappears while it is built; is another process clearing the cache?")


def require_unchanged(source: IrSource, states: list[FileState], *entities: str) -> None:
    """Refuse a source whose files changed while they were read."""
    now = file_states(source.files(*(entities or ("docs",))))
    if now != states:
        changed = sorted({path for path, _, _ in set(now) ^ set(states)})
        raise BadInput(
            f"{source.dataset_id}: files may not change while they are read, "
            f"{changed[0]} did; run again"
        )


def state_key(names: list[str], states: list[FileState]) -> str:
    """16 hex digits that name files in a certain state, read for `names`."""
    import ir_datasets

    text = json.dumps([STORE_VERSION, ir_datasets.__version__, names, states])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _keep(folder: Path, content_hash: str) -> None:
    """Move the store to where its hash says, and leave the hash behind."""

    def move(final: Path) -> None:
        for path in list(folder.iterdir()):
            path.rename(final / path.name)

    cached_directory(STORES, content_hash, move)
    for path in list(folder.iterdir()):  # the same texts were there already
        path.unlink()
    (folder / HASH).write_text(content_hash, encoding="ascii")
