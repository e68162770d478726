"""A collection of one's own, and a transform of any collection."""

import random
from dataclasses import dataclass
from typing import ClassVar

from rank_core.data.transforms.transform import derived
from ranksweep import Collection, Split

COLOURS = "amber azure coral ebony indigo ivory jade olive ruby sepia".split()
THINGS = "bridge candle garden harbour lantern meadow mirror river tower window".split()


def notes() -> Collection:
    """100 notes, each about a thing of one colour, which is told near their end."""
    rng = random.Random(1)
    documents, splits = {}, {}
    for thing in THINGS:
        for colour in COLOURS:
            other = " ".join(rng.choices(THINGS, k=60))
            documents[f"{colour}-{thing}"] = f"{other} and the {thing} was {colour} at last"
    for name, colours in (("train", COLOURS[:6]), ("dev", COLOURS[6:8]), ("test", COLOURS[8:])):
        asked = {f"{c}-{t}": f"{c} {t}" for c in colours for t in THINGS}
        splits[name] = Split(
            queries=asked,
            qrels={query_id: {query_id: 1} for query_id in asked},
            candidates={},  # then BM25 ranks
        )
    # An empty hash is computed from all texts and judgments: it names what was measured.
    return Collection(name="notes", content_hash="", documents=documents, splits=splits)


@dataclass(frozen=True)
class FirstWords:
    """Documents cut to their first words: `own_collection:notes|own_collection:FirstWords`."""

    name: ClassVar[str] = "first-words"
    version: ClassVar[int] = 1
    number: int = 40

    def __call__(self, collection: Collection) -> Collection:
        """The same queries over shorter documents."""
        cut = {d: " ".join(text.split()[: self.number]) for d, text in collection.documents.items()}
        return derived(collection, self, documents=cut)
