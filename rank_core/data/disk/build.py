"""The build of a store: rows beside their ids, written in one pass over a source.

Every few seconds all files are flushed and the number of rows in them is written down; a build of
the same source in the same folder resumes after those, and anything behind them is dropped. Memory
holds one batch, whatever the size of the source.
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
CHARACTERS_AT_ONCE = 1 << 22  # a tokenizer holds 100 to 700 bytes a token while it works
SECONDS_BETWEEN_CHECKPOINTS = 20.0

Pair = tuple[str, str]  # id and text
Encode = Callable[[list[str]], tuple[NDArray[Any], list[int]]]
"""Texts as values, one row after the other, and how many belong to each."""


class StoreFiles(NamedTuple):
    """The files in a folder: a row per text in both, in the order of the source."""

    ids: Rows  # their UTF-8
    rows: Rows


def open_store_files(folder: Path, name: str) -> StoreFiles:
    """The files of a build up to its last checkpoint, or of a whole one."""
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
    """Writes the rows of all pairs; `folder` is empty, or left by a killed build of the same.

    `what` names the step in what is said of its progress, `total` the number of pairs if known.
    """
    done = _num_kept(folder, name, dtype, pairs, what)
    if done:
        _say(what, f"a killed build resumes after {done:,}")
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
    """First the rows, then their number, each on the disk before the next step."""
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
    """Number of rows that a killed build left whole; 0 unless they are the first of `pairs`. The
    texts need no check: the folder's name covers them."""
    if not (folder / STATE).exists():
        return 0
    try:
        ids, rows = open_store_files(folder, name)
    except (OSError, ValueError, KeyError) as error:
        _say(what, f"the files of a killed build cannot be read, building anew: {error}")
        return 0
    row_ids = (row_id for row_id, _ in pairs())
    same = all(id_bytes(next(row_ids, "")) == kept.tobytes() for kept in ids)
    if not same or rows.values.dtype != dtype:
        _say(what, "a killed build was of other documents, building anew")
        return 0
    return len(ids)


def _batches(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """Pairs that are encoded together: not too many, not too long."""
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
