"""The files of a named collection's splits.

Queries without text or relevant documents are excluded, because measures are undefined for them.
Candidates are from the user's run file, else from the dataset's ranked list, else from BM25 over
all documents.
"""

import hashlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rank_core import first_stage
from rank_core.data.disk.document_store import DocumentStore, write_document_store
from rank_core.data.disk.run_store import write_run_store
from rank_core.data.disk.split_store import CANDIDATES, write_judged_queries
from rank_core.data.ir_datasets.source import IrSource
from rank_core.data.named import Part, Recipe
from rank_core.data.trec import read_run, write_lines, write_qrels, write_queries
from rank_core.errors import BadInput
from rank_core.records import Qrels, Run

DEPTH = 1000  # maximum number of candidates per query
OWN_DOCUMENTS, ABSENT, HASH = "documents", "absent.txt", "hash.txt"


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
    runs |= _bm25_runs(
        documents,
        {split: of_split.queries for split, of_split in judged.items() if split not in runs},
    )
    for split, (queries, qrels) in judged.items():
        _require_documents(f"{name}, candidates of {split}", runs[split], documents)
        (folder / split).mkdir()
        write_queries(folder / split / "queries.tsv", queries)
        write_qrels(folder / split / "qrels.trec", qrels)
        absent = _absent(_relevant(qrels), documents)
        write_lines(folder / split / ABSENT, absent)
        if absent:
            _say(
                f"{name}, {split}: {len(absent)} relevant documents are missing from the collection"
            )
        write_run_store(folder / split / CANDIDATES, runs[split].items(), queries, documents)
    content_hash = _content_hash(folder, list(recipe.splits), documents)
    (folder / HASH).write_text(content_hash, encoding="ascii")
    for split, (queries, qrels) in judged.items():
        write_judged_queries(folder / split, queries, qrels)


def _judged(name: str, split: str, parts: tuple[Part, ...]) -> _Judged:
    queries: dict[str, str] = {}
    qrels: Qrels = {}
    excluded: list[str] = []
    for part in parts:
        source = IrSource(part.dataset_id)
        states = source.states("queries", "qrels")
        texts, judgments = source.queries(part.query_field), source.qrels()
        source.require_unchanged(states, "queries", "qrels")
        for query_id, text in texts.items():
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
    name: str, split: str, parts: tuple[Part, ...], queries: Mapping[str, str]
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
    states = source.states("docs")
    wanted = {doc_id for run in runs.values() for ranked in run.values() for doc_id in ranked}
    wanted |= {doc_id for of_split in judged.values() for doc_id in _relevant(of_split.qrels)}
    folder.mkdir()
    store = write_document_store(
        folder, lambda: source.some_documents(wanted), source=source.documents_id
    )
    source.require_unchanged(states, "docs")
    return store


def _run_files(name: str, split: str) -> list[Path]:
    import ir_datasets

    folder = Path(ir_datasets.util.home_path()) / "runs" / file_name(name)
    return [folder / f"{split}.run", folder / f"{split}.run.gz"]


def _require_documents(where: str, run: Run, documents: DocumentStore) -> None:
    unknown = _absent((doc_id for ranked in run.values() for doc_id in ranked), documents)
    if unknown:
        raise BadInput(
            f"{where}: {len(unknown):,} documents are not in the collection, such as "
            f"{', '.join(unknown[:3])}"
        )


def _absent(doc_ids: Iterable[str], documents: DocumentStore) -> list[str]:
    names = sorted(set(doc_ids))
    return [names[n] for n in np.flatnonzero(documents.rows(names) < 0)]


def _relevant(qrels: Qrels) -> Iterable[str]:
    return (doc for judged in qrels.values() for doc, grade in judged.items() if grade > 0)


def _content_hash(folder: Path, splits: list[str], documents: DocumentStore) -> str:
    digest = hashlib.sha256(documents.content_hash.encode())
    for path in sorted(path for split in splits for path in (folder / split).rglob("*.*")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder)}\n{len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
