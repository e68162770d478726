"""How much of the relevant text a reader is given within a budget of tokens.

The reader gets the best chunks of all documents in their order, as long as the next one fits into
the budget. Its value is the share of the relevant characters that these chunks cover, so that a
large chunk gains nothing by being large: it fills the budget sooner.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

BUDGETS = (1024, 2048, 4096)
"""Tokens that a reader is given."""


class Place(NamedTuple):
    """The characters [start, end) of a document."""

    doc_id: str
    start: int
    end: int


class Read(NamedTuple):
    """A chunk that a reader is given, and its tokens."""

    place: Place
    tokens: int


def within(chunks: Iterable[Read], budget: int) -> list[Read]:
    """The first chunks whose tokens are at most `budget` together.

    Examples:
        >>> chunks = [Read(Place("d1", 0, 9), 3), Read(Place("d2", 0, 9), 3)]
        >>> len(within(chunks, 5)), len(within(chunks, 6))
        (1, 2)
    """
    given, left = list[Read](), budget
    for chunk in chunks:
        if chunk.tokens > left:
            break
        given.append(chunk)
        left -= chunk.tokens
    return given


def coverage(relevant: Sequence[Place], read: Iterable[Place]) -> float:
    """The share of the relevant characters that are read.

    Examples:
        >>> coverage([Place("d1", 10, 20)], [Place("d1", 0, 14), Place("d1", 12, 15)])
        0.5
    """
    wanted = {(place.doc_id, c) for place in relevant for c in range(place.start, place.end)}
    seen = {
        (place.doc_id, c)
        for place in read
        for wanted_place in relevant
        if wanted_place.doc_id == place.doc_id
        for c in range(max(place.start, wanted_place.start), min(place.end, wanted_place.end))
    }
    return len(wanted & seen) / len(wanted) if wanted else 0.0


def evidence_recall(
    chunks: Mapping[str, Sequence[Read]],
    relevant: Mapping[str, Sequence[Place]],
    budgets: Sequence[int] = BUDGETS,
) -> dict[int, dict[str, float]]:
    """{budget: {query_id: share of its relevant characters}} of the queries whose relevant text is
    known. `chunks` has the chunks of each query, best first."""
    return {
        budget: {
            query_id: coverage(
                relevant[query_id], (chunk.place for chunk in within(ranked, budget))
            )
            for query_id, ranked in chunks.items()
            if query_id in relevant
        }
        for budget in budgets
    }
