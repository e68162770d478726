"""What a positional analysis reads: relevant passages from where they are known, and pairs of a
query and a relevant document."""

import json
from collections.abc import Sequence
from pathlib import Path

from rank_core.data.load import load_collection
from rank_core.data.made.python_docs import NAME as PYTHON_DOCS
from rank_core.data.made.python_docs import training_passages
from rank_core.data.transforms.expression import (
    Step,
    apply_transforms,
    make_transform,
    parse_collection_expression,
)
from rank_core.data.transforms.far_relevant import FarRelevant
from rank_core.data.trec import read_lines
from rank_core.errors import BadInput, unknown
from rank_core.records import Collection
from rank_core.seeding import generator
from sweeps.positions.positions import Passage, relevant_documents
from sweeps.positions.rsv import Pair


def split_of(collection: Collection, name: str) -> str:
    """The split's name, or that of the collection's first split where none is given."""
    if not name:
        return next(iter(collection.splits))
    if name not in list(collection.splits):
        raise unknown(f"split of {collection.name}", name, collection.splits)
    return name


def relevant_pairs(
    collection: Collection, split: str, *, max_pairs: int, least_grade: int, seed: int
) -> list[Pair]:
    """A sample of at most `max_pairs` (0: all) queries and relevant documents that have a text."""
    judged = collection.splits[split]
    known = [
        (query_id, doc_id)
        for query_id, doc_id in relevant_documents(judged, least_grade)
        if doc_id in collection.documents
    ]
    if not known:
        raise BadInput(
            f"{split} of {collection.name} must judge a document of grade {least_grade} or more, "
            "found none with a text"
        )
    if 0 < max_pairs < len(known):
        order = generator(seed, "relevant-pairs", split).permutation(len(known))
        known = [known[number] for number in sorted(order[:max_pairs].tolist())]
    return [
        Pair(query_id, judged.queries[query_id], doc_id, collection.documents[doc_id])
        for query_id, doc_id in known
    ]


def known_passages(text: str, collection: Collection, split: str) -> list[Passage]:
    """The relevant passages of a collection that was made from passages; none of other ones."""
    base, steps = parse_collection_expression(text)
    for number, (name, settings) in enumerate(steps):
        if name == FarRelevant.name:
            return _of_far_relevant(base, steps[:number], make_transform(name, settings))
    if base == PYTHON_DOCS:
        bodies = dict(training_passages())
        queries = collection.splits[split].queries
        return [Passage(q, bodies[asked]) for q, asked in queries.items() if asked in bodies]
    return []


def _of_far_relevant(base: str, steps: Sequence[Step], transform: object) -> list[Passage]:
    assert isinstance(transform, FarRelevant)
    source = apply_transforms(load_collection(base), steps)
    return [
        Passage(span["query_id"], source.documents[span["passage_id"]])
        for span in transform.spans(source)
    ]


def read_passages(path: Path) -> list[Passage]:
    """The passages of a file with one JSON object {query_id, text} on each line."""
    passages = []
    for number, line in read_lines(path):
        try:
            record = json.loads(line)
            passages.append(Passage(str(record["query_id"]), str(record["text"])))
        except (ValueError, KeyError, TypeError):
            raise BadInput(
                f"{path}:{number}: a line must be one JSON object with query_id and text, "
                f"found {line[:80]!r}"
            ) from None
    return passages
