"""Positions of passages, and histograms against chance."""

import pytest

from rank_core.records import Split
from sweeps.positions.passages import (
    Position,
    RelevantPassage,
    position_histogram,
    relevant_documents,
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


def test_a_match_inside_a_word_belongs_to_that_word():
    [found] = relevant_positions(
        [RelevantPassage("q", "quoted passage of some length")],
        [("q", "d")],
        {"d": 'see the "quoted passage of some length" there'},
    )
    assert found.word_start == 2


def test_relative_positions_go_from_the_first_to_the_last_possible_place():
    assert position(0).relative == 0
    assert position(9).relative == 1
    assert position(3, num_words=4).relative == 0.5
    assert position(0, num_words=10).relative == 0


def test_the_relevant_documents_are_those_of_the_least_grade():
    split = Split({"a": "", "b": ""}, {"a": {"x": 2, "y": 1, "z": 0}, "c": {"x": 1}}, {})
    assert relevant_documents(split) == [("a", "x"), ("a", "y")]
    assert relevant_documents(split, least_grade=2) == [("a", "x")]


def test_chance_is_every_place_of_each_document_with_the_same_probability():
    # Ten and four places; 95% of them end by 9.7, so the edges are 0, 1, ... 9 and the rest.
    found = [position(0, 1, 10), position(3, 1, 4), position(-1)]
    histogram = position_histogram(found)
    assert histogram.edges.tolist() == list(range(10))
    assert histogram.counts.tolist() == [1, 0, 0, 1, 0, 0, 0, 0, 0]
    assert histogram.expected == pytest.approx([0.35] * 4 + [0.1] * 4 + [0.2])
    assert histogram.open_end
    assert histogram.counts.sum() == pytest.approx(histogram.expected.sum()) == 2
