"""Positions of relevant passages and lengths of documents, in words at white space."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rank_core.records import Split
from sweeps.positions.matching import find_passage

SIMILAR = 4
"""Documents are of similar length where the longest is at most this many medians long."""


class Passage(NamedTuple):
    """A text that answers a query; its document is one of the query's relevant ones."""

    query_id: str
    text: str


class Position(NamedTuple):
    """The position of a relevant passage; `word_start` is -1 if it was not found."""

    query_id: str
    doc_id: str
    word_start: int
    num_words: int  # of the passage
    document_words: int
    similarity: float
    method: str

    @property
    def found(self) -> bool:
        """True if the passage is in the document."""
        return self.word_start >= 0

    @property
    def relative(self) -> float:
        """0 at the first place that the passage can have in the document, 1 at the last."""
        room = self.document_words - self.num_words
        return min(1.0, self.word_start / room) if room > 0 else 0.0


def relevant_documents(split: Split, least_grade: int = 1) -> list[tuple[str, str]]:
    """(query_id, doc_id) of the judgments of at least this grade, in the split's order."""
    return [
        (query_id, doc_id)
        for query_id in split.queries
        for doc_id, grade in split.qrels.get(query_id, {}).items()
        if grade >= least_grade
    ]


def relevant_positions(
    passages: Iterable[Passage], pairs: Iterable[tuple[str, str]], documents: Mapping[str, str]
) -> Iterator[Position]:
    """One position for each pair of a query and a relevant document: the start of the query's first
    passage in the document."""
    by_query: dict[str, list[str]] = {}
    for passage in passages:
        by_query.setdefault(passage.query_id, []).append(passage.text)
    for query_id, doc_id in pairs:
        if query_id in by_query and doc_id in documents:
            yield _first_match(query_id, doc_id, by_query[query_id], documents[doc_id])


def _first_match(query_id: str, doc_id: str, texts: Sequence[str], document: str) -> Position:
    size = len(document.split())
    matches = []
    for text in texts:
        match = find_passage(text, document)
        if match is not None:
            start = len(document[: match.start].split())
            # A match inside a word belongs to that word.
            inside = match.start > 0 and not document[match.start - 1].isspace()
            place = start - 1 if inside and start else start
            num_words = len(text.split())
            matches.append(
                Position(query_id, doc_id, place, num_words, size, match.similarity, match.method)
            )
    lost = Position(query_id, doc_id, -1, 0, size, 0.0, "")
    return min(matches, key=lambda position: position.word_start, default=lost)


class Histogram(NamedTuple):
    """Counts of the intervals between neighbouring edges."""

    edges: np.ndarray  # one more than counts
    counts: np.ndarray
    expected: np.ndarray | None = None  # if every place were equally likely
    open_end: bool = False  # the last interval is open

    @property
    def shares(self) -> np.ndarray:
        """Counts as shares of their sum."""
        shares: np.ndarray = self.counts / max(self.counts.sum(), 1)
        return shares


def length_histogram(lengths: Sequence[int], edges: np.ndarray) -> Histogram:
    """Documents by length in words."""
    counts, _ = np.histogram(np.maximum(lengths, edges[0]), bins=edges)
    return Histogram(edges, counts)


def length_edges(lengths: Sequence[int]) -> np.ndarray:
    """Equal intervals from 0 where documents are of similar length.

    Otherwise edges that grow by a third of a doubling each, so that a few very long documents do
    not squeeze all others into one interval; the first interval includes shorter ones.
    """
    longest = max(lengths, default=0)
    if not lengths or longest <= SIMILAR * np.median(lengths):
        width = width_for(longest)
        return np.arange(0, longest + width + 1, width)
    low = np.floor(3 * np.log2(max(min(lengths), 1)))
    high = np.ceil(3 * np.log2(longest + 1))
    return 2 ** (np.arange(low, high + 1) / 3)


def position_histogram(positions: Sequence[Position]) -> Histogram:
    """Found passages by the words before them, and the expected numbers if each passage were
    anywhere in its document with the same probability. The last interval is open: 95% of the
    documents end before it.
    """
    matched = [position for position in positions if position.found]
    rooms = [max(1, match.document_words - match.num_words + 1) for match in matched]
    longest = max(rooms, default=1)
    most = int(np.percentile(rooms, 95)) if rooms else 1
    width = width_for(most)
    edges = np.arange(0, most + width, width)
    closed = np.append(edges[:-1], max(longest, edges[-1]))
    counts, _ = np.histogram([position.word_start for position in matched], bins=closed)
    expected = np.zeros(len(edges) - 1)
    for room in rooms:
        expected += np.diff(np.minimum(closed, room)) / room
    return Histogram(edges, counts, expected, open_end=longest > edges[-1])


def relative_histogram(positions: Sequence[Position], num_bins: int) -> Histogram:
    """Found passages by their relative position."""
    places = [position.relative for position in positions if position.found]
    counts, edges = np.histogram(places, bins=num_bins, range=(0, 1))
    return Histogram(edges, counts, np.full(num_bins, len(places) / num_bins))


def width_for(largest: int, num_bins: int = 20) -> int:
    """A round width (1, 2, 5, 10, 20, ...) that cuts 0 to `largest` into at most `num_bins`."""
    scale = 1
    while True:
        for factor in (1, 2, 5):
            if largest < factor * scale * num_bins:
                return factor * scale
        scale *= 10
