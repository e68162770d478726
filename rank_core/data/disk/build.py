"""Construction of a store: rows and their ids, written in one pass over a source.

Every few seconds all files are flushed and the number of complete rows is recorded. A killed build
of the same source resumes there and discards what follows. Memory holds one batch.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rank_core.data.disk.rows import Rows, RowsWriter, id_bytes, write_id_index
from rank_core.files import atomic_write
from rank_core.progress import reported

STATE, IDS = "store.json", "ids"
ROWS_AT_ONCE = 512
CHARACTERS_AT_ONCE = 1 << 22  # tokenizers need 100 to 700 bytes of memory per token
SECONDS_BETWEEN_CHECKPOINTS = 20.0

Pair = tuple[str, str]  # id and text
Encode = Callable[[list[str]], tuple[NDArray[Any], list[int]]]
"""From texts to (values of all rows, number of values per row)."""


class StoreFiles(NamedTuple):
    """The files in a folder, with a row per text in source order."""

    ids: Rows  # as UTF-8
    rows: Rows


def open_store_files(folder: Path, name: str) -> StoreFiles:
    """The files of a complete build, or of an unfinished one up to its last checkpoint."""
    state = json.loads((folder / STATE).read_text(encoding="ascii"))
    size = state["num_documents"]
    ids = Rows(folder, IDS, np.uint8, size)
    return StoreFiles(ids, Rows(folder, name, state["dtype"], size))


def build_store(
    folder: Path,
    name: str,
    dtype: DTypeLike,
    pairs: Callable[[], Iterable[Pair]],
    encode: Encode,
    *,
    what: str,
    total: int | None = None,
) -> None:
    """Writes the rows of all pairs to `folder`, which is empty or from a killed build of the same.
    `what` names the step in progress lines; `total` is the number of pairs if known."""
    done = _num_kept(folder, name, dtype, pairs, what)
    if done:
        _say(what, f"resuming a killed build after {done:,}")
    saved = time.monotonic()
    with (
        closing(RowsWriter(folder, IDS, np.uint8, done)) as ids,
        closing(RowsWriter(folder, name, dtype, done)) as rows,
    ):
        left = islice(pairs(), done, None)
        for batch in _batches(reported(left, what, total=total, first=done)):
            names = [id_bytes(row_id) for row_id, _ in batch]
            ids.append(np.frombuffer(b"".join(names), dtype=np.uint8), [*map(len, names)])
            rows.append(*encode([text for _, text in batch]))
            done += len(batch)
            if time.monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS:
                _checkpoint(folder, (ids, rows), done, dtype)
                saved = time.monotonic()
        _checkpoint(folder, (ids, rows), done, dtype)
    write_id_index(folder, open_store_files(folder, name).ids)


def _checkpoint(
    folder: Path, writers: tuple[RowsWriter, RowsWriter], number: int, dtype: DTypeLike
) -> None:
    """Writes the rows, then their number, each synced to disk before the next step."""
    for writer in writers:
        writer.flush()
    state = {"num_documents": number, "dtype": np.dtype(dtype).name}
    with atomic_write(folder / STATE) as new, new.open("w", encoding="ascii") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())


def _num_kept(
    folder: Path, name: str, dtype: DTypeLike, pairs: Callable[[], Iterable[Pair]], what: str
) -> int:
    """The number of complete rows of a killed build; 0 unless they are the first of `pairs`. Texts
    need no check, because the folder's name identifies them."""
    if not (folder / STATE).exists():
        return 0
    try:
        ids, rows = open_store_files(folder, name)
    except (OSError, ValueError, KeyError) as error:
        _say(what, f"a killed build's files cannot be read, starting again: {error}")
        return 0
    row_ids = (row_id for row_id, _ in pairs())
    same = all(id_bytes(next(row_ids, "")) == kept.tobytes() for kept in ids)
    if not same or rows.values.dtype != dtype:
        _say(what, "a killed build had other documents, starting again")
        return 0
    return len(ids)


def _batches(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """Batches of pairs, limited in number and in characters."""
    batch: list[Pair] = []
    size = 0
    for pair in pairs:
        batch.append(pair)
        size += len(pair[1])
        if len(batch) == ROWS_AT_ONCE or size >= CHARACTERS_AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _say(what: str, line: str) -> None:
    print(f"{what}: {line}", file=sys.stderr, flush=True)
