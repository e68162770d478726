"""Assembly of long documents: a hand-computed case and laws over random ones."""

import numpy as np
import pytest

from rank_core.data.made.assembly import assemble
from rank_core.errors import BadInput


class InOrder:
    """Stands for a generator whose permutation is the identity, to compute cases by hand."""

    def permutation(self, count):
        return np.arange(count)


@pytest.mark.parametrize(
    ("first_position", "max_length", "text", "offset"),
    [
        (0, 2, "R R", 0),
        (0, 5, "R R a a b", 0),
        (1, 5, "a a R R b", 2),
        (2, 6, "a a R R b b", 2),
        (3, 6, "a a b b b R R", 5),  # only the relevant passage exceeds max_length
        (3, 9, "a a b b b R R c", 5),  # the distractors end before max_length
    ],
)
def test_a_document_is_filled_before_and_after_the_relevant_passage(
    first_position, max_length, text, offset
):
    distractors = ["a a", "b b b", "c"]
    made = assemble(
        "R R", distractors, first_position=first_position, max_length=max_length, rng=InOrder()
    )
    assert made == (text, offset)


def test_every_random_document_obeys_the_laws():
    rng = np.random.default_rng(7)
    for _ in range(200):
        lengths = rng.integers(1, 9, 30)
        distractors = [f"x{number} " * length for number, length in enumerate(lengths)]
        num_relevant = int(rng.integers(1, 30))
        relevant = " ".join(f"r{number}" for number in range(num_relevant))
        first_position, extra = int(rng.integers(0, 25)), int(rng.integers(0, 40))
        max_length = first_position + extra
        text, offset = assemble(
            relevant, distractors, first_position=first_position, max_length=max_length, rng=rng
        )
        words = text.split()
        assert words[offset : offset + num_relevant] == relevant.split()
        assert text.count(relevant) == 1
        assert first_position <= offset < first_position + 8
        assert len(words) == max(max_length, offset + num_relevant) or len(words) == (
            num_relevant + lengths.sum()
        )
        for number, length in enumerate(lengths):
            assert words.count(f"x{number}") <= length  # none is used twice


def test_the_document_is_a_function_of_the_generator_state():
    def make(seed):
        return assemble(
            "r",
            [f"word{number}" for number in range(30)],
            first_position=5,
            max_length=15,
            rng=np.random.default_rng(seed),
        )

    assert make(1) == make(1)
    assert make(1) != make(2)


def test_the_relevant_passage_keeps_its_own_white_space():
    text, _ = assemble("two  spaces", ["a"], first_position=1, max_length=9, rng=InOrder())
    assert text == "a two  spaces"


@pytest.mark.parametrize(
    ("relevant", "distractors", "first_position", "max_length", "message"),
    [
        (" ", ["a"], 0, 5, "at least one word, found none"),
        ("r", ["a"], 6, 5, "got first_position=6, max_length=5"),
        ("r", ["a"], -1, 5, "got first_position=-1"),
        ("r", ["a", "b"], 3, 5, "got first_position=3 and 2 words"),
    ],
)
def test_impossible_documents_are_refused(
    relevant, distractors, first_position, max_length, message
):
    with pytest.raises(BadInput, match=message):
        assemble(
            relevant,
            distractors,
            first_position=first_position,
            max_length=max_length,
            rng=np.random.default_rng(1),
        )
