"""Scores of chunks by position: hand-computed curves, BM25 against its formula, any embedding."""

import math

import numpy as np
import pytest

from sweeps.positions.embeddings import mean_pooled
from sweeps.positions.rsv import (
    Bm25Chunks,
    Pair,
    chunk_scores,
    cosine_scorer,
    rsv_curve,
    word_chunks,
)


def pair(text, query_id="q", doc_id="d"):
    return Pair(query_id, "query", doc_id, text)


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
    scores = list(chunk_scores(pairs, by_digits, window=2))
    assert [one.scaled for one in scores] == [1, 0, 0, 0.5, 0, 1]
    assert {one.query_id for one in scores} == {"q1", "q2"}  # q3 and q4 say nothing
    points = rsv_curve(scores, num_bins=4)
    assert [point.mean for point in points] == [0.5, 0.75, 0, 0.5]
    # Best chunks: the first half of q1's document, the last quarter of q2's.
    assert [point.best_share for point in points] == [0.25, 0.25, 0, 0.5]
    assert points[0].num_queries == 2
    # Values 1 and 0: sd .7071, standard error .5.
    assert points[0].ci_high == pytest.approx(0.5 + 1.96 * 0.5)
    assert rsv_curve([], num_bins=4) == []


def test_documents_of_one_query_count_as_one():
    pairs = [pair("9 1", "q1", "d1"), pair("9 1", "q1", "d2"), pair("1 9", "q2", "d3")]
    points = rsv_curve(list(chunk_scores(pairs, by_digits, window=1)), num_bins=2)
    assert [point.mean for point in points] == [0.5, 0.5]
    assert [point.best_share for point in points] == pytest.approx([2 / 3, 1 / 3])


def test_equally_good_chunks_share_their_document():
    scores = list(chunk_scores([pair("9 0 0 9")], by_digits, window=1))
    assert [point.best_share for point in rsv_curve(scores, num_bins=4)] == [0.5, 0, 0, 0.5]


def test_scores_that_do_not_depend_on_position_give_a_flat_curve():
    rng = np.random.default_rng(4)
    pairs = [
        pair(" ".join(map(str, rng.integers(0, 100, int(rng.integers(8, 60))))), f"q{i}")
        for i in range(600)
    ]

    def mean(_, chunks):
        return [np.mean([int(word) for word in chunk.split()]) for chunk in chunks]

    points = rsv_curve(list(chunk_scores(pairs, mean, window=4)), num_bins=5)
    grand = np.mean([point.mean for point in points])
    # Five intervals of 95%: three errors either way.
    assert all(abs(p.mean - grand) < (p.ci_high - p.mean) * 3 / 1.96 for p in points)
    assert all(abs(point.best_share - 0.2) < 0.05 for point in points)


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


def test_the_cosine_of_any_embedding_is_a_score():
    vectors = {"q": [1, 0], "same": [2, 0], "half": [1, 1], "none": [0, 0]}
    score = cosine_scorer(lambda texts: np.array([vectors[text] for text in texts]))
    assert score("q", ["same", "half", "none"]) == pytest.approx([1, math.sqrt(0.5), 0])


def test_mean_vectors_do_not_depend_on_the_texts_beside_them(backbone):
    embed = mean_pooled(backbone)
    texts = ["amber birch", "the northern harbour lanterns " * 60, "cedar", "flint grove heron"] * 9
    together = embed(texts)
    assert together.shape == (36, 32)
    alone = np.concatenate([embed([text]) for text in texts[:4]])
    assert np.allclose(together[:4], alone, atol=1e-5)
    assert np.allclose(together[32:], together[:4], atol=1e-5)  # of the second batch
    assert np.std(alone, axis=0).mean() > 0.01
