"""What a named collection is made of: datasets for its splits, or a pool with folds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

POOL = "pool"


@dataclass(frozen=True)
class Part:
    """The judged queries of one ir_datasets id."""

    dataset_id: str
    query_field: str | None = None  # title or description, where topics have several
    prefix: str = ""  # put before query ids, so that pooled test sets cannot clash
    candidates: tuple[str, ...] | None = None  # ids whose ranked documents are used, not its own

    @property
    def ranked_ids(self) -> tuple[str, ...]:
        """The ids whose ranked documents may be candidates; none for BM25."""
        return (self.dataset_id,) if self.candidates is None else self.candidates


@dataclass(frozen=True)
class Recipe:
    """The parts of each split, or of one pool that `folds` divides."""

    splits: Mapping[str, tuple[Part, ...]]
    folds: Literal["huston-croft", "round-robin"] = "round-robin"
    # Collections of many millions of pages: only documents that are candidates or relevant are
    # stored, and there must be a run file where the dataset itself ranks none.
    ranked_only: bool = False

    @property
    def parts(self) -> list[Part]:
        """All parts, of all splits."""
        return [part for parts in self.splits.values() for part in parts]

    @property
    def is_pool(self) -> bool:
        """Whether the splits come from folds."""
        return set(self.splits) == {POOL}


def splits(
    train: str | None = None, dev: str | None = None, test: str | None = None
) -> dict[str, tuple[Part, ...]]:
    """The splits that are given, each of one id."""
    given = {"train": train, "dev": dev, "test": test}
    return {name: (Part(dataset_id),) for name, dataset_id in given.items() if dataset_id}


def pool(dataset_ids: Iterable[str], query_field: str | None = None) -> dict[str, tuple[Part, ...]]:
    """One pool of the queries of several ids."""
    return {POOL: tuple(Part(dataset_id, query_field) for dataset_id in dataset_ids)}
