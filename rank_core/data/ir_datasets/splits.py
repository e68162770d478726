"""The files of a named collection's splits: what of a dataset is kept, and what it is ranked by.

Kept are the queries that have text and a relevant document: without one no measure is defined.
Candidates come from the first of: a run file that the user put in place, the ranked list of the
dataset, BM25 over all documents.
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

DEPTH = 1000  # candidates of a query, at most
OWN_DOCUMENTS, ABSENT, HASH = "documents", "absent.txt", "hash.txt"


class _Judged(NamedTuple):
    queries: dict[str, str]
    qrels: Qrels


def file_name(name: str) -> str:
    """The name of a collection where it names a folder."""
    return name.replace("/", "_").replace(":", "_")


def run_file(name: str, split: str) -> Path | None:
    """The user's own first stage for a split, if there is one."""
    return next((path for path in _run_files(name, split) if path.exists()), None)


def build(folder: Path, name: str, recipe: Recipe, shared: DocumentStore | None) -> None:
    """Write all splits of a recipe, and its documents where it has no `shared` store of them."""
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
            _say(f"{name}, {split}: {len(absent)} relevant documents are not in the collection")
        write_run_store(folder / split / CANDIDATES, runs[split].items(), queries, documents)
    content_hash = _content_hash(folder, list(recipe.splits), documents)
    (folder / HASH).write_text(content_hash, encoding="ascii")
    for split, (queries, qrels) in judged.items():
        write_judged_queries(folder / split, queries, qrels)


def _judged(name: str, split: str, parts: tuple[Part, ...]) -> _Judged:
    queries: dict[str, str] = {}
    qrels: Qrels = {}
    left_out: list[str] = []
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
                left_out.append(long_id)
                continue
            queries[long_id], qrels[long_id] = text, relevance
    if left_out:
        _say(
            f"{name}, {split}: {len(left_out)} judged queries are left out, without text or a "
            f"relevant document: {', '.join(left_out[:5])}"
        )
    if not queries:
        ids = ", ".join(part.dataset_id for part in parts)
        raise BadInput(f"{ids} must have a query with a relevant document, found none")
    return _Judged(queries, qrels)


def _given_run(
    name: str, split: str, parts: tuple[Part, ...], queries: Mapping[str, str]
) -> Run | None:
    """The candidates that someone else ranked; None where there are none."""
    if (path := run_file(name, split)) is not None:
        run = read_run(path)
        if not queries.keys() & run.keys():
            raise BadInput(f"{path} must rank documents for the queries of {name}, found none")
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
    """BM25 over all documents for the splits that nobody ranked, with one index for all."""
    if not queries:
        return {}
    together = {
        f"{split} {query_id}": text
        for split, texts in queries.items()
        for query_id, text in texts.items()
    }
    _say(f"BM25 of {len(together):,} queries over {len(documents):,} documents")
    run = first_stage.Bm25Index(documents).run(together, depth=DEPTH)
    return {
        split: {query_id: run[f"{split} {query_id}"] for query_id in texts}
        for split, texts in queries.items()
    }


def _ranked_documents(
    folder: Path,
    name: str,
    recipe: Recipe,
    judged: Mapping[str, _Judged],
    runs: Mapping[str, Run],
) -> DocumentStore:
    """The documents that are ranked or relevant, of a collection too large to keep all."""
    for split in recipe.splits:
        if split not in runs:
            raise BadInput(
                f"{name} is too large for a first stage of ours; put a TREC run for its {split} "
                f"queries at {_run_files(name, split)[0]} (or .gz)"
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
            f"{where} must be documents of the collection, {len(unknown):,} are not: "
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
