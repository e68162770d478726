"""Named collections from ir_datasets: converted once to our layout, then opened from the cache.

`<cache>/collections/<name>-<key>/` has the queries, judgments and candidates of each split; the key
covers the state of every source file. Workers receive names and open the cached files.
"""

import dataclasses
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from rank_core import first_stage
from rank_core.cache import cached_directory
from rank_core.data.disk.document_store import HASH, DocumentStore, stored_documents
from rank_core.data.disk.split_store import QUERIES, Splits, open_split
from rank_core.data.folder import SPLITS
from rank_core.data.folds import FoldSplits, huston_croft, read_fold_file, rotate, round_robin
from rank_core.data.ir_datasets.files import state_key
from rank_core.data.ir_datasets.source import IrSource, known_ids
from rank_core.data.ir_datasets.splits import (
    ABSENT,
    DEPTH,
    OWN_DOCUMENTS,
    build,
    file_name,
    run_file,
)
from rank_core.data.named import NAMED, POOL, Part, Recipe
from rank_core.errors import BadInput
from rank_core.records import Collection, Split

PREFIX = "ir:"
LAYOUT_VERSION = 2
_FOLD = re.compile(r"(?P<name>[\w-]+)(?:/(?P<fold>fold\d+)|@(?P<file>.+#.+))")


class _Opened(NamedTuple):
    documents: DocumentStore
    splits: dict[str, Split]
    content_hash: str


def is_fold(name: str) -> bool:
    """True for a fold of a named collection: `NAME/fold2` or `NAME@FILE.json#FOLD`."""
    match = _FOLD.fullmatch(name)
    return match is not None and match["name"] in NAMED


def load_named(name: str) -> Collection:
    """The collection of an entry of `NAMED`, or of one of its folds."""
    match = _FOLD.fullmatch(name)
    if match is None:
        return load_recipe(name, NAMED[name])
    return load_recipe(match["name"], NAMED[match["name"]], fold=match["fold"] or match["file"])


def load_recipe(name: str, recipe: Recipe, *, fold: str = "") -> Collection:
    """The collection of a recipe; `fold` chooses a fold of a pool: `fold1` or `FILE.json#fold`."""
    if fold and not recipe.is_pool:
        raise BadInput(f"{name} has its own splits and no folds, got fold {fold!r}")
    documents = IrSource(recipe.parts[0].dataset_id)
    shared = None if recipe.ranked_only else open_documents(documents)
    folder = cached_directory(
        "collections",
        f"{file_name(name)}-{_key(name, recipe)}",
        lambda folder: build(folder, name, recipe, shared),
    )
    opened = _open(folder, shared.folder if shared else folder / OWN_DOCUMENTS)
    if recipe.is_pool:
        return _of_fold(name, recipe, opened, fold or "fold1")
    splits = Splits(name, opened.splits)
    return Collection(name, opened.content_hash, opened.documents, splits)


def _key(name: str, recipe: Recipe) -> str:
    """A hash of what a recipe's files depend on: the recipe, its sources, and BM25's settings."""
    documents = IrSource(recipe.parts[0].dataset_id)  # shared by all parts
    documents.require("docs")
    states = documents.states("docs")
    for split, parts in recipe.splits.items():
        for part in parts:
            source = IrSource(part.dataset_id)
            source.require("queries", "qrels")
            states += source.states("queries", "qrels")
        path = run_file(name, split)
        if path is not None:
            states.append((str(path), path.stat().st_size, path.stat().st_mtime_ns))
        for ranked_id in {id_ for part in parts for id_ in part.ranked_ids if path is None}:
            if (ranked := IrSource(ranked_id)).has("scoreddocs"):
                ranked.require("scoreddocs")
                states += ranked.states("scoreddocs")
    all_parts = {split: list(map(dataclasses.astuple, p)) for split, p in recipe.splits.items()}
    bm25 = [first_stage.recipe(), first_stage.K1, first_stage.B, DEPTH]
    recipe_text = json.dumps([LAYOUT_VERSION, all_parts, recipe.ranked_only, bm25])
    return state_key([recipe_text], sorted(set(states)))


@lru_cache(maxsize=4)
def _open(folder: Path, documents_folder: Path) -> _Opened:
    documents = DocumentStore(documents_folder)
    splits = {}
    for part in sorted(path for path in folder.iterdir() if (path / QUERIES).exists()):
        # Missing relevant documents: unreadable for training; in dev and test, measures need them.
        absent = (part / ABSENT).read_text(encoding="utf-8") if part.name == "train" else ""
        splits[part.name] = open_split(part, documents, frozenset(absent.split()))
    order = [name for name in ("train", "dev", "test", POOL) if name in splits]
    content_hash = (folder / HASH).read_text(encoding="ascii")
    return _Opened(documents, {name: splits[name] for name in order}, content_hash)


def _of_fold(name: str, recipe: Recipe, opened: _Opened, fold: str) -> Collection:
    whole = opened.splits[POOL]
    members = _members(recipe, fold, list(whole.queries))
    splits = {}
    for split, query_ids in members.items():
        of_split = whole.subset(query_ids)
        splits[split] = of_split.judged_in(opened.documents) if split == "train" else of_split
    text = json.dumps([opened.content_hash, members])
    content_hash = hashlib.sha256(text.encode()).hexdigest()[:16]
    separator = "@" if "#" in fold else "/"
    return Collection(
        f"{name}{separator}{fold}", content_hash, opened.documents, Splits(name, splits)
    )


def _members(recipe: Recipe, fold: str, query_ids: list[str]) -> FoldSplits:
    path, hash_sign, chosen = fold.rpartition("#")
    if hash_sign:
        return read_fold_file(Path(path).expanduser(), chosen, query_ids)
    folds = huston_croft() if recipe.folds == "huston-croft" else round_robin(query_ids)
    return rotate(folds, fold, query_ids)


def is_dataset(name: str) -> bool:
    """True for an id of ir_datasets."""
    return name in known_ids()


def load_dataset(dataset_id: str) -> Collection:
    """The collection of an ir_datasets id, named `ir:ID`."""
    recipe = recipe_of(dataset_id)
    return load_recipe(f"{PREFIX}{dataset_id}", recipe)


def recipe_of(dataset_id: str) -> Recipe:
    """The splits that an id stands for; raises `BadInput` for an id without judgments.

    An id that ends in train, dev or test also stands for its siblings. An id without own judgments,
    such as `beir/nfcorpus`, stands for its train, dev and test. Any other id is a test set; of web
    crawls only ranked and relevant documents are kept.
    """
    base, _, last = dataset_id.rpartition("/")
    judged = _is_judged(dataset_id)
    if judged and last not in SPLITS:
        is_web = IrSource(dataset_id).is_web
        return Recipe({"test": (Part(dataset_id),)}, ranked_only=is_web)
    base = base if judged else dataset_id
    ids = {split: f"{base}/{split}" for split in SPLITS}
    parts = {
        split: (Part(id_),) for split, id_ in ids.items() if is_dataset(id_) and _is_judged(id_)
    }
    if not parts:
        raise BadInput(
            f"{dataset_id} has no documents, queries and qrels, nor a train, dev or test that "
            "has them"
        )
    return Recipe(parts)


def _is_judged(dataset_id: str) -> bool:
    source = IrSource(dataset_id)
    return all(source.has(entity) for entity in ("docs", "queries", "qrels"))


def open_documents(source: IrSource) -> DocumentStore:
    """All documents of a dataset."""
    source.require("docs")
    states = source.states("docs")

    def documents() -> Iterator[tuple[str, str]]:
        yield from source.documents()
        source.require_unchanged(states, "docs")
        print(f"documents of {source.documents_id} read", file=sys.stderr, flush=True)

    key = state_key([source.documents_id], states)
    return stored_documents(key, documents, source=source.documents_id)
