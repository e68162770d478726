"""Positions of passages, and histograms against chance."""

import numpy as np
import pytest

from rank_core.records import Split
from sweeps.positions.positions import (
    Passage,
    Position,
    length_edges,
    length_histogram,
    position_histogram,
    relative_histogram,
    relevant_documents,
    relevant_positions,
    width_for,
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
        Passage("q", "relevant words stand here"),
        Passage("q", "many other ones"),
        Passage("other", "nothing of it is"),
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
        [Passage("q", "quoted passage of some length")],
        [("q", "d")],
        {"d": 'see the "quoted passage of some length" there'},
    )
    assert found.word_start == 2


def test_relative_positions_go_from_the_first_to_the_last_possible_place():
    assert position(0).relative == 0
    assert position(9).relative == 1
    assert position(3, num_words=4).relative == 0.5
    assert position(0, num_words=10).relative == 0
    histogram = relative_histogram([position(0), position(9), position(4), position(-1)], 2)
    assert histogram.counts.tolist() == [2, 1]
    assert histogram.expected.tolist() == [1.5, 1.5]


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


def test_chance_fits_positions_that_are_drawn_by_chance():
    rng = np.random.default_rng(0)
    found = []
    for _ in range(5000):
        size = int(rng.integers(20, 400))
        found.append(position(int(rng.integers(size)), 1, size))
    histogram = position_histogram(found)
    z = (histogram.counts - histogram.expected) / np.sqrt(histogram.expected)
    assert np.abs(z).max() < 4 and histogram.counts.sum() == 5000


def test_lengths_are_counted_in_intervals_that_grow_by_a_third_of_a_doubling():
    lengths = [0, 1, 8, 9, 64, 500]
    edges = length_edges(lengths)
    assert edges[0] == 1 and edges[-1] > 500
    assert np.allclose(edges[1:] / edges[:-1], 2 ** (1 / 3))
    histogram = length_histogram(lengths, edges)
    assert histogram.counts.sum() == 6 and histogram.counts[0] == 2
    assert histogram.shares.sum() == pytest.approx(1)


def test_lengths_that_are_similar_are_counted_in_equal_intervals():
    assert length_edges([7, 7, 19]).tolist() == list(range(0, 21))
    histogram = length_histogram([240] * 9 + [259], length_edges([240] * 9 + [259]))
    assert np.diff(histogram.edges).tolist() == [20] * 13
    assert histogram.counts.tolist() == [0] * 12 + [10]
    assert length_histogram([], length_edges([])).counts.sum() == 0


@pytest.mark.parametrize(
    ("largest", "width"), [(0, 1), (19, 1), (20, 2), (99, 5), (240, 20), (1999, 100)]
)
def test_widths_are_round_and_make_at_most_twenty_intervals(largest, width):
    assert width_for(largest) == width
