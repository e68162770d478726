"""Long documents whose relevant passage comes late, assembled from passages.

The construction of FarRelevant (Boytsov et al., "Positional bias in long-document ranking",
appendix C.2), with lengths in words at white space instead of tokens of one model: `bury` has all
of it, `assemble` the shorter form that python-docs uses.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rank_core.errors import BadInput


def assemble(
    relevant: str,
    distractors: Sequence[str],
    *,
    first_position: int,
    max_length: int,
    rng: np.random.Generator,
) -> tuple[str, int]:
    """A document that holds `relevant` whole, and the number of words before it.

    Distractors in random order fill the document until at least `first_position` words stand
    before the relevant passage, and again after it up to `max_length` words; the last one is cut
    there. None is used twice. Only a relevant passage that does not fit makes a document longer.
    """
    if not relevant.split():
        raise BadInput("a relevant passage must have at least one word, found none")
    if not 0 <= first_position <= max_length:
        raise BadInput(
            "0 <= first_position <= max_length must hold, "
            f"got first_position={first_position}, max_length={max_length}"
        )
    order = iter(rng.permutation(len(distractors)))
    before: list[str] = []
    offset = 0
    while offset < first_position:
        number = next(order, None)
        if number is None:
            raise BadInput(
                "the distractors must have at least first_position words together, "
                f"got first_position={first_position} and {offset} words"
            )
        before.append(distractors[number])
        offset += len(distractors[number].split())
    after: list[str] = []
    room = max_length - offset - len(relevant.split())
    for number in order:
        if room <= 0:
            break
        words = distractors[number].split()[:room]
        after.append(" ".join(words))
        room -= len(words)
    return " ".join(part for part in (*before, relevant, *after) if part), offset


class Buried(NamedTuple):
    """A document and where its relevant passage stands, in words at white space."""

    text: str
    word_start: int  # words before the relevant passage
    num_words: int  # of the relevant passage
    drawn_length: int  # what the length of the document was meant to be


def bury(
    relevant: str,
    distractors: Iterable[str],
    *,
    first_position: int,
    max_length: int,
    as_published: bool,
    rng: np.random.Generator,
) -> Buried:
    """A document that holds `relevant` whole, `first_position` words or more after its start.

    Its length is drawn uniformly from `first_position` + the passage's words to `max_length`.
    Distractors fill it up to `first_position`; the next ones, as many as the length allows, are
    shuffled with the relevant passage and follow. A distractor before it that would make the
    document longer than `max_length` is cut, so none is longer. `as_published` keeps to the wording
    of the paper as we read it: more than `first_position` words come first, and the last distractor
    is the one that exceeds the drawn length, so documents are one word and one passage longer.
    """
    num_words = len(relevant.split())
    if not 1 <= num_words <= max_length - first_position:
        raise BadInput(
            "1 <= words of the relevant passage <= max_length - first_position must hold, "
            f"got {num_words} words, first_position={first_position}, max_length={max_length}"
        )
    length = int(rng.integers(first_position + num_words, max_length + 1))
    source = iter(distractors)
    most = None if as_published else max_length - num_words
    before = list(_fill(source, first_position + as_published, most))
    offset = sum(len(one.split()) for one in before)
    after = list(_follow(source, length - offset - num_words, one_more=as_published))
    slot = int(rng.integers(len(after) + 1))
    order = [after[number] for number in rng.permutation(len(after))]
    offset += sum(len(one.split()) for one in order[:slot])
    parts = (*before, *order[:slot], relevant, *order[slot:])
    return Buried(" ".join(part.strip() for part in parts), offset, num_words, length)


def _fill(distractors: Iterator[str], least: int, most: int | None) -> Iterator[str]:
    """Distractors until they have `least` words, the last one cut where it makes `most`."""
    total = 0
    while total < least:
        one = next(distractors, None)
        if one is None:
            raise BadInput(f"the distractors must have {least} words together, found {total} words")
        words = one.split()
        if most is not None and total + len(words) > most:
            one = " ".join(words[: most - total])
        total += len(words)
        if words:
            yield one


def _follow(distractors: Iterator[str], room: int, *, one_more: bool) -> Iterator[str]:
    """Distractors up to the first that exceeds `room` words, and that one too if asked for."""
    while room >= 0:
        one = next(distractors, None)
        if one is None:
            return
        room -= len(one.split())
        if room >= 0 or one_more:
            yield one
