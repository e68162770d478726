"""Cross-validation folds: which queries of a pool are trained on, validated on and tested."""

from collections.abc import Collection as SizedIterable
from collections.abc import Iterable, Mapping

from rank_core.errors import BadInput, unknown

NUM_FOLDS = 5

FoldSplits = dict[str, list[str]]
"""{split: query_ids}, each in the order of the pool."""


def huston_croft() -> dict[str, set[str]]:
    """The five folds of Robust04 of Huston and Croft (2014), used by most papers."""
    from ir_datasets.datasets.disks45 import ROBUST04_FOLDS

    return {name: set(query_ids) for name, query_ids in ROBUST04_FOLDS.items()}


def round_robin(query_ids: Iterable[str]) -> dict[str, set[str]]:
    """Five folds of equal size: query n, in numeric order, is in fold n mod 5. These folds are our
    own, for collections without published ones."""
    ordered = sorted(query_ids, key=lambda name: (len(name), name))
    return {f"fold{k + 1}": set(ordered[k::NUM_FOLDS]) for k in range(NUM_FOLDS)}


def rotate(folds: Mapping[str, set[str]], chosen: str, pool: SizedIterable[str]) -> FoldSplits:
    """The splits that test the chosen fold, validate on the next (cyclically) and train on the
    others. Raises `BadInput` for an unknown fold."""
    names = sorted(folds)
    if chosen not in folds:
        raise unknown("fold", chosen, names)
    following = names[(names.index(chosen) + 1) % len(names)]
    members = {
        "train": set().union(*(folds[name] for name in names if name not in (chosen, following))),
        "dev": folds[following],
        "test": folds[chosen],
    }
    return _of_pool(members, pool, f"fold {chosen}")


def _of_pool(members: Mapping[str, set[str]], pool: SizedIterable[str], where: str) -> FoldSplits:
    """The members that are in the pool; raises `BadInput` for overlapping or empty splits."""
    for split, other_split in (("train", "dev"), ("train", "test"), ("dev", "test")):
        if both := members[split] & members[other_split]:
            raise BadInput(
                f"{where}: query {min(both)!r} is in {split} and {other_split}; a query may be in "
                "only one split"
            )
    splits = {
        name: [query_id for query_id in pool if query_id in ids] for name, ids in members.items()
    }
    for name, ids in splits.items():
        if not ids:
            raise BadInput(f"{where}: {name} has no query of the collection")
    return splits
