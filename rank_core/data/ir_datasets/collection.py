"""Named collections from ir_datasets: converted once to our store, then opened from the cache.

`<cache>/collections/<name>-<key>/` has the queries, judgments and candidates of each split. The key
covers the recipe and the version of ir_datasets; files that it has read are taken as unchanged.
Workers receive names and open the cached files.
"""

import dataclasses
import hashlib
import json
import re
from functools import lru_cache
from pathlib import Path

from rank_core import first_stage
from rank_core.cache import cached_directory
from rank_core.data.disk.document_store import HASH, STORE_VERSION, DocumentStore, stored_documents
from rank_core.data.disk.split_store import Splits, open_split
from rank_core.data.folder import SPLITS
from rank_core.data.folds import huston_croft, rotate, round_robin
from rank_core.data.ir_datasets.source import IrSource, known_ids
from rank_core.data.ir_datasets.splits import DEPTH, OWN_DOCUMENTS, build, file_name, run_file
from rank_core.data.named import NAMED, POOL, DatasetPart, Recipe
from rank_core.errors import BadInput
from rank_core.records import Collection

PREFIX = "ir:"
LAYOUT_VERSION = 3
_FOLD = re.compile(r"(?P<name>[\w-]+)/(?P<fold>fold\d+)")


def is_fold(name: str) -> bool:
    """True for a fold of a named collection, `NAME/fold2`."""
    match = _FOLD.fullmatch(name)
    return match is not None and match["name"] in NAMED


def load_named(name: str) -> Collection:
    """The collection of an entry of `NAMED`, or of one of its folds."""
    match = _FOLD.fullmatch(name)
    if match is None:
        return load_recipe(name, NAMED[name])
    return load_recipe(match["name"], NAMED[match["name"]], fold=match["fold"])


def load_recipe(name: str, recipe: Recipe, *, fold: str = "") -> Collection:
    """The collection of a recipe; `fold` chooses a fold of a pool."""
    if fold and not recipe.is_pool:
        raise BadInput(f"{name} has its own splits and no folds, got fold {fold!r}")
    shared = None if recipe.ranked_only else _documents(recipe.parts[0].dataset_id)
    folder = cached_directory(
        "collections",
        f"{file_name(name)}-{_key(name, recipe)}",
        lambda folder: build(folder, name, recipe, shared),
    )
    whole = _open(name, folder, shared.folder if shared else folder / OWN_DOCUMENTS)
    return _of_fold(whole, recipe, fold or "fold1") if recipe.is_pool else whole


def _key(name: str, recipe: Recipe) -> str:
    """A hash of what a recipe's files depend on: itself, the user's runs and BM25's settings."""
    runs = [path for split in recipe.splits if (path := run_file(name, split)) is not None]
    states = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in runs]
    all_parts = {split: list(map(dataclasses.astuple, p)) for split, p in recipe.splits.items()}
    bm25 = [first_stage.recipe(), first_stage.K1, first_stage.B, DEPTH]
    return _digest(LAYOUT_VERSION, all_parts, recipe.ranked_only, bm25, states)


def _documents(dataset_id: str) -> DocumentStore:
    """All documents of a dataset."""
    source = IrSource(dataset_id)
    key = _digest(source.documents_id)
    return stored_documents(key, source.documents, source=source.documents_id)


def _digest(*parts: object) -> str:
    import ir_datasets

    text = json.dumps([STORE_VERSION, ir_datasets.__version__, *parts])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@lru_cache(maxsize=4)
def _open(name: str, folder: Path, documents_folder: Path) -> Collection:
    documents = DocumentStore(documents_folder)
    names = [split for split in (*SPLITS, POOL) if (folder / split).is_dir()]
    splits = {split: open_split(folder / split, documents) for split in names}
    content_hash = (folder / HASH).read_text(encoding="ascii")
    return Collection(name, content_hash, documents, Splits(name, splits))


def _of_fold(collection: Collection, recipe: Recipe, fold: str) -> Collection:
    whole = collection.splits[POOL]
    query_ids = list(whole.queries)
    folds = huston_croft() if recipe.folds == "huston-croft" else round_robin(query_ids)
    members = rotate(folds, fold, query_ids)
    splits = {split: whole.subset(query_ids) for split, query_ids in members.items()}
    splits["train"] = splits["train"].judged_in(collection.documents)
    text = json.dumps([collection.content_hash, members])
    return Collection(
        f"{collection.name}/{fold}",
        hashlib.sha256(text.encode()).hexdigest()[:16],
        collection.documents,
        Splits(collection.name, splits),
    )


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
        return Recipe({"test": (DatasetPart(dataset_id),)}, ranked_only=is_web)
    base = base if judged else dataset_id
    ids = {split: f"{base}/{split}" for split in SPLITS}
    parts = {
        split: (DatasetPart(id_),)
        for split, id_ in ids.items()
        if is_dataset(id_) and _is_judged(id_)
    }
    if not parts:
        raise BadInput(
            f"{dataset_id} has no documents, queries and qrels, nor a train, dev or test that "
            "has them"
        )
    return Recipe(parts)


def _is_judged(dataset_id: str) -> bool:
    return IrSource(dataset_id).has("docs", "queries", "qrels")
