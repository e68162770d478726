"""Cross-validation: a trial is one pass over k folds, so that every judged query is tested once.

Fold f is tested, the next one chooses the checkpoint, the others are trained on (3/1/1 of five, as
in Zhang, Yates & Lin 2021 and KeyB). A collection that comes as a pool with published folds keeps
them; of any other the judged queries of all splits are dealt by their ids alone.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations
from pathlib import Path

from rank_core.checkpoints.weights import cell_trials
from rank_core.chunking.inputs import Inputs, inputs_of, load_inputs
from rank_core.data.folds import NUM_FOLDS, rotate
from rank_core.data.load import load_collection
from rank_core.data.named import NAMED
from rank_core.data.transforms.expression import (
    apply_transforms,
    base_of,
    parse_collection_expression,
)
from rank_core.errors import BadInput
from rank_core.records import Collection, Qrels, Run, Split
from rank_core.seeding import derive
from rank_core.settings.config import TrialConfig

KEEPING = {
    "training.keep_weights": "all",
    "training.keep_run": True,
    "evaluation.keep_chunk_scores": True,
}
_WORD = re.compile(r"\w+")


def parts_of(config: TrialConfig, inputs: Inputs) -> tuple[Inputs, ...]:
    """The inputs of each model of a trial: the collection's own splits, or those of every fold."""
    if not config.evaluation.folds:
        return (inputs,)
    check_folds(config)
    return load_folds(config.collection, config.model.backbone, config.evaluation.folds)


def check_folds(config: TrialConfig) -> None:
    """Refuses, where a trial has several models, files that one model leaves or reads, and files of
    a trial over the same queries: it may have learnt from those that are tested here.

    Raises `BadInput` naming the setting."""
    training, tested = config.training, _queries_of(config.collection)
    starts = tuple(str(path) for path in cell_trials(training.init_from).values())
    for name, value in KEEPING.items():
        if config.settings()[name] == value:
            raise BadInput(
                f"{name} keeps what one model learnt, and with evaluation.folds="
                f"{config.evaluation.folds} a trial trains one for each fold; use folds=0"
            )
    for name, paths in (
        ("init_from", starts or (training.init_from,)),
        ("teacher", (training.teacher,)),
        ("negatives_from", training.negatives_from),
    ):
        for path in filter(None, paths):
            if _queries_of(_collection_of_trial(Path(path))) == tested:
                raise BadInput(
                    f"training.{name} must not come from a trial over {tested}, whose queries are "
                    f"all tested with evaluation.folds={config.evaluation.folds}; found {path}"
                )


@lru_cache(maxsize=16)
def load_folds(collection_name: str, backbone_name: str, num_folds: int) -> tuple[Inputs, ...]:
    """The inputs of each fold; read once per process.

    Queries are dealt before the collection is transformed, so that a transform of training data
    never reaches what is measured.
    """
    base_name, steps = parse_collection_expression(collection_name)
    base = load_inputs(base_name, backbone_name)
    folds = _published(base_name, num_folds) or deal(base.collection, num_folds)
    return tuple(inputs_of(apply_transforms(fold, steps), base) for fold in folds)


def deal(collection: Collection, num_folds: int) -> list[Collection]:
    """The collection once for each fold, as `<name>/fold<n>`.

    The pool of all splits is put into an order that depends on the query ids alone, and dealt round
    robin: no seed of a trial, and no other collection, moves a query.
    """
    pool = _pool(collection)
    if len(pool.queries) < num_folds:
        raise BadInput(
            f"evaluation.folds must be at most the judged queries of {collection.name}, "
            f"{len(pool.queries)}, got {num_folds}"
        )
    shuffled = sorted(pool.queries, key=lambda query_id: (derive(0, "folds", query_id), query_id))
    width = len(str(num_folds))
    folds = {f"fold{n + 1:0{width}}": set(shuffled[n::num_folds]) for n in range(num_folds)}
    dealt = []
    for name in folds:
        members = rotate(folds, name, list(pool.queries))
        splits = {split: _subset(pool, query_ids) for split, query_ids in members.items()}
        splits["train"] = _readable(splits["train"], collection)
        text = json.dumps([collection.content_hash, members])
        content_hash = hashlib.sha256(text.encode()).hexdigest()[:16]
        dealt.append(
            Collection(f"{collection.name}/{name}", content_hash, collection.documents, splits)
        )
    return dealt


def near_duplicates(parts: Sequence[Inputs]) -> str:
    """A line about tested queries of different folds that consist of the same words, whatever their
    order, case and number; empty where there are none."""
    queries_of: dict[frozenset[str], list[tuple[int, str]]] = {}
    for fold, part in enumerate(parts, start=1):
        for query_id, text in part.collection.splits["test"].queries.items():
            words = frozenset(_WORD.findall(text.casefold()))
            queries_of.setdefault(words, []).append((fold, query_id))
    pairs = [
        (first, second)
        for alike in queries_of.values()
        for first, second in combinations(alike, 2)
        if first[0] != second[0]
    ]
    if not pairs:
        return ""
    (fold, query_id), (other_fold, other_id) = pairs[0]
    return (
        f"{len(pairs)} pair(s) of queries in different folds have the same words, such as "
        f"{query_id} (fold {fold}) and {other_id} (fold {other_fold}): one is trained on where the "
        "other is tested"
    )


def _queries_of(collection_name: str) -> str:
    """The collection that the queries come from: the base, or of a fold the pool."""
    base = base_of(collection_name)
    pool = re.split("[/@]", base)[0]
    return pool if pool in NAMED and NAMED[pool].is_pool else base


def _published(base_name: str, num_folds: int) -> list[Collection]:
    """The published folds of a named pool (Robust04: Huston and Croft's); none of others."""
    name = _queries_of(base_name)
    if name not in NAMED or not NAMED[name].is_pool:
        return []
    if "@" in base_name:
        raise BadInput(
            f"{base_name} is one fold of a file; with evaluation.folds name the pool, {name}"
        )
    if num_folds != NUM_FOLDS:
        raise BadInput(
            f"{name} has {NUM_FOLDS} folds of its own, so evaluation.folds={NUM_FOLDS} must hold, "
            f"got {num_folds}"
        )
    return [load_collection(f"{name}/fold{n}") for n in range(1, NUM_FOLDS + 1)]


def _pool(collection: Collection) -> Split:
    """The judged queries of all splits in one."""
    queries: dict[str, str] = {}
    qrels: Qrels = {}
    candidates: Run = {}
    for name, split in collection.splits.items():
        for query_id, text in split.queries.items():
            if query_id in queries:
                raise BadInput(
                    f"{collection.name}: a query may be in one split, found {query_id!r} in {name} "
                    "and in another one"
                )
            queries[query_id], qrels[query_id] = text, split.qrels[query_id]
            candidates[query_id] = split.candidates.get(query_id, {})
    return Split(queries, qrels, candidates)


def _subset(pool: Split, query_ids: Sequence[str]) -> Split:
    return Split(
        {query_id: pool.queries[query_id] for query_id in query_ids},
        {query_id: pool.qrels[query_id] for query_id in query_ids},
        {query_id: pool.candidates[query_id] for query_id in query_ids},
    )


def _readable(split: Split, collection: Collection) -> Split:
    """The split without judgments of documents that training could not read."""
    documents = collection.documents
    qrels = {
        query_id: {doc_id: grade for doc_id, grade in judged.items() if doc_id in documents}
        for query_id, judged in split.qrels.items()
    }
    return replace(split, qrels=qrels)


def _collection_of_trial(path: Path) -> str:
    """The collection of the trial that left `path`, or is the folder `path`."""
    settings = (path if path.is_dir() else path.parent) / "config.json"
    if not settings.is_file():
        return ""
    # Weights of a model folder lie beside a config.json as well, one of another kind.
    return str(json.loads(settings.read_text()).get("collection", ""))
