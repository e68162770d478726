"""Scores of chunks by position: hand-computed curves, BM25 against its formula, any embedding."""

import math

import numpy as np
import pytest

from sweeps.positions.rsv import (
    Bm25Chunks,
    RelevantPair,
    cosine_scorer,
    rsv_curve,
    scaled_scores,
    word_chunks,
)


def pair(text, query_id="q", doc_id="d"):
    return RelevantPair(query_id, "query", doc_id, text)


def by_digits(_, chunks):
    """A chunk is worth the numbers in it."""
    return [sum(int(word) for word in chunk.split() if word.isdigit()) for chunk in chunks]


@pytest.mark.parametrize(
    ("num_words", "window", "sizes"),
    [
        (0, 5, [0]),
        (3, 5, [3]),
        (10, 5, [5, 5]),
        (12, 5, [6, 6]),
        (13, 5, [4, 5, 4]),
        (11, 2, [2, 2, 2, 1, 2, 2]),
    ],
)
def test_chunks_are_of_one_size_and_lose_no_word(num_words, window, sizes):
    words = [f"w{i}" for i in range(num_words)]
    chunks = word_chunks(" ".join(words), window)
    assert [len(chunk.text.split()) for chunk in chunks] == sizes
    assert " ".join(chunk.text for chunk in chunks).split() == words
    if num_words:
        assert chunks[0].start == 0 and chunks[-1].end == 1


def test_the_curve_by_hand():
    # Two chunks worth 9 and 1, so 1 and 0 on the scale; the other query's four are 0, .5, 0 and 1.
    pairs = [
        pair("9 a 1 b", "q1"),
        pair("2 a 4 a 2 a 6 a", "q2"),
        pair("3 a 3 b", "q3"),
        pair("5", "q4"),
    ]
    scaled = [list(scaled_scores(p.text, p.query, by_digits, 2).get("scaled", [])) for p in pairs]
    assert scaled == [[1, 0], [0, 0.5, 0, 1], [], []]  # q3 and q4 say nothing
    points = rsv_curve(pairs, by_digits, window=2, num_bins=4)
    assert [point.mean for point in points] == [0.5, 0.75, 0, 0.5]
    assert points[0].num_queries == 2
    # Values 1 and 0: sd .7071, standard error .5.
    assert points[0].ci_high == pytest.approx(0.5 + 1.96 * 0.5)
    assert rsv_curve([], by_digits, window=2, num_bins=4) == []


def test_documents_of_one_query_count_as_one():
    pairs = [pair("9 1", "q1", "d1"), pair("9 1", "q1", "d2"), pair("1 9", "q2", "d3")]
    points = rsv_curve(pairs, by_digits, window=1, num_bins=2)
    assert [point.mean for point in points] == [0.5, 0.5]


def test_bm25_of_chunks_is_its_formula():
    chunks = ["cats chase mice", "dogs sleep", "mice eat cheese and mice run"]
    score = Bm25Chunks(chunks)
    # Terms without stop words: 3, 2 and 5, mean 10 / 3. Two chunks of three have mice, one cats.
    idf = {"mice": math.log(1 + 1.5 / 2.5), "cat": math.log(1 + 2.5 / 1.5)}

    def part(term, frequency, length):
        return idf[term] * frequency / (frequency + 0.9 * (0.6 + 0.4 * length * 0.3))

    expected = [part("mice", 1, 3) + part("cat", 1, 3), 0, part("mice", 2, 5)]
    assert score("Cats and mice", chunks) == pytest.approx(expected)
    assert score("mice mice", chunks)[0] == pytest.approx(2 * part("mice", 1, 3))
    assert score("unheard of", chunks) == [0, 0, 0]


def test_the_cosine_of_a_chunk_does_not_depend_on_the_chunks_beside_it(backbone):
    score = cosine_scorer(backbone)
    chunks = ["amber birch", "the northern harbour lanterns " * 60, "cedar", "flint grove heron"]
    together = score("birch", chunks * 9)  # more than a batch
    assert together == pytest.approx([score("birch", [chunk])[0] for chunk in chunks] * 9, abs=1e-5)
    assert score("cedar", ["cedar"]) == pytest.approx([1])
    assert max(together) <= 1 and np.std(together) > 0.01


def test_bm25_reads_chunks_in_the_language():
    assert Bm25Chunks(["Häuser"])("Haus", ["Häuser"]) == [0.0]
    assert Bm25Chunks(["Häuser"], "de")("Haus", ["Häuser"])[0] > 0
