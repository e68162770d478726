"""One split of a collection as the test split of models that were trained elsewhere."""

from dataclasses import dataclass
from typing import ClassVar

from rank_core.data.transforms.transform import derived
from rank_core.errors import unknown
from rank_core.records import Collection


@dataclass(frozen=True)
class AsTestSet:
    """The queries of `split` as test, and with `dev=true` the collection's own dev queries as dev,
    which then choose the weight of the first stage. Nothing is trained on such a collection."""

    split: str = "test"
    dev: bool = False
    name: ClassVar[str] = "test-set"
    version: ClassVar[int] = 1

    def __call__(self, collection: Collection) -> Collection:
        if self.split not in collection.splits:
            raise unknown(f"split of {collection.name}", self.split, list(collection.splits))
        splits = {"test": collection.splits[self.split]}
        if self.dev and self.split != "dev":
            splits = {"dev": collection.splits["dev"]} | splits
        return derived(collection, self, splits=splits)
