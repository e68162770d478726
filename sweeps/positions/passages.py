"""Relevant passages in documents that hold them, perhaps with changes, and their positions in words
at white space.

Boytsov et al. 2022, section 3.3.3: texts are compared as lower-case letters and digits; the longest
common substring counts if it covers 80% of the passage, otherwise the longest common subsequence
with a stretch of the document 1.2 times as long counts if it covers 70%, over stretches a tenth of
the passage apart. Here runs of other characters are one space, so a new line break changes nothing.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

SUBSTRING, SUBSEQUENCE = "substring", "subsequence"
LEAST_SUBSTRING, LEAST_SUBSEQUENCE = 0.8, 0.7  # of the passage's characters
STRETCH, STEP = 1.2, 0.1  # of the passage's characters

MOST_BINS = 20  # of a histogram
_OTHER = re.compile(r"[\W_]")


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
        if match := find_passage(text, document):
            start = len(document[: match.start].split())
            # A match inside a word belongs to that word.
            start -= start > 0 and not document[match.start - 1].isspace()
            matches.append(Position(query_id, doc_id, start, len(text.split()), size, *match[1:]))
    lost = Position(query_id, doc_id, -1, 0, size, 0.0, "")
    return min(matches, key=lambda position: position.word_start, default=lost)


class Histogram(NamedTuple):
    """Counts of the intervals between neighbouring edges."""

    edges: np.ndarray  # one more than counts
    counts: np.ndarray
    expected: np.ndarray  # if every place were equally likely
    open_end: bool  # the last interval is open


def position_histogram(positions: Sequence[Position]) -> Histogram:
    """Found passages, one at least, by the words before them, and the expected numbers if each were
    anywhere in its document with the same probability. The last interval is open: 95% of the
    documents end before it."""
    matched = [position for position in positions if position.found]
    places = [match.places for match in matched]
    longest, most = max(places), int(np.percentile(places, 95))
    edges = np.linspace(0, most, min(MOST_BINS, most) + 1)
    closed = np.append(edges[:-1], max(longest, edges[-1]))
    counts, _ = np.histogram([position.word_start for position in matched], bins=closed)
    expected = np.zeros(len(edges) - 1)
    for number in places:
        expected += np.diff(np.minimum(closed, number)) / number
    return Histogram(edges, counts, expected, open_end=bool(longest > edges[-1]))


class Match(NamedTuple):
    """A passage found in a document."""

    start: int  # characters of the document before the match
    similarity: float  # matched share of the passage's characters
    method: str


class Plain(NamedTuple):
    """A normalised text, and the origin of each of its characters."""

    text: str
    places: np.ndarray


def find_passage(passage: str, document: str) -> Match | None:
    """The place of a passage in a document; None where too little of it is found."""
    sought, searched = plain(passage), plain(document)
    if not sought.text or not searched.text:
        return None
    for method, search, least in (
        (SUBSTRING, longest_common_substring, LEAST_SUBSTRING),
        (SUBSEQUENCE, best_stretch, LEAST_SUBSEQUENCE),
    ):
        length, start = search(sought.text, searched.text)
        if length / len(sought.text) >= least:
            return Match(int(searched.places[start]), length / len(sought.text), method)
    return None


def plain(text: str) -> Plain:
    """Lower-case letters and digits with single spaces between them."""
    lowered = text.lower()
    if len(lowered) != len(text):  # some capitals become two characters
        lowered = "".join(c.lower() if len(c.lower()) == 1 else c for c in text)
    spaced = _OTHER.sub(" ", lowered).rstrip()
    is_space = _codes(spaced) == ord(" ")
    keep = ~is_space
    keep[1:] |= ~is_space[:-1]  # the first space after a word
    places = np.flatnonzero(keep)
    return Plain("".join(spaced[place] for place in places), places)


def longest_common_substring(passage: str, document: str) -> tuple[int, int]:
    """(its length, its first place in the document): one vector step for each passage character."""
    codes_D = _codes(document)
    run_D = np.zeros(len(document) + 1, dtype=np.int32)  # length of the match that ends here
    length, end = 0, 0
    for code in _codes(passage):
        run_D[1:] = np.where(codes_D == code, run_D[:-1] + 1, 0)
        place = int(run_D.argmax())
        if run_D[place] > length:
            length, end = int(run_D[place]), place
    return length, end - length


def best_stretch(passage: str, document: str) -> tuple[int, int]:
    """(length of the longest common subsequence with the best stretch of the document, where its
    match starts there)."""
    size, step = math.ceil(STRETCH * len(passage)), max(1, math.floor(STEP * len(passage)))
    masks = _masks(passage)
    length, first = 0, 0
    for start in range(0, len(document), step):
        common = _subsequence(masks, len(passage), document[start : start + size])
        if common > length:
            length, first = common, start
    # The match starts where a later start would lose some of it.
    low, high = first, min(first + size, len(document))
    while high - low > 1:
        middle = (low + high) // 2
        is_complete = _subsequence(masks, len(passage), document[middle : first + size]) == length
        low, high = (middle, high) if is_complete else (low, middle)
    return length, low


def _masks(passage: str) -> dict[str, int]:
    """For each character the bits of its places in the passage."""
    masks: dict[str, int] = {}
    for place, character in enumerate(passage):
        masks[character] = masks.get(character, 0) | 1 << place
    return masks


def _subsequence(masks: dict[str, int], length: int, text: str) -> int:
    """A row of the usual table at once, as bits of a number (Hyyrö 2004)."""
    full = (1 << length) - 1
    row = full
    for character in text:
        hits = row & masks.get(character, 0)
        row = ((row + hits) | (row - hits)) & full
    return length - row.bit_count()


def _codes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
