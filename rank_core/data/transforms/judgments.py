"""Fewer training judgments, deep or shallow, at the same cost.

Zhang, Yates and Lin 2021, "Comparing score aggregation approaches for document retrieval with
pretrained transformers", section 3.3: of M judgments exactly round(r M) are kept. Deep keeps about
a fraction r of the queries; shallow keeps about a fraction r of every query's judgments. Dev and
test do not change. With the same seed, a deep sample of a lower rate is part of that of a higher.

A candidate that lost its judgment counts as not relevant, as in the paper's pipeline; with
`hide=true` it is removed from the training candidates.
"""

import heapq
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, cast

import numpy as np

from rank_core.data.transforms.transform import Computed, derived
from rank_core.errors import BadInput
from rank_core.records import Collection, Qrels, Run, Split
from rank_core.seeding import generator

TRAIN = "train"


@dataclass(frozen=True)
class _Sample(ABC):
    """The shared part of deep and shallow samples, which differ in `counts`."""

    rate: float  # fraction of the judgments
    seed: int = 1
    hide: bool = False  # removes candidates that lost their judgment
    name: ClassVar[str]
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise BadInput(f"0 < rate <= 1 must hold for {self.name}, got rate={self.rate}")

    def __call__(self, collection: Collection) -> Collection:
        return _sampled(collection, self)

    @abstractmethod
    def counts(self, num_judged: Mapping[str, int]) -> dict[str, int]:
        """{query: number of judgments kept}."""

    def target(self, num_judged: Mapping[str, int]) -> int:
        """The number of judgments kept in all; raises `BadInput` for none."""
        total = sum(num_judged.values())
        target = round(self.rate * total)
        if target < 1:
            raise BadInput(f"{self.name}: rate={self.rate} of {total} judgments must be at least 1")
        return target


class Deep(_Sample):
    """All judgments of some training queries; the last query may keep only some."""

    name: ClassVar[str] = "deep"

    def counts(self, num_judged: Mapping[str, int]) -> dict[str, int]:
        """{query: number of judgments kept}: all, none, or in one query the remainder."""
        left = self.target(num_judged)
        query_ids = list(num_judged)
        kept = {}
        for number in generator(self.seed, self.name, "queries").permutation(len(query_ids)):
            query_id = query_ids[number]
            kept[query_id] = min(left, num_judged[query_id])
            left -= kept[query_id]
        return kept


class Shallow(_Sample):
    """Some judgments of every training query, at least one."""

    name: ClassVar[str] = "shallow"

    def counts(self, num_judged: Mapping[str, int]) -> dict[str, int]:
        """{query: number of judgments kept}: its share, rounded so that the sum is exact (largest
        remainders, ties at random); a query with none gets one from the query that keeps most.
        Raises `BadInput` for fewer judgments than queries."""
        target = self.target(num_judged)
        if target < len(num_judged):
            raise BadInput(
                "shallow keeps at least one judgment per query, so rate x judgments >= queries "
                f"must hold, got {target} for {len(num_judged)} queries; deep has no such limit"
            )
        shares = np.array([self.rate * count for count in num_judged.values()])
        kept = np.floor(shares).astype(int)
        tie_order = generator(self.seed, self.name, "ties").permutation(len(shares))
        # kept - shares is minus the remainder: the largest remainders come first and get what
        # rounding down has left over.
        order = np.lexsort((tie_order, kept - shares))
        kept[order[: target - int(kept.sum())]] += 1
        largest = [(-int(count), number) for number, count in enumerate(kept)]
        heapq.heapify(largest)
        for empty in np.flatnonzero(kept == 0):
            # From the query that keeps most, so that the shape of the distribution changes least.
            count, number = heapq.heappop(largest)
            kept[number] -= 1
            kept[empty] += 1
            heapq.heappush(largest, (count + 1, number))
        return dict(zip(num_judged, kept.tolist(), strict=True))


def _sampled(collection: Collection, transform: _Sample) -> Collection:
    """The collection with training judgments sampled by the counts of `transform`."""
    train = collection.splits[TRAIN]
    judged = {
        query_id: train.qrels[query_id] for query_id in train.queries if train.qrels.get(query_id)
    }
    kept = transform.counts({query_id: len(of_query) for query_id, of_query in judged.items()})
    qrels: Qrels = {
        query_id: _some(of_query, kept[query_id], transform, query_id)
        for query_id, of_query in judged.items()
        if kept[query_id]
    }
    gone = {
        query_id: frozenset(judged[query_id]) - set(of_query) if transform.hide else frozenset()
        for query_id, of_query in qrels.items()
    }
    candidates = Computed(gone, partial(_not_gone, train.candidates, gone))
    groups = {q: train.groups[q] for q in qrels if q in train.groups}
    split = Split({q: train.queries[q] for q in qrels}, qrels, cast(Run, candidates), groups)
    return derived(collection, transform, splits=dict(collection.splits) | {TRAIN: split})


def _some(
    judged: Mapping[str, int], num_kept: int, transform: _Sample, query_id: str
) -> dict[str, int]:
    """`num_kept` random judgments of a query, in their order."""
    if num_kept == len(judged):
        return dict(judged)
    rng = generator(transform.seed, transform.name, "judgments", query_id)
    order = rng.permutation(len(judged))
    chosen = set(order[:num_kept].tolist())
    return {doc_id: judged[doc_id] for n, doc_id in enumerate(judged) if n in chosen}


def _not_gone(run: Run, gone: Mapping[str, frozenset[str]], query_id: str) -> dict[str, float]:
    """The candidates of a query, without the documents that lost their judgment."""
    ranked, hidden = run.get(query_id, {}), gone[query_id]
    return {doc_id: score for doc_id, score in ranked.items() if doc_id not in hidden}
