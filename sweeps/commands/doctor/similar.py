"""Queries of different splits that are the same question: what training may have seen of a test."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rank_core.records import Collection
from sweeps.commands.doctor.finding import Finding
from sweeps.commands.doctor.texts import normalised

ALIKE = 0.8
"""Share of the words of two queries, by weight, that both have: alike from here on."""

_WORD = re.compile(r"\w+")
_FROM = {"dev": ("train",), "test": ("train", "dev")}


def similar_queries(collection: Collection) -> Iterator[Finding]:
    """What of dev is in train, and what of test is in either."""
    found = False
    for name, earlier in _FROM.items():
        for other in earlier:
            if name not in collection.splits or other not in collection.splits:
                continue
            ours, theirs = collection.splits[name].queries, collection.splits[other].queries
            equal = equal_queries(ours, theirs)
            alike = [pair for pair in alike_queries(ours, theirs) if pair[0] not in equal]
            found = found or bool(equal or alike)
            if equal:
                one = next(iter(equal))
                yield _finding(
                    "warning",
                    f"with the text of a {other} query",
                    name,
                    f"{len(equal):,} of {len(ours):,}",
                    one,
                )
            if alike:
                number = f"{len(alike):,} of {len(ours):,}"
                what = f"close to a {other} query"
                yield _finding("note", what, name, number, f"{alike[0][0]} and {alike[0][1]}")
    if not found and len(collection.splits) > 1:
        yield Finding("ok", "no two splits have queries alike")


def equal_queries(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, None]:
    """Those of our query_ids whose text, but for case and white space, is one of theirs."""
    known = {normalised(text) for text in theirs.values()}
    return {query_id: None for query_id, text in ours.items() if normalised(text) in known}


def alike_queries(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[tuple[str, str]]:
    """(our query_id, the first of theirs that is alike), by the weighted Jaccard coefficient.

    A word weighs the more the fewer queries have it, so that the words of a template hardly count.
    Exact: of two alike queries, both have a word in common before the last `ALIKE` of their weight,
    rarest words first (prefix filtering; Chaudhuri, Ganti & Kaushik 2006), so few pairs are formed.
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
    """The rarest words, one of which is in every query that is alike."""
    ordered = sorted(words, key=lambda word: (-weight[word], word))
    rest = total = sum(weight[word] for word in ordered)
    for number, word in enumerate(ordered):
        if rest < ALIKE * total - 1e-9:  # sums in another order differ in their last digits
            return ordered[:number]
        rest -= weight[word]
    return ordered


def _overlap(one: frozenset[str], other: frozenset[str], weight: Mapping[str, float]) -> float:
    union = sum(weight[word] for word in one | other)
    return sum(weight[word] for word in one & other) / union if union else 0.0


def _finding(level: str, what: str, name: str, number: str, one: str) -> Finding:
    return Finding(
        level,
        f"{name}: {number} queries {what}, such as {one}",
        "a model may have been trained on the answer",
        "put such pairs into one split",
    )
