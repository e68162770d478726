"""Rank-biased overlap by hand and as the package `rbo` has it, and the overlap of top documents."""

from collections import defaultdict

import numpy as np
import pytest

from rank_core.stats.agreement import Ranks, rank_biased_overlap, ranks, top_overlap


def both(one: str, other: str) -> tuple[Ranks, Ranks]:
    """Two lists of documents, a letter each, as the ranks of one query."""
    places: dict[str, dict[str, int]] = defaultdict(dict)
    return ranks({"q": one}, ["q"], places), ranks({"q": other}, ["q"], places)


def rbo(one: str, other: str, p: float = 0.9) -> float:
    return rank_biased_overlap(*both(one, other), p)[0]


GOLDEN = [  # rbo.RankingSimilarity(one, other).rbo_ext(p), p = .5, .9, .98; rbo 0.1.3 of PyPI
    ("abcdefgh", "badxyc", 0.419791666667, 0.631701, 0.660205495787),
    ("abcdefghij", "cjbiahgdfe", 0.152229042659, 0.651265065643, 0.914343113231),
    ("abcde", "vwxyzabcde", 0.00814577132937, 0.255803782821, 0.439022186328),
    ("a", "bacdefgh", 0.193238467262, 0.180567626786, 0.138657838516),
    ("abcdefghijklmnopqrst", "tbadcfehgjilknmporqs", 0.306852910633, 0.74919212212, 0.934704009476),
]


@pytest.mark.parametrize(("one", "other", "half", "usual", "deep"), GOLDEN)
def test_values_of_the_package_rbo(one: str, other: str, half: float, usual: float, deep: float):
    found = [rbo(*pair, p) for pair in ((one, other), (other, one)) for p in (0.5, 0.9, 0.98)]
    assert found == pytest.approx([half, usual, deep] * 2, abs=1e-11)


def test_the_top_is_a_set_and_shorter_lists_have_a_shorter_one():
    assert top_overlap(*both("abcd", "dcxa"), k=3)[0] == pytest.approx(1 / 3)  # c
    assert top_overlap(*both("ab", "ba"))[0] == 1
    assert top_overlap(*both("ab", "bacd"))[0] == 0.5
    assert np.isnan(top_overlap(*both("", ""))[0])


def test_every_query_is_its_own_and_a_missing_one_ranks_nothing():
    places: dict[str, dict[str, int]] = defaultdict(dict)
    queries = ["q1", "q2", "q3"]
    one = ranks({"q1": "abc", "q2": "xy"}, queries, places)
    other = ranks({"q3": "p", "q1": "abc", "q2": "zyxwv"}, queries, places)
    found = rank_biased_overlap(one, other)
    assert found == pytest.approx([1, rbo("xy", "zyxwv"), 0])
    assert top_overlap(one, other) == pytest.approx([1, 2 / 5, 0])
