"""Collections by name, folder, ir_datasets id, or a user's function.

A new collection from ir_datasets needs an entry in `rank_core.data.named`, any other a file in
`rank_core.data.made` and a line in `COLLECTIONS`. A user's own is named `module:function`.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from rank_core.arguments import path_text, takes
from rank_core.cache import cache_root, loaded_once
from rank_core.data import hub
from rank_core.data.folder import LAYOUT, bm25_runs, load_folder
from rank_core.data.ir_collections import (
    PREFIX,
    file_name,
    is_dataset,
    is_fold,
    known_ids,
    load_dataset,
    load_named,
)
from rank_core.data.made.longembed import NAMES as LONGEMBED
from rank_core.data.made.mldr import FOLDERS as MLDR
from rank_core.data.made.msmarco_far_relevant import NAME as FAR_RELEVANT
from rank_core.data.named import NAMED
from rank_core.data.own_documents import OwnDocuments, documents_of
from rank_core.data.readers import parse_fields
from rank_core.data.transforms.expression import (
    apply_transforms,
    folder_and_fields,
    parse_collection_expression,
    portable_steps,
    with_folder,
)
from rank_core.data.trec import (
    grade_of,
    in_rank_order,
    read_run,
    require_identifier,
    score_of,
)
from rank_core.errors import BadInput, shown, unknown
from rank_core.first_stage import TextAnalysis
from rank_core.first_stage.languages import language_code, other_than_english
from rank_core.own_code import announced, guarded, is_reference, load
from rank_core.records import SPLITS, Collection, Qrels, Split

COLLECTIONS: dict[str, str] = {
    "python-docs": "rank_core.data.made.python_docs:load_python_docs",
    "python-docs-passages": "rank_core.data.made.python_docs:load_passages",
    **dict.fromkeys(MLDR, "rank_core.data.made.mldr:load_mldr"),
    **dict.fromkeys(LONGEMBED, "rank_core.data.made.longembed:load_longembed"),
    FAR_RELEVANT: "rank_core.data.made.msmarco_far_relevant:load_far_relevant",
    **dict.fromkeys(NAMED, "rank_core.data.ir_collections:load_named"),
}
"""{name: module and function}; the function is called with the name.

Examples:
    >>> import ranksweep
    >>> ranksweep.COLLECTIONS["python-docs"]
    'rank_core.data.made.python_docs:load_python_docs'
"""


@takes(name=path_text)
def load_collection(name: str | Path) -> Collection:
    """The collection of a registered name or else of a folder, a user's function
    (`module:function`, or an entry point) or an ir_datasets id. Raises `BadInput` for others.

    A name may include a fold (`robust04-title/fold2`). `ir:ID` is always an ir_datasets id; a plain
    ID is one if no folder has that name. `hf://datasets/ORG/NAME[@REVISION]` is a dataset of the
    Hugging Face Hub in BEIR's layout (`rank_core.data.hub`). Transforms follow a bar,
    `python-docs|debias(seed=2)`, as do a folder's own names of fields,
    `DIR|fields(uri=doc_id,body=text)`.

    Examples:
        >>> import ranksweep
        >>> notes = ranksweep.load_collection("own_collection:notes")  # a file beside this one
        >>> len(notes.documents), list(notes.splits)
        (100, ['train', 'dev', 'test'])
    """
    name = str(name)
    base, steps = parse_collection_expression(name)
    if steps:
        return apply_transforms(load_collection(base), steps)
    folder, fields = folder_and_fields(base)
    if folder.startswith(hub.PREFIX):
        return hub.load_hub(folder, parse_fields(fields) if fields else None)
    if fields:
        if not os.path.isdir(os.path.expanduser(folder)):
            raise BadInput(f"--fields is for the files of a folder; {shown(folder)} is not one")
        return load_folder(Path(folder), parse_fields(fields))
    if name in COLLECTIONS:
        return load("collection", COLLECTIONS[name])(name)
    if is_fold(name):
        return load_named(name)
    if name.startswith(PREFIX):
        return load_dataset(name.removeprefix(PREFIX))
    folder = os.path.expanduser(name)
    if os.path.isdir(folder):
        return load_folder(Path(folder))
    if is_reference(name) or name in announced("collection"):
        return load_own(announced("collection").get(name, name))
    if is_dataset(name):
        return load_dataset(name)
    tops = {known.partition("/")[0] for known in known_ids()}
    if os.path.exists(folder) or ("/" in folder and folder.partition("/")[0] not in tops):
        what = "is a file" if os.path.exists(folder) else "does not exist"
        raise BadInput(f"--collection {shown(name)} {what}; {LAYOUT}")
    raise BadInput(
        f"{unknown('collection', name, [*COLLECTIONS, *announced('collection')])}; others: "
        f"{PREFIX}ID for an ir_datasets id, {hub.FORM}, your own module:function, or "
        f"a folder ({LAYOUT})"
    )


def is_prepared(name: str) -> bool:
    """True if the cache has a named collection, in whatever version."""
    stem = MLDR.get(name, file_name(name))
    folders = (cache_root() / "collections").glob(f"{stem}-{'[0-9a-f]' * 16}")
    return next(folders, None) is not None


def portable_collection(name: str) -> str:
    """The name or expression under which every process finds the same collection: entry points
    become `module:function` and `module:Class`, a dataset of the Hub has its revision."""
    parse_collection_expression(name)
    base = name.partition("|")[0].strip()
    if base.startswith(hub.PREFIX):
        return portable_steps(with_folder(name, hub.pinned(base)))
    registered = {} if base in COLLECTIONS or os.path.isdir(base) else announced("collection")
    return portable_steps(with_folder(name, registered.get(base, base)))


@loaded_once(maxsize=4)
def load_own(path: str) -> Collection:
    """The collection returned by the function at `module:function`, called without arguments.

    Splits without candidates get BM25's. An empty `content_hash` is computed from all texts,
    judgments and candidates; a given one must identify them as well. Raises `BadInput` for anything
    that a trial could not read.
    """
    function: Callable[[], Any] = load("collection", path)
    what = f"collection {path}"
    if not callable(function):
        raise BadInput(f"{what} must be a function, got {shown(function)}")
    with guarded(what):  # also its mappings, which may be theirs
        collection = function()
        if not isinstance(collection, Collection) or not str(collection.name).strip():
            raise BadInput(
                f"{what} must return a rank_core.records.Collection with a name, got "
                f"{shown(collection)}"
            )
        _check(what, collection)
        content_hash = collection.content_hash or contents_hash(collection)
    language = collection.language and language_code(collection.language, f"{what}: language")
    collection = replace(collection, language=language)
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
                    place = f"{where}: {kind} of query {query_id!r}, document {doc_id!r}"
                    grade_of(place, value) if kind == "qrels" else score_of(place, value)
        for query_id, group in split.groups.items():
            if query_id not in split.queries or not (isinstance(group, str) and group.strip()):
                raise BadInput(
                    f"{where}: groups must be {{query_id: group}} of its queries, each a text; got "
                    f"{shown({query_id: group})}"
                )
        lacking = next((q for q in split.qrels if q not in split.groups), None)
        if split.groups and lacking is not None:
            raise BadInput(f"{where}: query {shown(lacking)} has no group, and others have one")
        if not any(grade > 0 for judged in split.qrels.values() for grade in judged.values()):
            raise BadInput(f"{where} has no relevant document (relevance above 0)")
        for query_id in split.queries:
            if owners.setdefault(query_id, name) != name:
                raise BadInput(
                    f"{what}: query {shown(query_id)} is in {owners[query_id]} and {name}; a query "
                    "may be in only one split"
                )


def _texts(what: str, texts: Mapping[Any, Any]) -> None:
    # Of documents that are read from disk, the first alone is looked at.
    for name, text in texts.items() if isinstance(texts, dict) else islice(texts.items(), 1):
        if not (isinstance(name, str) and isinstance(text, str)):
            raise BadInput(f"{what} must be {{id: text}}, both str; got {shown({name: text})}")
        require_identifier(what, "id", name)


def _ranked(collection: Collection, content_hash: str) -> dict[str, Split]:
    """The splits restricted to judged queries, each with candidates."""
    splits = {
        name: Split(
            queries={q: text for q, text in split.queries.items() if q in split.qrels},
            qrels=_plain(split.qrels),
            candidates={q: in_rank_order(scores) for q, scores in split.candidates.items()},
            groups={q: group for q, group in split.groups.items() if q in split.qrels},
        )
        for name, split in collection.splits.items()
    }
    without = {name: split.queries for name, split in splits.items() if not split.candidates}
    analysis = TextAnalysis(collection.language)
    runs = bm25_runs(collection.documents, without, content_hash, analysis) if without else {}
    splits |= {
        name: replace(splits[name], candidates=read_run(path)) for name, path in runs.items()
    }
    texts = collection.documents
    of_texts = documents_of((split.queries for split in splits.values()), texts)
    for name, split in splits.items():
        own_documents = OwnDocuments(split.queries, texts, split.qrels, of_texts, left_out=False)
        list(own_documents.watched(split.candidates.items()))
        own_documents.note(f"{collection.name}, {name}")
    return splits


def _plain(qrels: Qrels) -> Qrels:
    """Grades as numbers of Python; what is read from disk has them already."""
    if not isinstance(qrels, dict):
        return qrels
    return {
        q: {doc_id: int(grade) for doc_id, grade in judged.items()} for q, judged in qrels.items()
    }


def contents_hash(collection: Collection, about: str = "") -> str:
    """16 hex digits over everything that a trial reads, and a text `about` it."""
    digest = hashlib.sha256(about.encode())
    for document in sorted(collection.documents.items()):
        digest.update(json.dumps(document).encode())
    for name, split in sorted(collection.splits.items()):
        content = [name, dict(split.queries), split.qrels, split.candidates]
        content += [dict(split.groups)] if split.groups else []
        # A number of NumPy has `item`.
        text = json.dumps(content, sort_keys=True, default=lambda number: number.item())
        digest.update(text.encode())
    digest.update(other_than_english(collection.language).encode())
    return digest.hexdigest()[:16]
