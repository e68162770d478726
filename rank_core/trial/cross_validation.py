"""Cross-validation: a trial covers all k folds, so that every judged query is tested once.

Fold f is tested, the next one selects the checkpoint, and the others are trained on (3/1/1 of five,
as in Zhang, Yates & Lin 2021 and KeyB). The folds are those of a file, or those that a collection
publishes; for others the judged queries of all splits are dealt by their ids.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from rank_core.checkpoints.weights import cell_trials
from rank_core.chunking.inputs import Inputs, file_hash, inputs_of, load_inputs, read_as
from rank_core.data.folds import NUM_FOLDS, kept_together, rotate
from rank_core.data.folds_file import read_folds
from rank_core.data.load import load_collection
from rank_core.data.named import NAMED
from rank_core.data.transforms.expression import (
    apply_transforms,
    base_of,
    parse_collection_expression,
)
from rank_core.errors import BadInput
from rank_core.models import model_class, trains
from rank_core.parsing import parsed_json
from rank_core.records import Collection, Qrels, Run, Split
from rank_core.seeding import derive
from rank_core.settings.config import TrialConfig

KEEPING = {
    "training.keep_weights": "all",
    "training.keep_run": True,
    "evaluation.keep_chunk_scores": True,
}


def parts_of(config: TrialConfig, inputs: Inputs) -> tuple[Inputs, ...]:
    """The inputs of each model of a trial, as it reads texts: the collection's own splits, or each
    fold's."""
    parts: tuple[Inputs, ...] = (inputs,)
    if config.evaluation.folds:
        check_folds(config)
        folds, path = config.evaluation.folds, config.evaluation.folds_file
        content = file_hash("evaluation.folds_file", Path(path)) if path else ""
        parts = load_folds(config.collection, config.model.backbone, folds, path, content)
    kind = model_class(config.model.name)
    if not trains(kind):
        return parts
    return tuple(read_as(part, kind.backbone_of(config.model, part.backbone)) for part in parts)


def check_folds(config: TrialConfig) -> None:
    """Raises `BadInput` for settings that need a single model, and for files of a trial over the
    same queries, which may have been trained on the queries tested here."""
    training, tested = config.training, _queries_of(config.collection)
    starts = tuple(str(path) for path in cell_trials(training.init_from).values())
    for name, value in KEEPING.items():
        if config.settings()[name] == value:
            raise BadInput(
                f"{name} needs a single model, but evaluation.folds={config.evaluation.folds} "
                "trains one per fold; use evaluation.folds=0"
            )
    for name, paths in (
        ("init_from", starts or (training.init_from,)),
        ("teacher", (training.teacher,)),
        ("negatives_from", training.negatives_from),
    ):
        for path in filter(None, paths):
            if _queries_of(_collection_of_trial(Path(path))) == tested:
                raise BadInput(
                    f"training.{name} must not come from a trial over {tested}, because "
                    f"evaluation.folds={config.evaluation.folds} tests all of its queries: {path}"
                )


@lru_cache(maxsize=16)
def load_folds(
    collection_name: str, backbone_name: str, num_folds: int, path: str = "", content: str = ""
) -> tuple[Inputs, ...]:
    """The inputs of each fold, loaded once per process: of the folds in the file at `path`, whose
    hash is `content`, or of others. Queries are divided before the collection is transformed, so
    that a transform of training data never affects tested queries."""
    base_name, steps = parse_collection_expression(collection_name)
    base = load_inputs(base_name, backbone_name)
    published = _published(base_name)
    if path:
        folds = divided_by_file(_whole(base.collection, published), Path(path), num_folds)
    elif published:
        _check_number(_queries_of(base_name), num_folds)
        folds = published
    else:
        folds = deal(base.collection, num_folds)
    return tuple(inputs_of(apply_transforms(fold, steps), base) for fold in folds)


def divided_by_file(collection: Collection, path: Path, num_folds: int) -> list[Collection]:
    """The collection once per fold of a file, as `<name>/fold<n>` in the order of their names.
    Raises `BadInput` for another number of folds, and for folds that the queries do not allow."""
    pool = _pool(collection)
    return _rotated(collection, pool, read_folds(path, pool.queries, pool.groups, num_folds))


def deal(collection: Collection, num_folds: int) -> list[Collection]:
    """The collection once per fold, as `<name>/fold<n>`.

    The queries of all splits, or the groups that they have, are ordered by a hash of their ids and
    dealt round robin, each to a fold with the fewest queries, independent of seeds and other
    collections. Queries of one text are in one fold, whatever their ids. Raises `BadInput` for
    fewer queries, or groups, than folds.
    """
    pool = _pool(collection)
    units: dict[str, list[str]] = {}
    for query_id, unit in kept_together(pool.queries, pool.groups).items():
        units.setdefault(unit, []).append(query_id)
    if len(units) < num_folds:
        what = "groups of queries" if pool.groups else "judged queries"
        raise BadInput(
            f"evaluation.folds={num_folds} exceeds the {len(units)} {what} of {collection.name}"
        )
    folds: list[set[str]] = [set() for _ in range(num_folds)]
    # A hash orders them: ids in the order of a file often follow topics or years.
    for unit in sorted(units, key=lambda name: (derive(0, "folds", name), name)):
        min(folds, key=len).update(units[unit])  # the first of several
    return _rotated(collection, pool, folds)


def _rotated(collection: Collection, pool: Split, folds: Sequence[set[str]]) -> list[Collection]:
    """The collection once per fold, which it tests."""
    width = len(str(len(folds)))
    named = {f"fold{number:0{width}}": members for number, members in enumerate(folds, start=1)}
    rotated = []
    for name in named:
        members = rotate(named, name, list(pool.queries))
        splits = {split: pool.subset(query_ids) for split, query_ids in members.items()}
        # Measures need judgments of missing documents, training cannot read them.
        splits["train"] = splits["train"].judged_in(collection.documents)
        # The members are part of the hash: a fold of another dealing is another collection.
        text = json.dumps([collection.content_hash, members])
        content_hash = hashlib.sha256(text.encode()).hexdigest()[:16]
        rotated.append(
            Collection(
                f"{collection.name}/{name}",
                content_hash,
                collection.documents,
                splits,
                language=collection.language,
                leaves_own_out=collection.leaves_own_out,
            )
        )
    return rotated


def _whole(collection: Collection, published: Sequence[Collection]) -> Collection:
    """The collection with all judgments of its queries: a published fold lacks those of documents
    without a text for the queries that it trains on."""
    if not published:
        return collection
    tested = {f"test{n}": fold.splits["test"] for n, fold in enumerate(published, start=1)}
    return replace(collection, name=collection.name.partition("/")[0], splits=tested)


def _queries_of(collection_name: str) -> str:
    """The collection of the queries: the base collection, or the pool of a fold."""
    base = base_of(collection_name)
    pool = base.partition("/")[0]
    return pool if pool in NAMED and NAMED[pool].is_pool else base


def _published(base_name: str) -> list[Collection]:
    """The published folds of a named pool (Robust04: Huston and Croft's); empty for others."""
    name = _queries_of(base_name)
    if name not in NAMED or not NAMED[name].is_pool:
        return []
    return [load_collection(f"{name}/fold{n}") for n in range(1, NUM_FOLDS + 1)]


def _check_number(name: str, num_folds: int) -> None:
    if num_folds != NUM_FOLDS:
        raise BadInput(
            f"{name} has {NUM_FOLDS} published folds; evaluation.folds={NUM_FOLDS} must hold, got "
            f"{num_folds}, or name other folds by evaluation.folds_file"
        )


def _pool(collection: Collection) -> Split:
    """The judged queries of all splits as one split."""
    queries: dict[str, str] = {}
    qrels: Qrels = {}
    candidates: Run = {}
    groups: dict[str, str] = {}
    for name, split in collection.splits.items():
        for query_id, text in split.queries.items():
            if query_id in queries:
                raise BadInput(
                    f"{collection.name}: query {query_id!r} of split {name} is in another split "
                    "as well; a query may be in only one"
                )
            queries[query_id], qrels[query_id] = text, split.qrels[query_id]
            candidates[query_id] = split.candidates.get(query_id, {})
        groups |= split.groups
    return Split(queries, qrels, candidates, groups)


def _collection_of_trial(path: Path) -> str:
    """The collection of the trial whose folder, or file in it, is `path`; empty if unknown."""
    settings = (path if path.is_dir() else path.parent) / "config.json"
    if not settings.is_file():
        return ""
    # A model folder has a config.json of another kind.
    return str(parsed_json(settings.read_text(), settings).get("collection", ""))
