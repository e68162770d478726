"""Collections from a user's function, checked on loading."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from numbers import Integral, Real
from typing import Any

from rank_core.data.folder import SPLITS, bm25_runs
from rank_core.data.trec import in_rank_order, read_run
from rank_core.errors import BadInput, shown
from rank_core.own_code import guarded, load
from rank_core.records import Collection, Split


@lru_cache(maxsize=4)
def load_own(path: str) -> Collection:
    """The collection returned by the function at `module:function`, called without arguments.

    Splits without candidates get BM25's. An empty `content_hash` is computed from all texts,
    judgments and candidates; a given one must identify them as well. Raises `BadInput` for anything
    that a trial could not read.
    """
    function: Callable[[], Any] = load("collection", path)
    if not callable(function):
        raise BadInput(f"collection {path} must be a function, got {shown(function)}")
    what = f"collection {path}"
    with guarded(what):  # also its mappings, which may be theirs
        collection = function()
        if not isinstance(collection, Collection):
            kind = type(collection).__name__
            raise BadInput(f"{what} must return a rank_core.records.Collection, got {kind}")
        if not isinstance(collection.name, str) or not collection.name.strip():
            raise BadInput(f"{what} must have a name, got {shown(collection.name)}")
        _check(what, collection)
        content_hash = collection.content_hash or _content_hash(collection)
    ranked_here = not any(split.candidates for split in collection.splits.values())
    return replace(
        collection,
        content_hash=content_hash,
        splits=_ranked(collection, content_hash),
        first_stage=collection.first_stage or ("BM25" if ranked_here else ""),
    )


def _check(what: str, collection: Collection) -> None:
    if set(collection.splits) != set(SPLITS):
        raise BadInput(
            f"{what} must have the splits {', '.join(SPLITS)}, got {', '.join(collection.splits)}"
        )
    _texts(f"{what}: documents", collection.documents)
    owners: dict[str, str] = {}
    for name, split in collection.splits.items():
        where = f"{what}, {name}"
        _texts(f"{where}: queries", split.queries)
        for kind, table in (("qrels", split.qrels), ("candidates", split.candidates)):
            number = Integral if kind == "qrels" else Real
            for query_id, of_query in table.items():
                for doc_id, value in of_query.items():
                    known = query_id in split.queries and doc_id in collection.documents
                    if not (known and isinstance(value, number)):
                        raise BadInput(
                            f"{where}: {kind} must be {{query_id: {{doc_id: number}}}} of its "
                            f"queries and documents; got {shown({query_id: {doc_id: value}})}"
                        )
        if not any(grade > 0 for judged in split.qrels.values() for grade in judged.values()):
            raise BadInput(f"{where} has no relevant document (relevance above 0)")
        for query_id in split.queries:
            if owners.setdefault(query_id, name) != name:
                raise BadInput(
                    f"{what}: query {shown(query_id)} is in {owners[query_id]} and {name}; a query "
                    "may be in only one split"
                )


def _texts(what: str, texts: Mapping[Any, Any]) -> None:
    """Raises `BadInput` unless ids and texts are texts. Of documents that are read from disk, the
    first alone is looked at."""
    looked_at = texts.items() if isinstance(texts, dict) else islice(texts.items(), 1)
    for name, text in looked_at:
        if not (isinstance(name, str) and isinstance(text, str)):
            raise BadInput(f"{what} must be {{id: text}}, both str; got {shown({name: text})}")


def _ranked(collection: Collection, content_hash: str) -> dict[str, Split]:
    """The splits restricted to judged queries, each with candidates."""
    splits = {
        name: Split(
            queries={q: text for q, text in split.queries.items() if q in split.qrels},
            qrels=split.qrels,
            candidates={q: in_rank_order(scores) for q, scores in split.candidates.items()},
        )
        for name, split in collection.splits.items()
    }
    without = {name: split.queries for name, split in splits.items() if not split.candidates}
    runs = bm25_runs(collection.documents, without, content_hash) if without else {}
    return splits | {
        name: replace(splits[name], candidates=read_run(path)) for name, path in runs.items()
    }


def _content_hash(collection: Collection) -> str:
    """16 hex digits over everything that a trial reads."""
    digest = hashlib.sha256()
    for document in sorted(collection.documents.items()):
        digest.update(json.dumps(document).encode())
    for name, split in sorted(collection.splits.items()):
        content = [name, dict(split.queries), split.qrels, split.candidates]
        # A number of NumPy has `item`.
        text = json.dumps(content, sort_keys=True, default=lambda number: number.item())
        digest.update(text.encode())
    return digest.hexdigest()[:16]
