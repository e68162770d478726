"""The candidates of a large split on disk: a run, memory-mapped and read query by query.

The 100 candidates of 367,000 training queries are 3 GB as Python dictionaries, in every process,
and 0.4 GB here, once per machine.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rank_core.data.disk.document_store import DocumentStore
from rank_core.data.trec import in_rank_order
from rank_core.records import Run

# Their bytes are in the content hash of a collection, so another layout would rename its cells.
ROWS, SCORES, OFFSETS = "rows.npy", "scores.npy", "offsets.npy"


class RunStore(Mapping[str, dict[str, float]]):
    """query_id -> {doc_id: score} in rank order, each dictionary made when it is asked for."""

    def __init__(self, folder: Path, query_ids: tuple[str, ...], documents: DocumentStore) -> None:
        self.folder, self.documents, self.query_ids = folder, documents, query_ids

    def __reduce__(self) -> tuple[type["RunStore"], tuple[Path, tuple[str, ...], DocumentStore]]:
        return RunStore, (self.folder, self.query_ids, self.documents)

    @cached_property
    def _number(self) -> dict[str, int]:
        return {query_id: number for number, query_id in enumerate(self.query_ids)}

    @cached_property
    def _arrays(self) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int64]]:
        rows, scores, offsets = (_map_array(self.folder / name) for name in (ROWS, SCORES, OFFSETS))
        return rows, scores, offsets

    def __getitem__(self, query_id: str) -> dict[str, float]:
        rows, scores, offsets = self._arrays
        number = self._number[query_id]
        part = slice(offsets[number], offsets[number + 1])
        return dict(zip(self.documents.ids_of(rows[part]), scores[part].tolist(), strict=True))

    def num_ranked(self, query_id: str) -> int:
        """Number of candidates of a query."""
        number, offsets = self._number[query_id], self._arrays[2]
        return int(offsets[number + 1] - offsets[number])

    def __iter__(self) -> Iterator[str]:
        return iter(self.query_ids)

    def __len__(self) -> int:
        return len(self.query_ids)


def num_ranked(run: Mapping[str, Mapping[str, float]], query_id: str) -> int:
    """Number of candidates of a query, none of which is made."""
    if isinstance(run, RunStore):
        return run.num_ranked(query_id)
    return len(run.get(query_id, ()))


def write_run_store(folder: Path, run: Run, query_ids: list[str], documents: DocumentStore) -> None:
    """Write the candidates of each query, best first; a query that `run` lacks gets none.

    Every candidate must be one of the documents.
    """
    rows: list[NDArray[np.int32]] = [np.zeros(0, dtype=np.int32)]
    scores: list[NDArray[np.float64]] = [np.zeros(0, dtype=np.float64)]
    offsets = [0]
    for query_id in query_ids:
        ranked = in_rank_order(run.get(query_id, {}))
        rows.append(documents.rows(list(ranked)).astype(np.int32))
        scores.append(np.array(list(ranked.values()), dtype=np.float64))
        offsets.append(offsets[-1] + len(ranked))
    folder.mkdir()
    np.save(folder / ROWS, np.concatenate(rows))
    np.save(folder / SCORES, np.concatenate(scores))
    np.save(folder / OFFSETS, np.asarray(offsets, dtype=np.int64))


def _map_array(path: Path) -> NDArray[Any]:
    """A saved array as a view of the file; a plain one, since `memmap` is slow to index."""
    array: NDArray[Any] = np.load(path, mmap_mode="r").view(np.ndarray)
    return array
