"""The files of a named collection's splits.

Queries without text or relevant documents are excluded, because measures are undefined for them.
Candidates are from the user's run file, else from the dataset's ranked list, else from BM25 over
all documents.
"""

import hashlib
import io
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rank_core import first_stage
from rank_core.data.disk.document_store import HASH, DocumentStore, write_document_store
from rank_core.data.disk.split_store import ranked_rows, write_split
from rank_core.data.ir_datasets.source import IrSource
from rank_core.data.named import DatasetPart, Recipe
from rank_core.data.trec import read_run
from rank_core.errors import BadInput
from rank_core.records import Qrels, Run

DEPTH = 1000  # maximum number of candidates per query
OWN_DOCUMENTS = "documents"


class _Judged(NamedTuple):
    queries: dict[str, str]
    qrels: Qrels


def file_name(name: str) -> str:
    """A collection's name as the name of a folder."""
    return name.replace("/", "_").replace(":", "_")


def run_file(name: str, split: str) -> Path | None:
    """The user's own run file for a split, if it exists."""
    return next((path for path in _run_files(name, split) if path.exists()), None)


def build(folder: Path, name: str, recipe: Recipe, shared: DocumentStore | None) -> None:
    """Writes all splits of a recipe, and its documents without a `shared` store."""
    judged = {split: _judged(name, split, parts) for split, parts in recipe.splits.items()}
    runs = {
        split: run
        for split, parts in recipe.splits.items()
        if (run := _given_run(name, split, parts, judged[split].queries)) is not None
    }
    documents = shared or _ranked_documents(folder / OWN_DOCUMENTS, name, recipe, judged, runs)
    without = {split: of_split for split, of_split in judged.items() if split not in runs}
    runs |= _bm25_runs(documents, {split: own.queries for split, own in without.items()})
    contents: dict[str, bytes] = {}
    for split, (queries, qrels) in judged.items():
        unknown = _absent(
            (doc_id for ranked in runs[split].values() for doc_id in ranked), documents
        )
        if unknown:
            raise BadInput(
                f"{name}, candidates of {split}: {len(unknown):,} documents are not in the "
                f"collection, such as {', '.join(unknown[:3])}"
            )
        absent = _absent(_relevant(qrels), documents)
        if absent:
            _say(f"{name}, {split}: {len(absent)} relevant documents are missing")
        for file, content in _contents(queries, qrels, absent, runs[split], documents):
            contents[f"{split}/{file}"] = content
        # Measures need missing relevant documents; training could not read them.
        gone = set(absent) if split == "train" else set()
        kept = {q: {d: grade for d, grade in qrels[q].items() if d not in gone} for q in queries}
        write_split(folder / split, queries, kept, runs[split].items(), documents)
    digest = hashlib.sha256(documents.content_hash.encode())
    for file in sorted(contents, key=Path):
        digest.update(f"{file}\n{len(contents[file])}\n".encode() + contents[file])
    (folder / HASH).write_text(digest.hexdigest()[:16], encoding="ascii")


def _contents(
    queries: Mapping[str, str],
    qrels: Qrels,
    absent: Iterable[str],
    run: Run,
    documents: DocumentStore,
) -> Iterator[tuple[str, bytes]]:
    """(file, bytes) of a split as first stored, of which the content hash is made."""
    judged = [(q, d, grade) for q, of_query in qrels.items() for d, grade in of_query.items()]
    yield "queries.tsv", _lines(f"{q}\t{' '.join(text.split())}" for q, text in queries.items())
    yield "qrels.trec", _lines(f"{q} 0 {d} {grade}" for q, d, grade in judged)
    yield "absent.txt", _lines(absent)
    lists = [ranked_rows(run.get(query_id, {}), documents) for query_id in queries]
    ends = np.cumsum([0, *(len(rows) for rows, _ in lists)], dtype=np.int64)
    yield "candidates/rows.npy", _saved(np.concatenate([rows for rows, _ in lists]))
    yield "candidates/scores.npy", _saved(np.concatenate([scores for _, scores in lists]))
    yield "candidates/offsets.npy", _saved(ends)


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _saved(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _judged(name: str, split: str, parts: tuple[DatasetPart, ...]) -> _Judged:
    queries: dict[str, str] = {}
    qrels: Qrels = {}
    excluded: list[str] = []
    for part in parts:
        source = IrSource(part.dataset_id)
        judgments = source.qrels()
        for query_id, text in source.queries(part.query_field).items():
            if query_id not in judgments:
                continue
            long_id, relevance = f"{part.prefix}{query_id}", judgments[query_id]
            if long_id in queries:
                raise BadInput(f"{name}, {split}: two parts have query {long_id!r}")
            if not text or max(relevance.values()) <= 0:
                excluded.append(long_id)
                continue
            queries[long_id], qrels[long_id] = text, relevance
    if excluded:
        _say(
            f"{name}, {split}: {len(excluded)} judged queries without text or a relevant document "
            f"are excluded: {', '.join(excluded[:5])}"
        )
    if not queries:
        ids = ", ".join(part.dataset_id for part in parts)
        raise BadInput(f"{ids}: no query has a relevant document")
    return _Judged(queries, qrels)


def _given_run(
    name: str, split: str, parts: tuple[DatasetPart, ...], queries: Mapping[str, str]
) -> Run | None:
    """The candidates from a run file or the dataset; None if there are none."""
    if (path := run_file(name, split)) is not None:
        run = read_run(path)
        if not queries.keys() & run.keys():
            raise BadInput(f"{path} has none of the queries of {name}")
        return {q: dict(list(run.get(q, {}).items())[:DEPTH]) for q in queries}
    run = {}
    for part in parts:
        if not part.ranked_ids:
            return None
        for ranked_id in part.ranked_ids:
            source = IrSource(ranked_id)
            ranked = source.candidates(DEPTH) if source.has("scoreddocs") else None
            if ranked is None:
                return None
            run |= {f"{part.prefix}{query_id}": scores for query_id, scores in ranked.items()}
    return {query_id: run.get(query_id, {}) for query_id in queries}


def _bm25_runs(
    documents: DocumentStore, queries: Mapping[str, Mapping[str, str]]
) -> dict[str, Run]:
    """BM25 over all documents for splits without candidates, with one index for all."""
    if not queries:
        return {}
    together = {
        f"{split} {query_id}": text
        for split, texts in queries.items()
        for query_id, text in texts.items()
    }
    _say(f"BM25 for {len(together):,} queries over {len(documents):,} documents")
    run = first_stage.Bm25Index(documents).run(together, depth=DEPTH)
    return {
        split: {query_id: run[f"{split} {query_id}"] for query_id in texts}
        for split, texts in queries.items()
    }


def _ranked_documents(
    folder: Path, name: str, recipe: Recipe, judged: Mapping[str, _Judged], runs: Mapping[str, Run]
) -> DocumentStore:
    """The ranked or relevant documents, of a collection too large to store."""
    for split in recipe.splits:
        if split not in runs:
            raise BadInput(
                f"{name} is too large for our BM25; put a TREC run for its {split} queries at "
                f"{_run_files(name, split)[0]} (or .gz)"
            )
    source = IrSource(recipe.parts[0].dataset_id)
    wanted = {doc_id for run in runs.values() for ranked in run.values() for doc_id in ranked}
    wanted |= {doc_id for of_split in judged.values() for doc_id in _relevant(of_split.qrels)}
    folder.mkdir()
    return write_document_store(folder, source.some_documents(wanted), source=source.documents_id)


def _run_files(name: str, split: str) -> list[Path]:
    import ir_datasets

    folder = Path(ir_datasets.util.home_path()) / "runs" / file_name(name)
    return [folder / f"{split}.run", folder / f"{split}.run.gz"]


def _absent(doc_ids: Iterable[str], documents: DocumentStore) -> list[str]:
    names = sorted(set(doc_ids))
    return [names[n] for n in np.flatnonzero(documents.rows(names) < 0)]


def _relevant(qrels: Qrels) -> Iterable[str]:
    return (doc for judged in qrels.values() for doc, grade in judged.items() if grade > 0)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
