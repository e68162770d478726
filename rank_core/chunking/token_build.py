"""Writes a collection's tokens in one pass over its documents; a killed build can be resumed.

Every few seconds all files are flushed and the number of documents in them is noted. Whoever builds
the same documents in the same folder goes on after those; anything behind them is dropped.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from rank_core.data.disk.rows import Rows, RowsWriter, id_bytes, write_id_index
from rank_core.files import atomic_write

STATE, IDS, TOKENS = "store.json", "ids", "tokens"
DOCUMENTS_AT_ONCE = 512
CHARACTERS_AT_ONCE = 1 << 22  # the tokenizer holds 100 to 700 bytes a token while it works
SECONDS_BETWEEN_CHECKPOINTS = 20.0
SECONDS_BEFORE_REPORTS = 30.0
SECONDS_BETWEEN_REPORTS = 10.0

Tokenize = Callable[[list[str]], list[list[int]]]


class TokenFiles(NamedTuple):
    """What is in a folder: one row per document in both, in the order of the documents."""

    ids: Rows  # their UTF-8
    tokens: Rows


class _Batch(NamedTuple):
    doc_ids: list[str]
    texts: list[str]


def open_token_files(folder: Path) -> TokenFiles:
    """What a build has written up to its last checkpoint, or all of it."""
    state = json.loads((folder / STATE).read_text(encoding="ascii"))
    size = state["num_documents"]
    ids = Rows(folder, IDS, np.uint8, size)
    return TokenFiles(ids, Rows(folder, TOKENS, state["dtype"], size))


def build_token_files(
    folder: Path, documents: Mapping[str, str], tokenize: Tokenize, dtype: DTypeLike
) -> None:
    """The tokens of all documents; `folder` is empty, or what a killed build of the same left."""
    done = _num_kept(folder, documents, dtype)
    if done:
        _say(f"a killed build is taken up after {done:,} of {len(documents):,} documents")
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
    """How many documents a killed build left whole; none unless they are the first of `documents`.
    The texts need no look: the folder's name covers them and the tokenizer."""
    if not (folder / STATE).exists():
        return 0
    try:
        ids, tokens = open_token_files(folder)
    except (OSError, ValueError, KeyError) as error:
        _say(f"what a killed build left cannot be read and is built anew: {error}")
        return 0
    doc_ids = iter(documents)
    same = all(id_bytes(next(doc_ids, "")) == name.tobytes() for name in ids)
    if not same or tokens.values.dtype != dtype or len(ids) > len(documents):
        _say("what a killed build left is of other documents and is built anew")
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
    """The same batches; of a long build, a line on stderr from time to time."""
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
            _say(
                f"{done:,} of {total:,} documents, {rate:,.0f} documents/s, "
                f"{left // 60:.0f} min {left % 60:.0f} s left"
            )
    if last > start:
        _say(f"{done:,} documents done after {time.monotonic() - start:,.0f} s")


def _say(line: str) -> None:
    print(f"token store: {line}", file=sys.stderr, flush=True)
