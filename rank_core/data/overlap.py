"""What the splits of a collection share, through which a model is tested on what it was trained on:
relevant documents, texts of queries, groups of queries."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from rank_core.data.folds import same_text
from rank_core.data.transforms.debias import SUFFIX
from rank_core.records import Collection, Qrels, Split

HIGH_SHARE = 0.1
"""The share of test's relevant documents seen in training above which commands warn."""
KEEP_APART = (
    "`ranksweep split --group doc_id` keeps queries with a common relevant document in one split, "
    "`--group FIELD` (or a file) those of a subject"
)
EARLIER = (("dev", "train"), ("test", "train"), ("test", "dev"))
"""(split, another that is used before it)."""


class Seen(NamedTuple):
    """The relevant documents of a split, and those of them that training has as relevant ones."""

    seen: int
    documents: int
    split: str = "test"

    @property
    def is_high(self) -> bool:
        """True where a test measures in part what was learned by heart."""
        return self.seen > HIGH_SHARE * self.documents

    @property
    def text(self) -> str:
        """The numbers as a sentence."""
        share = self.seen / max(1, self.documents)
        number = f"{self.seen:,} of {self.documents:,}"
        return (
            f"{share:.1%} of {self.split}'s relevant documents ({number}) are relevant to training "
            "queries too"
        )


def seen_in_training(train: Qrels, test: Qrels, split: str = "test") -> Seen:
    """The distinct relevant documents of `test`, and how many of them are relevant in `train`;
    `split` names the first."""
    tested = {doc_id for judged in test.values() for doc_id, grade in judged.items() if grade > 0}
    seen = set[str]()
    for judged in train.values():
        # The copies of `debias` are the same documents.
        relevant = (doc_id.removesuffix(SUFFIX) for doc_id, grade in judged.items() if grade > 0)
        seen.update(doc_id for doc_id in relevant if doc_id in tested)
    return Seen(len(seen), len(tested), split)


def seen_by(collections: Iterable[Collection]) -> Seen | None:
    """The same over all `collections`: one, or its folds. None without training queries."""
    found = [
        seen_in_training(splits["train"].qrels, splits["test"].qrels)
        for splits in (collection.splits for collection in collections)
        if "train" in splits and "test" in splits
    ]
    seen, documents = sum(one.seen for one in found), sum(one.documents for one in found)
    return Seen(seen, documents) if found else None


def shared_texts(queries: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str, list[str]]]:
    """(split, an earlier one, ids of its queries that have the text of one there), for pairs of
    splits with such queries; texts are equal except in case and white space."""
    texts = {
        name: {query_id: same_text(text) for query_id, text in of_split.items()}
        for name, of_split in queries.items()
    }
    for name, earlier in EARLIER:
        earlier_texts = set(texts.get(earlier, {}).values())
        if same := [
            query_id for query_id, text in texts.get(name, {}).items() if text in earlier_texts
        ]:
            yield name, earlier, same


def shared_groups(splits: Mapping[str, Split]) -> list[str]:
    """The groups that have queries in several splits, in alphabetic order."""
    places: dict[str, set[str]] = {}
    for name, split in splits.items():
        for group in split.groups.values():
            places.setdefault(group, set()).add(name)
    return sorted(group for group, names in places.items() if len(names) > 1)
