"""Documents cut at random positions and reordered, so that relevance has no positional bias.

Hofstätter et al. 2021, "Mitigating the position bias of transformer models in passage re-ranking",
as applied to long documents by Boytsov et al. ("Positional bias in long-document ranking"):
training documents are split at random and their parts reordered. Our reading: a document is cut
before a uniformly random word and its two parts are swapped. The document is then a ring with a
random start, so each word is at each position with exactly equal probability. More parts cut that
ring further and shuffle it, which keeps this property.

BM25 ignores word order, so the candidates of the source are kept. A first stage that depends on
word order would have to be run again; this transform does not do that.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar, cast

import numpy as np

from rank_core.data.transforms.transform import Computed, Value, derived
from rank_core.errors import BadInput, unknown
from rank_core.records import Collection, Run, Split
from rank_core.seeding import generator

TRAIN, ALL = "train", "all"
SUFFIX = "~reordered"
"""Suffix of the doc_ids of training copies; dev and test still read the original documents."""

_WORD = re.compile(r"\S+\s*")


@dataclass(frozen=True)
class Debias:
    """Reorders the documents of training, or of all splits.

    With `splits=train` the training split gets reordered copies with ids of their own; with
    `splits=all` every document is reordered under its own id.
    """

    seed: int = 1
    parts: int = 2  # number of parts of a document
    splits: str = TRAIN
    name: ClassVar[str] = "debias"
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.parts < 2:
            raise BadInput(f"parts >= 2 must hold for debias, got parts={self.parts}")
        if self.splits not in (TRAIN, ALL):
            raise unknown("splits of debias", self.splits, (TRAIN, ALL))

    def __call__(self, collection: Collection) -> Collection:
        """The collection with reordered documents, computed when they are read."""
        if self.splits == ALL:
            documents = collection.documents
            reordered = Computed(documents, partial(_reordered, documents, self))
            return derived(collection, self, documents=reordered)
        train = collection.splits[TRAIN]
        copied = Split(
            train.queries,
            {query_id: _renamed(train.qrels, query_id) for query_id in train.qrels},
            # A mapping in place of a dictionary, read on access.
            cast(Run, Computed(train.candidates, partial(_renamed, train.candidates))),
            train.groups,
        )
        splits = {name: split for name, split in collection.splits.items() if name != TRAIN}
        return derived(
            collection,
            self,
            documents=_WithCopies(collection.documents, train, self),
            splits={TRAIN: copied} | splits,
        )

    def reordered(self, doc_id: str, text: str) -> str:
        """The reordered text of a document, a function of (seed, parts, doc_id, text)."""
        return reorder(text, self.parts, generator(self.seed, self.name, doc_id))


def reorder(text: str, parts: int, rng: np.random.Generator) -> str:
    """The words of `text`, with the white space after them, as `parts` reordered parts. No word is
    lost, added or cut. A text with fewer words than parts has one word per part."""
    words = _WORD.findall(text)
    if len(words) < 2:
        return text
    if not words[-1][-1].isspace():
        words[-1] += " "
    start = int(rng.integers(len(words)))  # 0 keeps the order
    ring = words[start:] + words[:start]
    num_cuts = min(parts - 2, len(ring) - 1)
    cuts = np.sort(rng.choice(np.arange(1, len(ring)), size=num_cuts, replace=False)).tolist()
    pieces = [ring[a:b] for a, b in zip([0, *cuts], [*cuts, len(ring)], strict=True)]
    return "".join(
        word for number in rng.permutation(len(pieces)) for word in pieces[number]
    ).rstrip()


def _renamed(by_query: Mapping[str, Mapping[str, Value]], query_id: str) -> dict[str, Value]:
    """The values of a query's documents, for their copies."""
    return {f"{doc_id}{SUFFIX}": value for doc_id, value in by_query[query_id].items()}


def _reordered(documents: Mapping[str, str], settings: Debias, doc_id: str) -> str:
    return settings.reordered(doc_id, documents[doc_id])


@dataclass(frozen=True, eq=False)
class _WithCopies(Mapping[str, str]):
    """All documents, followed by a reordered copy of each that training may read."""

    documents: Mapping[str, str]
    train: Split
    settings: Debias

    @cached_property
    def _sources(self) -> dict[str, str]:
        """{copy: source} of the documents that are judged or ranked in training."""
        ids: set[str] = set()
        for query_id in self.train.queries:
            ids.update(self.train.qrels.get(query_id, ()))
            ids.update(self.train.candidates.get(query_id, ()))
        return {f"{doc_id}{SUFFIX}": doc_id for doc_id in self.documents if doc_id in ids}

    def __getitem__(self, doc_id: str) -> str:
        if source := self._sources.get(doc_id):
            return self.settings.reordered(source, self.documents[source])
        return self.documents[doc_id]

    def __contains__(self, doc_id: object) -> bool:
        return doc_id in self._sources or doc_id in self.documents

    def __iter__(self) -> Iterator[str]:
        yield from self.documents
        yield from self._sources

    def __len__(self) -> int:
        return len(self.documents) + len(self._sources)
