"""Which query gets which document when FarRelevant is made, and which passages fill documents."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rank_core.errors import BadInput
from rank_core.records import Collection
from rank_core.seeding import generator

MEASURED_FIRST = ("test", "dev")
"""A query text that occurs in several splits stays where it is measured."""

STREAM = "far-relevant"


class Plan(NamedTuple):
    """What one document is made for."""

    split: str
    query_id: str
    doc_id: str
    passage_id: str


def plan_documents(
    collection: Collection, *, longest: int, max_queries: int, seed: int
) -> list[Plan]:
    """What each document is made for.

    A query takes part if a passage of at most `longest` words is relevant to it and to no other
    query; among several the highest grade counts, then chance. No document answers a query that it
    is not judged for, and no query, passage or document is shared between splits.
    """
    asked = _without_repeated_queries(collection)
    uses = Counter(
        passage_id
        for split, query_ids in asked.items()
        for query_id in query_ids
        for passage_id in _relevant(collection, split, query_id)
    )
    chosen: list[tuple[str, str, str]] = []
    for split, query_ids in asked.items():
        pairs = []
        for query_id in query_ids:
            own = {
                passage_id: grade
                for passage_id, grade in _relevant(collection, split, query_id).items()
                if uses[passage_id] == 1
                and 1 <= len(collection.documents[passage_id].split()) <= longest
            }
            if own:
                rng = generator(seed, STREAM, "passage", query_id)
                pairs.append((split, query_id, _best(own, rng)))
        if not pairs:
            raise BadInput(
                f"{STREAM} needs queries with a relevant passage of their own of 1 to {longest} "
                f"words; none of the {len(query_ids)} queries of {split} has one"
            )
        chosen += _some(pairs, max_queries, generator(seed, STREAM, "queries", split))
    # Ids tell nothing about queries: ties are broken by doc_id.
    numbers = generator(seed, STREAM, "doc_ids").permutation(len(chosen))
    return [
        Plan(split, query_id, f"f{number:07d}", passage_id)
        for (split, query_id, passage_id), number in zip(chosen, numbers, strict=True)
    ]


def _relevant(collection: Collection, split: str, query_id: str) -> dict[str, int]:
    """{passage_id: grade} of a query, as far as the passages exist."""
    judged = collection.splits[split].qrels.get(query_id, {})
    return {
        passage_id: grade
        for passage_id, grade in judged.items()
        if grade > 0 and passage_id in collection.documents
    }


def unanswering(collection: Collection) -> list[str]:
    """The passages that are relevant to no query of any split: those that fill documents."""
    relevant = {
        passage_id
        for split in collection.splits.values()
        for judged in split.qrels.values()
        for passage_id, grade in judged.items()
        if grade > 0
    }
    return [passage_id for passage_id in collection.documents if passage_id not in relevant]


def _best(own: Mapping[str, int], rng: np.random.Generator) -> str:
    top = max(own.values())
    best = [passage_id for passage_id, grade in own.items() if grade == top]
    return best[rng.integers(len(best))]


def _some(
    pairs: Sequence[tuple[str, str, str]], limit: int, rng: np.random.Generator
) -> list[tuple[str, str, str]]:
    """At most `limit` of them (0: all), in the order they had."""
    if not 0 < limit < len(pairs):
        return list(pairs)
    return [pairs[number] for number in sorted(rng.permutation(len(pairs))[:limit].tolist())]


def _without_repeated_queries(collection: Collection) -> dict[str, list[str]]:
    """{split: query_ids}, each text once."""
    measured = [split for split in MEASURED_FIRST if split in collection.splits]
    others = [split for split in collection.splits if split not in MEASURED_FIRST]
    seen: set[str] = set()
    kept: dict[str, list[str]] = {}
    for split in (*measured, *others):
        kept[split] = []
        for query_id, text in collection.splits[split].queries.items():
            key = " ".join(text.lower().split())
            if key not in seen:
                seen.add(key)
                kept[split].append(query_id)
    return {split: kept[split] for split in collection.splits}
