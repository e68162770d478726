"""The candidates of a large split on disk: a run, memory-mapped and read query by query.

100 candidates for each of 367,000 training queries take 3 GB per process as Python dictionaries,
and 0.4 GB per machine here.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rank_core.data.disk.document_store import DocumentStore
from rank_core.data.trec import in_rank_order

# Their bytes are part of a collection's content hash, so another layout would rename its cells.
ROWS, SCORES, OFFSETS = "rows.npy", "scores.npy", "offsets.npy"


class RunStore(Mapping[str, dict[str, float]]):
    """{query_id: {doc_id: score}} in rank order, read on access."""

    def __init__(self, folder: Path, queries: DocumentStore, documents: DocumentStore) -> None:
        self.folder, self.queries, self.documents = folder, queries, documents

    def __reduce__(self) -> tuple[type["RunStore"], tuple[Path, DocumentStore, DocumentStore]]:
        return RunStore, (self.folder, self.queries, self.documents)

    @cached_property
    def _arrays(self) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int64]]:
        rows, scores, offsets = (_map_array(self.folder / name) for name in (ROWS, SCORES, OFFSETS))
        return rows, scores, offsets

    def _part(self, query_id: str) -> slice:
        number, offsets = self.queries.row(query_id), self._arrays[2]
        return slice(int(offsets[number]), int(offsets[number + 1]))

    def rows_of(self, query_id: str) -> NDArray[np.int32]:
        """The documents' rows of a query's candidates, best first."""
        return self._arrays[0][self._part(query_id)]

    def __getitem__(self, query_id: str) -> dict[str, float]:
        rows, scores, _ = self._arrays
        part = self._part(query_id)
        return dict(zip(self.documents.ids_of(rows[part]), scores[part].tolist(), strict=True))

    def __iter__(self) -> Iterator[str]:
        return iter(self.queries)

    def __len__(self) -> int:
        return len(self.queries)


def num_ranked(run: Mapping[str, Mapping[str, float]], query_id: str) -> int:
    """The number of candidates of a query, without reading them."""
    if isinstance(run, RunStore):
        return len(run.rows_of(query_id))
    return len(run.get(query_id, ()))


def write_run_store(
    folder: Path,
    run: Iterable[tuple[str, Mapping[str, float]]],
    query_ids: Iterable[str],
    documents: DocumentStore,
) -> None:
    """Writes the candidates of each query, best first; a query missing from `run` gets none. Every
    candidate must be one of the documents. Memory use is 12 bytes per candidate."""
    arrays = {}
    for query_id, scored in run:
        ranked = in_rank_order(scored)
        rows = documents.rows(list(ranked)).astype(np.int32)
        arrays[query_id] = rows, np.array(list(ranked.values()), dtype=np.float64)
    none = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float64)
    lists = [arrays.get(query_id, none) for query_id in query_ids]
    folder.mkdir()
    np.save(folder / ROWS, np.concatenate([none[0], *(rows for rows, _ in lists)]))
    np.save(folder / SCORES, np.concatenate([none[1], *(scores for _, scores in lists)]))
    ends = np.cumsum([0, *(len(rows) for rows, _ in lists)], dtype=np.int64)
    np.save(folder / OFFSETS, ends)


def _map_array(path: Path) -> NDArray[Any]:
    """A saved array as a view of the file; a plain one, because `memmap` is slow to index."""
    return np.load(path, mmap_mode="r").view(np.ndarray)
