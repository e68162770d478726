"""A collection's documents as model tokens, tokenised once and memory-mapped by every trial.

Opening costs milliseconds and no memory per document: all processes of a machine read the same
pages. Token ids below 65,536 take two bytes on disk, which lets twice as many stay in memory.

A store is written in one pass over the documents. Every few seconds all files are flushed and the
number of documents in them is written down; a build of the same documents in the same folder
resumes after those, and anything behind them is dropped.
"""

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rank_core.cache import cached_directory
from rank_core.data.disk.rows import IdIndex, Rows, RowsWriter, id_bytes, write_id_index
from rank_core.files import atomic_write

STATE, IDS, TOKENS = "store.json", "ids", "tokens"
DOCUMENTS_AT_ONCE = 512
CHARACTERS_AT_ONCE = 1 << 22  # the tokenizer holds 100 to 700 bytes a token while it works
SECONDS_BETWEEN_CHECKPOINTS = 20.0
SECONDS_BEFORE_REPORTS = 30.0
SECONDS_BETWEEN_REPORTS = 10.0

Tokenize = Callable[[list[str]], list[list[int]]]


class TokenFiles(NamedTuple):
    """The files in a folder: one row per document in both, in the order of the documents."""

    ids: Rows  # their UTF-8
    tokens: Rows


class _Batch(NamedTuple):
    doc_ids: list[str]
    texts: list[str]


def open_token_files(folder: Path) -> TokenFiles:
    """The files of a build up to its last checkpoint, or of a whole one."""
    state = json.loads((folder / STATE).read_text(encoding="ascii"))
    size = state["num_documents"]
    ids = Rows(folder, IDS, np.uint8, size)
    return TokenFiles(ids, Rows(folder, TOKENS, state["dtype"], size))


def build_token_files(
    folder: Path, documents: Mapping[str, str], tokenize: Tokenize, dtype: DTypeLike
) -> None:
    """Writes the tokens of all documents; `folder` is empty, or left by a killed build of the
    same."""
    done = _num_kept(folder, documents, dtype)
    if done:
        _report(f"a killed build resumes after {done:,} of {len(documents):,} documents")
    saved = time.monotonic()
    with (
        closing(RowsWriter(folder, IDS, np.uint8, done)) as ids,
        closing(RowsWriter(folder, TOKENS, dtype, done)) as tokens,
    ):
        batches = _batches(islice(documents.items(), done, None))
        for batch in _with_reports(batches, done, len(documents)):
            names = [id_bytes(doc_id) for doc_id in batch.doc_ids]
            ids.append(np.frombuffer(b"".join(names), dtype=np.uint8), [*map(len, names)])
            rows = tokenize(batch.texts)
            # An id that does not fit the type is an OverflowError here, never another token.
            flat = np.fromiter(chain.from_iterable(rows), dtype=np.dtype(dtype))
            tokens.append(flat, [*map(len, rows)])
            done += len(batch.doc_ids)
            if time.monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS:
                _checkpoint(folder, (ids, tokens), done, dtype)
                saved = time.monotonic()
        _checkpoint(folder, (ids, tokens), done, dtype)
    write_id_index(folder, open_token_files(folder).ids)


def _checkpoint(
    folder: Path, writers: tuple[RowsWriter, RowsWriter], num_documents: int, dtype: DTypeLike
) -> None:
    """First the rows, then their number, each on the disk before the next step."""
    for writer in writers:
        writer.flush()
    state = {"num_documents": num_documents, "dtype": np.dtype(dtype).name}
    with atomic_write(folder / STATE) as new, new.open("w", encoding="ascii") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())


def _num_kept(folder: Path, documents: Mapping[str, str], dtype: DTypeLike) -> int:
    """Number of documents that a killed build left whole; 0 unless they are the first of
    `documents`. The texts need no check: the folder's name covers them and the tokenizer."""
    if not (folder / STATE).exists():
        return 0
    try:
        ids, tokens = open_token_files(folder)
    except (OSError, ValueError, KeyError) as error:
        _report(f"the files of a killed build cannot be read, building anew: {error}")
        return 0
    doc_ids = iter(documents)
    same = all(id_bytes(next(doc_ids, "")) == name.tobytes() for name in ids)
    if not same or tokens.values.dtype != dtype or len(ids) > len(documents):
        _report("a killed build was of other documents, building anew")
        return 0
    return len(ids)


def _batches(pairs: Iterable[tuple[str, str]]) -> Iterator[_Batch]:
    """Documents that are tokenised together: not too many, not too long."""
    batch, size = _Batch([], []), 0
    for doc_id, text in pairs:
        batch.doc_ids.append(doc_id)
        batch.texts.append(text)
        size += len(text)
        if len(batch.texts) == DOCUMENTS_AT_ONCE or size >= CHARACTERS_AT_ONCE:
            yield batch
            batch, size = _Batch([], []), 0
    if batch.texts:
        yield batch


def _with_reports(batches: Iterable[_Batch], first: int, total: int) -> Iterator[_Batch]:
    """The batches; a long build reports its progress on stderr."""
    start = last = time.monotonic()
    done = first
    for batch in batches:
        yield batch
        done += len(batch.doc_ids)
        now = time.monotonic()
        if now - start > SECONDS_BEFORE_REPORTS and now - last > SECONDS_BETWEEN_REPORTS:
            last = now
            rate = (done - first) / (now - start)
            left = (total - done) / rate
            _report(
                f"{done:,} of {total:,} documents, {rate:,.0f} documents/s, "
                f"{left // 60:.0f} min {left % 60:.0f} s left"
            )
    if last > start:
        _report(f"{done:,} documents done after {time.monotonic() - start:,.0f} s")


def _report(line: str) -> None:
    print(f"token store: {line}", file=sys.stderr, flush=True)


STORE_VERSION = 2


class TokenStore(Mapping[str, NDArray[np.int32]]):
    """doc_id -> int32 token ids of the whole document, without special tokens. Read-only; in the
    order of the collection; pickles as its folder alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ids, self._tokens = open_token_files(folder)
        self._index = IdIndex(folder, ids)

    def __reduce__(self) -> tuple[type["TokenStore"], tuple[Path]]:
        return TokenStore, (self.folder,)

    def __getitem__(self, doc_id: str) -> NDArray[np.int32]:
        tokens = self._tokens[self._index.row(doc_id)]
        if tokens.dtype != np.int32:
            tokens = tokens.astype(np.int32)
            tokens.flags.writeable = False  # a mapped one cannot be written either
        return tokens

    def __contains__(self, doc_id: object) -> bool:
        try:
            self._index.row(doc_id)
        except KeyError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._tokens)

    def ids_of(self, rows: NDArray[np.integer[Any]]) -> list[str]:
        """The doc_ids of rows, which count in store order."""
        return [self._index.id_of(row) for row in rows.tolist()]

    def lengths(self) -> NDArray[np.int64]:
        """Tokens of every document, in store order."""
        return self._tokens.lengths()


def open_token_store(
    documents: Mapping[str, str], *, content_hash: str, tokenizer: Any
) -> TokenStore:
    """The token store of `documents`, built on first use; `content_hash` names their contents.

    A killed build resumes when the same store is opened again.
    """
    text = json.dumps([STORE_VERSION, content_hash, tokenizer_hash(tokenizer)])
    key = hashlib.sha256(text.encode()).hexdigest()[:16]

    def build(folder: Path) -> None:
        build_token_files(
            folder, documents, partial(tokenize, tokenizer), _smallest_type(tokenizer)
        )

    return TokenStore(cached_directory("tokens", key, build, resume=True))


def tokenizer_hash(tokenizer: Any) -> str:
    """16 hex digits that name the tokenizer's behaviour."""
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    # We never truncate or pad here, whatever limits the tokenizer's files bring along.
    del state["truncation"], state["padding"]
    return hashlib.sha256(json.dumps(state).encode()).hexdigest()[:16]


def tokenize(tokenizer: Any, texts: list[str]) -> list[list[int]]:
    """Token ids of each text, whole, without special tokens."""
    ids: list[list[int]] = tokenizer(
        texts,
        add_special_tokens=False,
        truncation=False,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,
    )["input_ids"]
    return ids


def _smallest_type(tokenizer: Any) -> DTypeLike:
    """The type that holds every id of the vocabulary; its ids may have gaps."""
    largest = max(tokenizer.get_vocab().values(), default=0)
    return np.uint16 if largest <= np.iinfo(np.uint16).max else np.int32
