"""Long documents whose relevant passage comes late, assembled from passages.

The construction of FarRelevant (Boytsov et al., "Positional bias in long-document ranking",
appendix C.2), with lengths in words at white space instead of tokens of one model.
"""

from collections.abc import Sequence

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
