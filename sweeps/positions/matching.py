"""The position of a passage in a document that holds it, perhaps with changes.

Boytsov et al. 2022, section 3.3.3: texts are compared as lower-case letters and digits; the longest
common substring counts if it covers 80% of the passage, otherwise the longest common subsequence
with a stretch of the document 1.2 times as long counts if it covers 70%, over stretches a tenth of
the passage apart. Here runs of other characters are one space, so a new line break changes nothing.
"""

import math
import re
from typing import NamedTuple

import numpy as np

SUBSTRING, SUBSEQUENCE = "substring", "subsequence"
LEAST_SUBSTRING, LEAST_SUBSEQUENCE = 0.8, 0.7  # of the passage's characters
STRETCH, STEP = 1.2, 0.1  # of the passage's characters

_OTHER = re.compile(r"[\W_]")


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
    length, start = longest_common_substring(sought.text, searched.text)
    similarity = length / len(sought.text)
    method = SUBSTRING
    if similarity < LEAST_SUBSTRING:
        length, start = best_stretch(sought.text, searched.text)
        similarity = length / len(sought.text)
        method = SUBSEQUENCE
        if similarity < LEAST_SUBSEQUENCE:
            return None
    return Match(int(searched.places[start]), similarity, method)


def plain(text: str) -> Plain:
    """Lower-case letters and digits with single spaces between them."""
    lowered = text.lower()
    if len(lowered) != len(text):  # some capitals become two characters
        lowered = "".join(c.lower() if len(c.lower()) == 1 else c for c in text)
    spaced = _OTHER.sub(" ", lowered)
    if not spaced.strip():
        return Plain("", np.zeros(0, dtype=np.int64))
    codes = _codes(spaced)
    is_space = codes == ord(" ")
    keep = ~is_space
    keep[1:] |= ~is_space[:-1]  # the first space after a word
    places = np.flatnonzero(keep)
    if is_space[places[-1]]:
        places = places[:-1]
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
