"""Documents and queries as texts: number, length, and those that are empty, equal or similar. A
test query that is in the training queries in other words measures nothing.
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from rank_core.chunking.batches import tokenize_queries
from rank_core.chunking.inputs import Inputs
from rank_core.encoders.backbones import load_tokenizer
from rank_core.records import Collection
from rank_core.settings.config import Chunking
from sweeps.commands.doctor.finding import Finding

FEW_QUERIES = 50

ALIKE = 0.8
"""Weighted share of common words at which two queries are similar."""

_WORD = re.compile(r"\w+")
_FROM = {"dev": ("train",), "test": ("train", "dev")}


def texts(inputs: Inputs, chunking: Chunking) -> Iterator[Finding]:
    """Counts and lengths, then empty, repeated and truncated texts."""
    collection = inputs.collection
    lengths = inputs.tokens.lengths()
    counts = ", ".join(
        f"{len(split.queries):,} {name}" for name, split in collection.splits.items()
    )
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
    """The text without case and with single spaces."""
    return " ".join(text.casefold().split())


def equal_texts(documents: Mapping[str, str]) -> list[list[str]]:
    """The groups of doc_ids whose texts are equal except in case and white space; without empty
    texts."""
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
                "too few to detect real differences",
                "judge more queries, or test all of them with evaluation.folds=5",
            )


def _documents(collection: Collection) -> Iterator[Finding]:
    documents = collection.documents
    empty = [doc_id for doc_id in documents if not documents[doc_id].strip()]
    if empty:
        yield Finding(
            "warning",
            f"{len(empty):,} of {len(documents):,} documents without text, such as {empty[0]}",
            "their scores mean nothing",
            "remove them from the documents and the candidates",
        )
    groups = equal_texts(documents)
    unfair = unfair_copies(collection, groups)
    if unfair:
        yield Finding(
            "warning",
            f"a copy of a relevant document is among the candidates and not judged "
            f"relevant; such queries: {len(unfair):,}, first {unfair[0]}",
            "a copy that is ranked first counts as an error",
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
    unfair = []
    for split in collection.splits.values():
        for query_id in split.queries:
            grades = split.qrels.get(query_id, {})
            relevant = {group_of.get(d) for d, grade in grades.items() if grade > 0} - {None}
            candidates = split.candidates.get(query_id, {}) if relevant else {}
            if any(group_of.get(d) in relevant and grades.get(d, 0) <= 0 for d in candidates):
                unfair.append(query_id)
    return unfair


def _cut_queries(inputs: Inputs, limit: int) -> Iterator[Finding]:
    queries = [
        text for split in inputs.collection.splits.values() for text in split.queries.values()
    ]
    tokens = tokenize_queries(load_tokenizer(inputs.backbone.folder), queries, limit + 1)
    cut = sum(len(ids) > limit for ids in tokens)
    if cut:
        yield Finding(
            "warning" if cut > len(queries) / 20 else "note",
            f"{cut:,} of {len(queries):,} queries have more than {limit} tokens",
            "the model does not read their ends",
            "raise chunking.max_query_tokens",
        )


def similar_queries(collection: Collection) -> Iterator[Finding]:
    """The findings on dev queries that are in train, and test queries that are in either."""
    any_alike = False
    for name, earlier in _FROM.items():
        for split in earlier:
            if name not in collection.splits or split not in collection.splits:
                continue
            ours, theirs = collection.splits[name].queries, collection.splits[split].queries
            equal = equal_queries(ours, theirs)
            alike = [pair for pair in alike_queries(ours, theirs) if pair[0] not in equal]
            any_alike = any_alike or bool(equal or alike)
            if equal:
                query_id = next(iter(equal))
                yield _same_question(
                    "warning",
                    f"with the text of a {split} query",
                    name,
                    f"{len(equal):,} of {len(ours):,}",
                    query_id,
                )
            if alike:
                number = f"{len(alike):,} of {len(ours):,}"
                what = f"close to a {split} query"
                yield _same_question("note", what, name, number, f"{alike[0][0]} and {alike[0][1]}")
    if not any_alike and len(collection.splits) > 1:
        yield Finding("ok", "no two splits have similar queries")


def equal_queries(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, None]:
    """The query_ids whose text, except for case and white space, is in the other split."""
    seen = {normalised(text) for text in theirs.values()}
    return {query_id: None for query_id, text in ours.items() if normalised(text) in seen}


def alike_queries(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[tuple[str, str]]:
    """(query_id, the first similar query_id of the other split), by the weighted Jaccard
    coefficient. Rare words weigh more, so that the words of a template hardly count. Exact: two
    similar queries share a word before the last `ALIKE` of their weight, rarest words first (prefix
    filtering; Chaudhuri, Ganti & Kaushik 2006), so few pairs are formed.
    """
    words = {name: frozenset(_WORD.findall(text.casefold())) for name, text in theirs.items()}
    own_words = {name: frozenset(_WORD.findall(text.casefold())) for name, text in ours.items()}
    counts = Counter(
        word for of_query in [*words.values(), *own_words.values()] for word in of_query
    )
    total = len(words) + len(own_words)
    weight = {word: math.log(1 + total / count) for word, count in counts.items()}
    index: dict[str, list[str]] = {}
    for name, of_query in words.items():
        for word in _prefix(of_query, weight):
            index.setdefault(word, []).append(name)
    pairs = []
    for name, of_query in own_words.items():
        near = dict.fromkeys(n for word in _prefix(of_query, weight) for n in index.get(word, ()))
        first = next((n for n in near if _overlap(of_query, words[n], weight) >= ALIKE), None)
        if first is not None:
            pairs.append((name, first))
    return pairs


def _prefix(words: frozenset[str], weight: Mapping[str, float]) -> Sequence[str]:
    """The rarest words; every similar query has one of them."""
    ordered = sorted(words, key=lambda word: (-weight[word], word))
    rest = total = sum(weight[word] for word in ordered)
    for number, word in enumerate(ordered):
        if rest < ALIKE * total - 1e-9:  # sums in another order differ in the last digits
            return ordered[:number]
        rest -= weight[word]
    return ordered


def _overlap(ours: frozenset[str], theirs: frozenset[str], weight: Mapping[str, float]) -> float:
    union = sum(weight[word] for word in ours | theirs)
    return sum(weight[word] for word in ours & theirs) / union if union else 0.0


def _same_question(level: str, relation: str, name: str, number: str, example: str) -> Finding:
    return Finding(
        level,
        f"{name}: {number} queries {relation}, such as {example}",
        "a model may have been trained on the answer",
        "put such pairs into one split",
    )
