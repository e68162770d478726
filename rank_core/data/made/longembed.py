"""Needle and Passkey of LongEmbed (Zhu et al. 2024), from Hugging Face.

Each has 50 queries and 100 documents at every one of eight lengths, in tokens; one document is
relevant to a query. `longembed-needle-4096` is one length, as MTEB evaluates them;
`longembed-needle` has the documents of all lengths, as Boytsov et al. (positional bias, Table 2)
rank them. All documents are candidates, in the order of BM25. There are only test queries.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from rank_core.cache import cached_directory
from rank_core.data.folder import load_folder
from rank_core.data.hub import downloaded
from rank_core.data.made.records import records
from rank_core.data.trec import write_lines, write_qrels, write_queries, write_run
from rank_core.first_stage import Bm25Index
from rank_core.records import Collection, Run

REPOSITORY = "dwzhu/LongEmbed"
REVISION = "6e346642246bfb4928c560ee08640dc84d074e8c"  # that of MTEB's tasks
LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
_TASKS = {f"longembed-{task}": (task, LENGTHS) for task in ("needle", "passkey")}
NAMES: dict[str, tuple[str, tuple[int, ...]]] = _TASKS | {
    f"{name}-{length}": (task, (length,))
    for name, (task, _) in _TASKS.items()
    for length in LENGTHS
}
"""{collection: (task, the lengths of its documents)}."""
_PLACE = 1e-6
"""The step of the scores of documents without a term of the query, all of them below 0."""


def load_longembed(name: str) -> Collection:
    """The collection of a task, downloaded on first use."""
    key = f"{name}-{REVISION[:16]}"
    folder = cached_directory("collections", key, partial(_build, name=name))
    return replace(load_folder(folder), name=name)


def _build(folder: Path, *, name: str) -> None:
    task, lengths = NAMES[name]
    home = downloaded(name, REPOSITORY, [f"{task}/*.jsonl"], REVISION) / task
    files = {
        "corpus": ("context_length", "doc_id", "text"),
        "queries": ("context_length", "qid", "text"),
        "qrels": ("context_length", "qid", "doc_id"),
    }

    def of_lengths(table: str) -> Iterator[list[str]]:
        for length, *values in records(home / f"{table}.jsonl", files[table]):
            if length in lengths:
                yield values

    documents = {doc_id: text for doc_id, text in of_lengths("corpus")}
    queries = {query_id: text for query_id, text in of_lengths("queries")}
    rows = (json.dumps({"doc_id": doc_id, "text": text}) for doc_id, text in documents.items())
    write_lines(folder / "docs.jsonl.gz", rows)
    test = folder / "test"
    test.mkdir()
    write_queries(test / "queries.tsv", queries)
    write_qrels(test / "qrels.trec", {q: {doc_id: 1} for q, doc_id in of_lengths("qrels")})
    write_run(test / "bm25.run.gz", all_ranked(documents, queries), tag="bm25")


def all_ranked(documents: dict[str, str], queries: dict[str, str]) -> Run:
    """All documents for each query: those with a term of it in the order of BM25, then the others
    by doc_id."""
    run = Bm25Index(documents).run(queries, depth=len(documents))
    others = ((q, (doc for doc in sorted(documents) if doc not in run[q])) for q in queries)
    return {
        query_id: run[query_id] | {doc: -_PLACE * at for at, doc in enumerate(left, start=1)}
        for query_id, left in others
    }
