"""Documents and queries as texts: how many, how long, which are empty or equal."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from rank_core.chunking.batches import tokenize_queries
from rank_core.chunking.inputs import Inputs
from rank_core.encoders.backbones import load_tokenizer
from rank_core.records import Collection
from rank_core.settings.config import Chunking
from sweeps.commands.doctor.finding import Finding

FEW_QUERIES = 50


def texts(inputs: Inputs, chunking: Chunking) -> Iterator[Finding]:
    """Counts and lengths, then what is empty, double or cut."""
    collection = inputs.collection
    lengths = inputs.tokens.lengths()
    counts = ", ".join(f"{len(one.queries):,} {name}" for name, one in collection.splits.items())
    yield Finding(
        "ok",
        f"{collection.name} {collection.content_hash}: {len(collection.documents):,} documents "
        f"(mean {lengths.mean():,.0f}, median {np.median(lengths):,.0f}, longest {lengths.max():,} "
        f"tokens of {inputs.backbone.name}); queries: {counts}",
    )
    yield from _few_queries(collection)
    yield from _documents(collection)
    yield from _cut_queries(inputs, chunking.max_query_tokens)


def normalised(text: str) -> str:
    """What is left of a text when case and white space mean nothing."""
    return " ".join(text.casefold().split())


def equal_texts(documents: Mapping[str, str]) -> list[list[str]]:
    """The groups of doc_ids whose texts are equal but for case and white space; not the empty."""
    groups: dict[bytes, list[str]] = {}
    for doc_id in documents:
        if text := normalised(documents[doc_id]):
            groups.setdefault(hashlib.blake2b(text.encode(), digest_size=16).digest(), []).append(
                doc_id
            )
    return [group for group in groups.values() if len(group) > 1]


def _few_queries(collection: Collection) -> Iterator[Finding]:
    for name in ("dev", "test"):
        split = collection.splits.get(name)
        if split is not None and len(split.queries) < FEW_QUERIES:
            yield Finding(
                "warning",
                f"{len(split.queries)} {name} queries",
                "real differences stay invisible among so few",
                "`python -m sweeps design DIR` says how many are needed",
            )


def _documents(collection: Collection) -> Iterator[Finding]:
    documents = collection.documents
    empty = [doc_id for doc_id in documents if not documents[doc_id].strip()]
    if empty:
        yield Finding(
            "warning",
            f"{len(empty):,} of {len(documents):,} documents without text, such as {empty[0]}",
            "a model scores them by their emptiness",
            "leave them out of the documents and of the candidates",
        )
    groups = equal_texts(documents)
    unfair = unfair_copies(collection, groups)
    if unfair:
        yield Finding(
            "warning",
            f"a copy of a relevant document is among the candidates and not judged "
            f"relevant; such queries: {len(unfair):,}, first {unfair[0]}",
            "ranking the copy first counts as an error",
            "judge copies alike, or keep one of them",
        )
    if groups:
        double = sum(len(group) - 1 for group in groups)
        yield Finding(
            "note",
            f"{double:,} of {len(documents):,} documents repeat the text of another, such as "
            f"{' and '.join(groups[0][:2])}",
            "their scores tie" + ("" if unfair else ", no judgment contradicts them"),
        )
    elif not empty:
        yield Finding("ok", "no document is empty, no two have the same text")


def unfair_copies(collection: Collection, groups: Iterable[list[str]]) -> list[str]:
    """Queries for which one of two equal documents is relevant and the other a candidate that is
    not."""
    group_of = {doc_id: number for number, group in enumerate(groups) for doc_id in group}
    found = []
    for split in collection.splits.values():
        for query_id in split.queries:
            grades = split.qrels.get(query_id, {})
            relevant = {group_of.get(d) for d, grade in grades.items() if grade > 0} - {None}
            candidates = split.candidates.get(query_id, {}) if relevant else {}
            if any(group_of.get(d) in relevant and grades.get(d, 0) <= 0 for d in candidates):
                found.append(query_id)
    return found


def _cut_queries(inputs: Inputs, limit: int) -> Iterator[Finding]:
    queries = [text for one in inputs.collection.splits.values() for text in one.queries.values()]
    tokens = tokenize_queries(load_tokenizer(inputs.backbone.folder), queries, limit + 1)
    cut = sum(len(ids) > limit for ids in tokens)
    if cut:
        yield Finding(
            "warning" if cut > len(queries) / 20 else "note",
            f"{cut:,} of {len(queries):,} queries have more than {limit} tokens",
            "the model does not see their ends",
            "raise chunking.max_query_tokens",
        )
