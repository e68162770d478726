"""Parts of a pool of judged queries: cross-validation folds, and splits by a hash, where each
query's part is independent of the other queries."""

import hashlib
from collections.abc import Collection as SizedIterable
from collections.abc import Mapping

from rank_core.errors import BadInput, unknown

NUM_FOLDS = 5
SALT = "ranksweep"
FEW_QUERIES = 50
"""Queries of dev or test below which real differences are rarely found."""

FoldSplits = dict[str, list[str]]
"""{split: query_ids}, each in the order of the pool."""


def huston_croft() -> dict[str, set[str]]:
    """The five folds of Robust04 of Huston and Croft (2014), used by most papers."""
    from ir_datasets.datasets.disks45 import ROBUST04_FOLDS

    return {name: set(ROBUST04_FOLDS[name]) for name in sorted(ROBUST04_FOLDS)}


def round_robin(queries: Mapping[str, str]) -> dict[str, set[str]]:
    """Five folds of equal size: query n, in numeric order, is in fold n mod 5, and with it the
    later ones of its text. These folds are our own, for collections without published ones."""
    units: dict[str, list[str]] = {}
    # By length first: the numeric order of ids that are numbers of any size.
    for query_id in sorted(queries, key=lambda name: (len(name), name)):
        units.setdefault(same_text(queries[query_id]), []).append(query_id)
    ordered = list(units.values())
    return {
        f"fold{k + 1}": {query_id for unit in ordered[k::NUM_FOLDS] for query_id in unit}
        for k in range(NUM_FOLDS)
    }


def rotate(folds: Mapping[str, set[str]], chosen: str, pool: SizedIterable[str]) -> FoldSplits:
    """The splits that test the chosen fold, validate on the next (cyclically) and train on the
    others. Raises `BadInput` for an unknown fold, and for overlapping or empty splits."""
    names = list(folds)
    if chosen not in folds:
        raise unknown("fold", chosen, names)
    # Over all folds each is dev once and test once, and a model never chooses on what it is tested
    # on.
    following = names[(names.index(chosen) + 1) % len(names)]
    members = {
        "train": set().union(*(folds[name] for name in names if name not in (chosen, following))),
        "dev": folds[following],
        "test": folds[chosen],
    }
    for split, other_split in (("train", "dev"), ("train", "test"), ("dev", "test")):
        if both := members[split] & members[other_split]:
            raise BadInput(f"fold {chosen}: query {min(both)!r} is in {split} and {other_split}")
    splits = {
        name: [query_id for query_id in pool if query_id in ids] for name, ids in members.items()
    }
    for name, ids in splits.items():
        if not ids:
            raise BadInput(f"fold {chosen}: {name} has no query of the collection")
    return splits


def same_text(text: str) -> str:
    """A text without what does not make it another one: case and white space."""
    return " ".join(text.casefold().split())


def kept_together(
    queries: Mapping[str, str], groups: Mapping[str, str] | None = None
) -> dict[str, str]:
    """{query_id: its unit}: queries of one text, whatever their ids, or of one group are in one
    unit, and so are those that are linked by others. A unit has the first name of its queries', or
    of its groups where queries have such."""
    groups = groups or {}
    first: dict[str, str] = {}  # {name of a query or group: another one of its unit}

    def root(name: str) -> str:
        while first.setdefault(name, name) != name:
            first[name] = first[first[name]]
            name = first[name]
        return name

    of_text: dict[str, str] = {}
    for query_id, text in queries.items():
        group = root(groups.get(query_id, query_id))
        other = root(of_text.setdefault(same_text(text), group))
        low, high = sorted((group, other))
        first[high] = low
    return {query_id: root(groups.get(query_id, query_id)) for query_id in queries}


def query_share(text: str, salt: str = SALT) -> float:
    """A number in [0, 1) from a query's text, ignoring case and white space, so that duplicates get
    the same number: the first 64 bits of SHA-256 of `salt`, a newline and the text."""
    digest = hashlib.sha256(f"{salt}\n{same_text(text)}".encode()).digest()
    # A hash and no shuffle: a query keeps its part when others join or leave the pool.
    return int.from_bytes(digest[:8], "big") / 2**64


def divided(
    queries: Mapping[str, str],
    shares: Mapping[str, float],
    salt: str = SALT,
    groups: Mapping[str, str] | None = None,
) -> dict[str, list[str]]:
    """{part: query_ids}, with sizes approximately proportional to `shares`; with `groups` of all
    queries the group decides in place of the text, and groups that share a text are one. Raises
    `BadInput` for an empty part."""
    if groups:
        groups = kept_together(queries, groups)
    names, total = list(shares), sum(shares.values())
    parts: dict[str, list[str]] = {name: [] for name in names}
    for query_id, text in queries.items():
        place = query_share(groups[query_id] if groups else text, salt) * total
        below = 0.0
        for name in names:
            below += shares[name]
            if place < below or name == names[-1]:
                parts[name].append(query_id)
                break
    if empty := [name for name, ids in parts.items() if not ids]:
        number = len({groups[query_id] for query_id in queries}) if groups else 0
        of, smaller = (f" in {number} groups", ", or smaller groups") if groups else ("", "")
        raise BadInput(
            f"{len(queries)} judged queries{of} are too few: with salt {salt!r}, "
            f"{', '.join(empty[:3])} got none; use larger --shares or another --salt{smaller}"
        )
    return parts
