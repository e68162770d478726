"""A collection in the cache: its splits, memory-mapped and read query by query.

The queries, judgments and candidates of 300,000 training queries take 4 GB per process as Python
dictionaries, and 0.4 GB per machine here. Opening takes constant time.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np

from rank_core.data.disk.document_store import DocumentStore, write_document_store
from rank_core.data.disk.rows import Rows, RowsWriter, num_rows
from rank_core.data.disk.run_store import RunStore, write_run_store
from rank_core.errors import BadInput
from rank_core.records import Qrels, Run, Split

QUERIES, JUDGED, CANDIDATES = "queries", "judged", "candidates"


class Splits(dict[str, Split]):
    """The splits of a collection; access to a missing one raises `BadInput` with their names."""

    def __init__(self, name: str, splits: dict[str, Split]) -> None:
        super().__init__(splits)
        self._name = name

    def __missing__(self, split: str) -> Split:
        raise BadInput(
            f"{self._name} has no {split} split, only {', '.join(self)}; use a collection that has "
            "one, or divide its judgments (`ranksweep split`)"
        )

    def __reduce__(self) -> tuple[type["Splits"], tuple[str, dict[str, Split]]]:
        return Splits, (self._name, dict(self))


class JudgmentStore(Mapping[str, dict[str, int]]):
    """{query_id: {doc_id: grade}}, read on access, excluding the documents in `without`."""

    def __init__(
        self, folder: Path, queries: DocumentStore, without: frozenset[str] = frozenset()
    ) -> None:
        self.folder, self.queries, self.without = folder, queries, without

    def __reduce__(
        self,
    ) -> tuple[type["JudgmentStore"], tuple[Path, DocumentStore, frozenset[str]]]:
        return JudgmentStore, (self.folder, self.queries, self.without)

    @cached_property
    def _rows(self) -> Rows:
        return Rows(self.folder, JUDGED, np.uint8, num_rows(self.folder, JUDGED))

    def __getitem__(self, query_id: str) -> dict[str, int]:
        words = self._rows[self.queries.row(query_id)].tobytes().decode().split()
        judged = zip(words[::2], map(int, words[1::2]), strict=True)
        return {doc_id: grade for doc_id, grade in judged if doc_id not in self.without}

    def __iter__(self) -> Iterator[str]:
        return iter(self.queries)

    def __len__(self) -> int:
        return len(self.queries)


def write_judged_queries(folder: Path, queries: Mapping[str, str], qrels: Qrels) -> None:
    """Writes a split's queries and judgments to its folder."""
    (folder / QUERIES).mkdir(parents=True)
    write_document_store(folder / QUERIES, queries.items, source="queries", total=len(queries))
    writer = RowsWriter(folder, JUDGED, np.uint8, 0)
    for query_id in queries:
        lines = "".join(f"{doc_id} {grade}\n" for doc_id, grade in qrels[query_id].items())
        content = np.frombuffer(lines.encode(), dtype=np.uint8)
        writer.append(content, [len(content)])
    writer.close()


def write_split(
    folder: Path,
    queries: Mapping[str, str],
    qrels: Qrels,
    run: Iterable[tuple[str, Mapping[str, float]]],
    documents: DocumentStore,
) -> None:
    """Writes a split to a new folder; a query missing from `run` has no candidates."""
    write_judged_queries(folder, queries, qrels)
    write_run_store(folder / CANDIDATES, run, queries, documents)


def open_split(
    folder: Path, documents: DocumentStore, without: frozenset[str] = frozenset()
) -> Split:
    """The split in a folder, excluding judgments of the documents in `without`."""
    queries = DocumentStore(folder / QUERIES)
    judged = JudgmentStore(folder, queries, without)
    candidates = RunStore(folder / CANDIDATES, queries, documents)
    # Mappings in place of dictionaries, read on access.
    return Split(queries, cast(Qrels, judged), cast(Run, candidates))
