"""FarRelevant from any collection of passages: long documents with a late relevant passage.

Boytsov et al., "Positional bias in long-document ranking", appendix C.2. Each query gets one
document: one of its relevant passages among passages that are relevant to no query. The first stage
is BM25 over these documents. With `first_position=0` the relevant passage may be anywhere, as in
documents for training without the bias.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from rank_core import first_stage
from rank_core.cache import cached_directory
from rank_core.data.store import (
    STORE_VERSION,
    DocumentStore,
    open_split,
    write_document_store,
    write_split,
)
from rank_core.data.transforms.transform import derived, derived_hash
from rank_core.data.trec import read_lines, write_lines
from rank_core.errors import BadInput
from rank_core.parsing import parsed_json
from rank_core.records import Collection, Split
from rank_core.seeding import generator

_DOCUMENTS, _SPANS = "documents", "spans.jsonl.gz"

MEASURED_FIRST = ("test", "dev")
"""Splits that keep a query text which occurs in several splits."""

STREAM = "far-relevant"


@dataclass(frozen=True)
class FarRelevant:
    """The paper's construction, with lengths in white-space words. A text has at least as many
    tokens as words, so passages start at least as late in tokens."""

    seed: int = 1
    first_position: int = 512  # words before the relevant passage
    max_length: int = 1431  # words of a document: 3 x 477
    max_queries: int = 0  # per split; 0: all
    as_published: bool = field(default=False, init=False, repr=False)  # keeps content hashes
    name: ClassVar[str] = "far-relevant"
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not 0 <= self.first_position < self.max_length:
            raise BadInput(
                "0 <= first_position < max_length must hold for far-relevant, "
                f"got first_position={self.first_position}, max_length={self.max_length}"
            )
        if self.max_queries < 0:
            raise BadInput(f"max_queries >= 0 must hold, got max_queries={self.max_queries}")

    def __call__(self, collection: Collection) -> Collection:
        """The collection of long documents, built once and cached."""
        documents, splits = _open(self._folder(collection), tuple(collection.splits))
        return derived(
            collection,
            self,
            documents=documents,
            splits=splits,
            depends_on=_first_stage(collection),
            first_stage="BM25",
        )

    def spans(self, collection: Collection) -> list[dict[str, Any]]:
        """The positions of the relevant passages: {doc_id, query_id, passage_id, word_start,
        num_words, drawn_length} of each document made from `collection`."""
        path = self._folder(collection) / _SPANS
        return [parsed_json(line) for _, line in read_lines(path)]

    def _folder(self, collection: Collection) -> Path:
        key = derived_hash(collection, self, _first_stage(collection))

        def build(folder: Path) -> None:
            _build(folder, collection, self)

        return cached_directory("transforms", f"{self.name}-{STORE_VERSION}-{key}", build)


class PlannedDocument(NamedTuple):
    """The query and passage of a document to be made."""

    split: str
    query_id: str
    doc_id: str
    passage_id: str


def _build(folder: Path, collection: Collection, settings: FarRelevant) -> None:
    pool = unanswering(collection)
    words = (len(collection.documents[doc_id].split()) for doc_id in pool)
    total = next((sum_ for sum_ in accumulate(words) if sum_ >= settings.first_position), None)
    if total is None and settings.first_position:
        raise BadInput(
            f"{settings.name} fills the first first_position={settings.first_position} words of a "
            f"document with passages relevant to no query; of the {len(collection.documents):,} "
            f"documents of {collection.name} {len(pool):,} are, which have fewer words: use a "
            "collection of passages, or a lower first_position"
        )
    plans = plan_documents(
        collection,
        longest=settings.max_length - settings.first_position,
        max_queries=settings.max_queries,
        seed=settings.seed,
    )
    spans: list[dict[str, Any]] = []
    (folder / _DOCUMENTS).mkdir()
    store = write_document_store(
        folder / _DOCUMENTS,
        _documents(plans, pool, collection.documents, settings, spans),
        source=f"{settings.name} of {collection.name}",
    )
    write_lines(folder / _SPANS, (json.dumps(span) for span in spans))
    index = first_stage.Bm25Index(store, first_stage.TextAnalysis(collection.language))
    for name, split in collection.splits.items():
        relevant = {plan.query_id: plan.doc_id for plan in plans if plan.split == name}
        queries = {query_id: " ".join(split.queries[query_id].split()) for query_id in relevant}
        qrels = {query_id: {doc_id: 1} for query_id, doc_id in relevant.items()}
        groups = {q: split.groups[q] for q in queries} if split.groups else {}
        write_split(folder / name, queries, qrels, index.run(queries).items(), store, groups)


def _documents(
    plans: Sequence[PlannedDocument],
    pool: Sequence[str],
    passages: Mapping[str, str],
    settings: FarRelevant,
    spans: list[dict[str, Any]],
) -> Iterator[tuple[str, str]]:
    """(doc_id, text) in the order of doc_ids; a record of each is added to `spans`."""
    for plan in sorted(plans, key=lambda plan: plan.doc_id):
        rng = generator(settings.seed, STREAM, "document", plan.query_id)
        text, *numbers = bury(
            passages[plan.passage_id],
            (passages[doc_id] for doc_id in _draw(pool, rng)),
            first_position=settings.first_position,
            max_length=settings.max_length,
            rng=rng,
        )
        ids = {name: getattr(plan, name) for name in ("doc_id", "query_id", "passage_id")}
        spans.append(ids | dict(zip(Buried._fields[1:], numbers, strict=True)))
        yield plan.doc_id, text


def _draw(pool: Sequence[str], rng: np.random.Generator) -> Iterator[str]:
    """The pool in random order, at a cost proportional to what is used."""
    seen: set[int] = set()
    # By rejection: a document needs a dozen of perhaps millions of passages, and a permutation
    # would touch all.
    while len(seen) < len(pool):
        number = int(rng.integers(len(pool)))
        if number not in seen:
            seen.add(number)
            yield pool[number]


@lru_cache(maxsize=4)
def _open(folder: Path, names: tuple[str, ...]) -> tuple[DocumentStore, dict[str, Split]]:
    documents = DocumentStore(folder / _DOCUMENTS)
    return documents, {name: open_split(folder / name, documents) for name in names}


def _first_stage(collection: Collection) -> str:
    """The part of the content hash that identifies the candidates."""
    recipe = first_stage.recipe(first_stage.TextAnalysis(collection.language))
    return json.dumps([recipe, first_stage.DEPTH, first_stage.K1, first_stage.B])


def plan_documents(
    collection: Collection, *, longest: int, max_queries: int, seed: int
) -> list[PlannedDocument]:
    """The query and passage of each document.

    A query is used if a passage of at most `longest` words is relevant to it and to no other query;
    of several, one with the highest grade is drawn. No document answers a query that it is not
    judged for, and splits share no query, passage or document. Raises `BadInput` for a split
    without such queries.
    """
    relevant = {
        split: {
            query_id: _relevant(collection, collection.splits[split].qrels.get(query_id, {}))
            for query_id in query_ids
        }
        for split, query_ids in _without_repeated_queries(collection).items()
    }
    # Over all splits: a passage that answers two queries would be in two documents, one of them
    # unjudged.
    uses = Counter(chain.from_iterable(of for split in relevant.values() for of in split.values()))
    chosen: list[tuple[str, str, str]] = []
    for split, of_split in relevant.items():
        pairs = []
        for query_id, judged in of_split.items():
            fitting = {
                passage_id: grade
                for passage_id, grade in judged.items()
                if uses[passage_id] == 1
                and 1 <= len(collection.documents[passage_id].split()) <= longest
            }
            best = [name for name, grade in fitting.items() if grade == max(fitting.values())]
            if best:
                rng = generator(seed, STREAM, "passage", query_id)
                pairs.append((split, query_id, best[rng.integers(len(best))]))
        if not pairs:
            raise BadInput(
                f"{STREAM} needs queries with a relevant passage of 1 to {longest} words that is "
                f"relevant to no other; none of the {len(of_split)} queries of {split} has one"
            )
        if 0 < max_queries < len(pairs):
            order = generator(seed, STREAM, "queries", split).permutation(len(pairs))
            pairs = [pairs[number] for number in sorted(order[:max_queries].tolist())]
        chosen += pairs
    # Ids must not depend on queries, because ties are broken by doc_id.
    numbers = generator(seed, STREAM, "doc_ids").permutation(len(chosen))
    return [
        PlannedDocument(split, query_id, f"f{number:07d}", passage_id)
        for (split, query_id, passage_id), number in zip(chosen, numbers, strict=True)
    ]


def _relevant(collection: Collection, judged: Mapping[str, int]) -> dict[str, int]:
    """{passage_id: grade} of a query's relevant passages that exist."""
    known = collection.documents
    return {name: grade for name, grade in judged.items() if grade > 0 and name in known}


def unanswering(collection: Collection) -> list[str]:
    """The passages that are relevant to no query of any split, with which documents are filled."""
    splits = collection.splits.values()
    judged = [judged for split in splits for judged in split.qrels.values()]
    relevant = {name for of_query in judged for name, grade in of_query.items() if grade > 0}
    return [passage_id for passage_id in collection.documents if passage_id not in relevant]


def _without_repeated_queries(collection: Collection) -> dict[str, list[str]]:
    """{split: query_ids}, with each text in only one split, once."""
    seen: set[str] = set()
    kept: dict[str, list[str]] = {split: [] for split in collection.splits}
    # Test and dev keep a repeated query, which training loses: a query must not be learned and
    # tested.
    for split in sorted(kept, key=lambda name: (*MEASURED_FIRST, name).index(name)):
        for query_id, text in collection.splits[split].queries.items():
            key = " ".join(text.lower().split())
            if key not in seen:
                seen.add(key)
                kept[split].append(query_id)
    return kept


class Buried(NamedTuple):
    """A document and the position of its relevant passage, in white-space words."""

    text: str
    word_start: int  # words before the relevant passage
    num_words: int  # in the relevant passage
    drawn_length: int  # intended length of the document


def bury(
    relevant: str,
    distractors: Iterable[str],
    *,
    first_position: int,
    max_length: int,
    rng: np.random.Generator,
) -> Buried:
    """A document that contains `relevant`, at least `first_position` words after its start.

    Its length is drawn uniformly from `first_position` + the passage's words to `max_length`.
    Distractors fill it up to `first_position`; the next ones, as many as the length allows, follow
    in random order together with the relevant passage. A distractor before it that would exceed
    `max_length` is cut. Raises `BadInput` for a passage that does not fit and for too few
    distractors.
    """
    num_words = len(relevant.split())
    if not 1 <= num_words <= max_length - first_position:
        raise BadInput(
            "1 <= words of the relevant passage <= max_length - first_position must hold, "
            f"got {num_words} words, first_position={first_position}, max_length={max_length}"
        )
    length = int(rng.integers(first_position + num_words, max_length + 1))
    source = iter(distractors)
    before = list(_fill(source, first_position, max_length - num_words))
    offset = sum(len(passage.split()) for passage in before)
    # What follows is whole; only the part before the passage may be cut, so that the passage begins
    # late enough.
    after = list(_follow(source, length - offset - num_words))
    slot = int(rng.integers(len(after) + 1))
    order = [after[number] for number in rng.permutation(len(after))]
    offset += sum(len(passage.split()) for passage in order[:slot])
    parts = (*before, *order[:slot], relevant, *order[slot:])
    return Buried(" ".join(part.strip() for part in parts), offset, num_words, length)


def _fill(distractors: Iterator[str], least: int, most: int) -> Iterator[str]:
    """Distractors up to at least `least` words, the last one cut to at most `most` in all."""
    total = 0
    while total < least:
        passage = next(distractors, None)
        if passage is None:
            raise BadInput(f"the distractors have {total} words in all, and {least} are needed")
        words = passage.split()
        if total + len(words) > most:
            passage = " ".join(words[: most - total])
        total += len(words)
        if words:
            yield passage


def _follow(distractors: Iterator[str], room: int) -> Iterator[str]:
    """Distractors before the first that exceeds `room` words."""
    for passage in distractors:
        room -= len(passage.split())
        if room < 0:
            return
        yield passage
