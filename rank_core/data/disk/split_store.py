"""A collection's splits on disk: a table of queries with their judgments and candidates.

The queries, judgments and candidates of 300,000 training queries take 4 GB per process as Python
dictionaries, and 0.4 GB per machine here. Opening takes constant time.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from rank_core.data.disk.document_store import TEXTS, DocumentStore, TextsHash, utf8
from rank_core.data.disk.table import Rows, Stored, TableWriter
from rank_core.data.trec import in_rank_order
from rank_core.errors import BadInput
from rank_core.records import Qrels, Run, Split

JUDGED, RANKED, SCORES = "judged", "ranked", "scores"


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


class JudgmentStore(Stored[dict[str, int]]):
    """{query_id: {doc_id: grade}}."""

    @cached_property
    def _judged(self) -> Rows:
        return self.table.column(JUDGED)

    def value(self, row: int) -> dict[str, int]:
        """The judgments of a row."""
        words = self._judged[row].tobytes().decode().split()
        return dict(zip(words[::2], map(int, words[1::2]), strict=True))


class RunStore(Stored[dict[str, float]]):
    """{query_id: {doc_id: score}} in rank order."""

    def __init__(self, folder: Path, documents: DocumentStore) -> None:
        super().__init__(folder)
        self.documents = documents

    def __reduce__(self) -> tuple[Any, ...]:
        return RunStore, (self.folder, self.documents)

    @cached_property
    def _columns(self) -> tuple[Rows, Rows]:
        return self.table.column(RANKED), self.table.column(SCORES)

    def rows_of(self, query_id: str) -> NDArray[np.int32]:
        """The documents' rows of a query's candidates, best first."""
        return self._columns[0][self.row(query_id)]

    def value(self, row: int) -> dict[str, float]:
        """The candidates of a row."""
        ranked, scores = (column[row] for column in self._columns)
        return dict(zip(self.documents.ids_of(ranked), scores.tolist(), strict=True))


def num_ranked(run: Mapping[str, Mapping[str, float]], query_id: str) -> int:
    """The number of candidates of a query, without reading them."""
    if isinstance(run, RunStore):
        return len(run.rows_of(query_id))
    return len(run.get(query_id, ()))


def ranked_rows(
    scored: Mapping[str, float], documents: DocumentStore
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """The documents' rows and scores of a query's candidates, best first."""
    ranked = in_rank_order(scored)
    rows = documents.rows(ranked).astype(np.int32)
    return rows, np.fromiter(ranked.values(), dtype=np.float64, count=len(ranked))


def write_split(
    folder: Path,
    queries: Mapping[str, str],
    qrels: Qrels,
    run: Iterable[tuple[str, Mapping[str, float]]],
    documents: DocumentStore,
) -> None:
    """Writes a split to a new folder; a query missing from `run` has no candidates. Every candidate
    must be one of the documents. Memory use is 12 bytes per candidate."""
    candidates = {query_id: ranked_rows(scored, documents) for query_id, scored in run}
    none = ranked_rows({}, documents)
    digest = TextsHash()
    folder.mkdir(parents=True)
    types = {TEXTS: np.uint8, JUDGED: np.uint8, RANKED: np.int32, SCORES: np.float64}
    with TableWriter(folder, **types) as table:
        for query_id, text in queries.items():
            judged = "".join(f"{doc_id} {grade}\n" for doc_id, grade in qrels[query_id].items())
            rows, scores = candidates.get(query_id, none)
            row = {TEXTS: utf8(text), JUDGED: judged.encode(), RANKED: rows, SCORES: scores}
            table.append([query_id], **{name: [values] for name, values in row.items()})
            digest.add(query_id, utf8(text))
    digest.write(folder)


def open_split(folder: Path, documents: DocumentStore) -> Split:
    """The split in a folder: mappings in place of dictionaries, read on access."""
    judged, candidates = JudgmentStore(folder), RunStore(folder, documents)
    return Split(DocumentStore(folder), cast(Qrels, judged), cast(Run, candidates))
