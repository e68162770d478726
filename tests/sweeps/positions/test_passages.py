"""Passages found in documents, and their positions: by hand, and a plain algorithm as the
reference."""

import numpy as np
import pytest

from rank_core.records import Collection, Split
from sweeps.positions.analysis import relevant_pairs
from sweeps.positions.passages import (
    SUBSEQUENCE,
    SUBSTRING,
    Position,
    RelevantPassage,
    _masks,
    _subsequence,
    best_stretch,
    find_passage,
    longest_common_substring,
    plain,
    position_histogram,
    relevant_positions,
)

DOCUMENTS = {
    "early": "relevant words stand here and then come many other ones",
    "late": "many other ones come first and only then relevant words stand here",
    "never": "nothing of it is in this text at all, honestly not a thing",
}


def position(start, num_words=1, size=10):
    return Position("q", "d", start, num_words, size, 1.0, "substring")


def test_each_relevant_document_has_the_position_of_its_first_passage():
    passages = [
        RelevantPassage("q", "relevant words stand here"),
        RelevantPassage("q", "many other ones"),
        RelevantPassage("other", "nothing of it is"),
    ]
    pairs = [("q", "early"), ("q", "late"), ("q", "never"), ("q", "gone"), ("unasked", "early")]
    found = {one.doc_id: one for one in relevant_positions(passages, pairs, DOCUMENTS)}
    assert {doc_id: one.word_start for doc_id, one in found.items()} == {
        "early": 0, "late": 0, "never": -1,
    }  # fmt: skip
    assert found["early"].num_words == 4 and found["late"].num_words == 3
    assert not found["never"].found and found["late"].document_words == 12
    [alone] = relevant_positions(passages[:1], [("q", "late")], DOCUMENTS)
    assert alone.word_start == 8 and alone.relative == 1.0
    # A match inside a word belongs to that word.
    document = {"d": 'see the "quoted passage of some length" there'}
    inside = [RelevantPassage("q", "quoted passage of some length")]
    [found] = relevant_positions(inside, [("q", "d")], document)
    assert found.word_start == 2


def test_relative_positions_go_from_the_first_to_the_last_possible_place():
    assert position(0).relative == 0
    assert position(9).relative == 1
    assert position(3, num_words=4).relative == 0.5
    assert position(0, num_words=10).relative == 0


def test_the_relevant_documents_are_those_of_the_least_grade():
    split = Split({"a": "", "b": ""}, {"a": {"x": 2, "y": 1, "z": 0}, "c": {"x": 1}}, {})
    collection = Collection("woods", "0", {"x": "", "y": "", "z": ""}, {"dev": split})
    for grade, known in ((1, ["x", "y"]), (2, ["x"])):
        pairs = relevant_pairs(collection, "dev", max_pairs=0, least_grade=grade, seed=1)
        assert [(pair.query_id, pair.doc_id) for pair in pairs] == [("a", name) for name in known]


def test_chance_is_every_place_of_each_document_with_the_same_probability():
    # Ten and four places; 95% of them end by 9.7, so the edges are 0, 1, ... 9 and the rest.
    found = [position(0, 1, 10), position(3, 1, 4), position(-1)]
    histogram = position_histogram(found)
    assert histogram.edges.tolist() == list(range(10))
    assert histogram.counts.tolist() == [1, 0, 0, 1, 0, 0, 0, 0, 0]
    assert histogram.expected == pytest.approx([0.35] * 4 + [0.1] * 4 + [0.2])
    assert histogram.open_end
    assert histogram.counts.sum() == pytest.approx(histogram.expected.sum()) == 2


def test_texts_are_compared_as_letters_and_digits_with_single_spaces():
    found = plain("  Don't\n\n(Panic) — 42!")
    assert found.text == "don t panic 42"
    origins = ["  Don't\n\n(Panic) — 42!"[place] for place in found.places]
    assert "".join(origins) == "Don't\nPanic)42"
    found = plain("İx Yes")  # a capital that becomes two characters
    assert len(found.text) == len(found.places) == 6
    assert "İx Yes"[found.places[found.text.index("yes")]] == "Y"


def table_substring(a, b):
    return max(
        (
            size
            for size in range(min(len(a), len(b)), 0, -1)
            for i in range(len(a) - size + 1)
            if a[i : i + size] in b
        ),
        default=0,
    )


def table_subsequence(a, b):
    row = [0] * (len(b) + 1)
    for x in a:
        above, row = row, [0]
        for place, y in enumerate(b):
            row.append(above[place] + 1 if x == y else max(row[-1], above[place + 1]))
    return row[-1]


def test_both_lengths_are_those_of_the_plain_algorithms():
    rng = np.random.default_rng(2)
    for _ in range(100):
        a, b = ("".join(rng.choice(list("abc "), rng.integers(1, 40))) for _ in range(2))
        assert _subsequence(_masks(a), len(a), b) == table_subsequence(a, b)
        length, start = longest_common_substring(a, b)
        assert length == table_substring(a, b)
        assert b[start : start + length] in a


@pytest.mark.parametrize(
    ("passage", "document", "expected"),
    [
        (
            "The quick brown fox, 3 times.",
            "Before it!  the QUICK\nbrown fox 3 times and after",
            (12, 1.0, SUBSTRING),
        ),
        ("ab", "xabxab", (1, 1.0, SUBSTRING)),  # the first of two
        # Of 20 letters 16 in one piece are enough; 15 are 75% as a subsequence.
        ("abcdefghijklmnopqrst", "xx abcdefghijklmnop yy", (3, 0.8, SUBSTRING)),
        ("abcdefghijklmnopqrst", "xx abcdefghijklmno yy", (3, 0.75, SUBSEQUENCE)),
        ("abcdefghijklmnopqrst", "xx abcdefghijklm yy", None),
    ],
)
def test_a_passage_is_found_by_most_of_its_letters(passage, document, expected):
    assert find_passage(passage, document) == expected


def test_a_changed_passage_is_found_as_a_subsequence_where_a_later_start_would_lose_some_of_it():
    passage = "one two three four five six seven eight nine ten"
    document = "zz " * 30 + "one two 3 four five 6 seven eight 9 ten " + "zz " * 30
    match = find_passage(passage, document)
    assert match.method == SUBSEQUENCE and match.similarity > 0.7
    assert abs(match.start - 90) <= 1  # after thirty times "zz "
    assert best_stretch("abc+def+ghi+jkl", "z" * 47 + "abc-def-ghi-jkl") == (12, 47)
