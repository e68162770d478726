"""Positions of relevant passages, in words at white space."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rank_core.records import Split
from sweeps.positions.matching import find_passage


class RelevantPassage(NamedTuple):
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
    def places(self) -> int:
        """Places that the passage can have in the document."""
        return max(1, self.document_words - self.num_words + 1)

    @property
    def relative(self) -> float:
        """0 at the first place that the passage can have in the document, 1 at the last."""
        return min(1.0, self.word_start / (self.places - 1)) if self.places > 1 else 0.0


def relevant_documents(split: Split, least_grade: int = 1) -> list[tuple[str, str]]:
    """(query_id, doc_id) of the judgments of at least this grade, in the split's order."""
    return [
        (query_id, doc_id)
        for query_id in split.queries
        for doc_id, grade in split.qrels.get(query_id, {}).items()
        if grade >= least_grade
    ]


def relevant_positions(
    passages: Iterable[RelevantPassage],
    pairs: Iterable[tuple[str, str]],
    documents: Mapping[str, str],
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
    expected: np.ndarray  # if every place were equally likely
    open_end: bool  # the last interval is open


def position_histogram(positions: Sequence[Position]) -> Histogram:
    """Found passages by the words before them, and the expected numbers if each passage were
    anywhere in its document with the same probability. The last interval is open: 95% of the
    documents end before it.
    """
    matched = [position for position in positions if position.found]
    places = [match.places for match in matched]
    longest = max(places, default=1)
    most = int(np.percentile(places, 95)) if places else 1
    width = width_for(most)
    edges = np.arange(0, most + width, width)
    closed = np.append(edges[:-1], max(longest, edges[-1]))
    counts, _ = np.histogram([position.word_start for position in matched], bins=closed)
    expected = np.zeros(len(edges) - 1)
    for number in places:
        expected += np.diff(np.minimum(closed, number)) / number
    return Histogram(edges, counts, expected, open_end=bool(longest > edges[-1]))


def width_for(largest: int, num_bins: int = 20) -> int:
    """A round width (1, 2, 5, 10, 20, ...) that cuts 0 to `largest` into at most `num_bins`."""
    scale = 1
    while True:
        for factor in (1, 2, 5):
            if largest < factor * scale * num_bins:
                return factor * scale
        scale *= 10
